package inventory

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
	"github.com/ingot-metal/ingot/internal/hwid"
	"github.com/ingot-metal/ingot/internal/ids"
)

func (a commands) rackCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rack",
		Short:   "Bring in the machines of a rack",
		Long:    `Bring in the machines of a rack, by a list that you have.`,
		Example: "  ingot rack import rack42.csv --site r42",
	}
	cmd.AddCommand(a.rackImportCmd())
	return cmd
}

// rackFlags fill in what a file leaves out.
type rackFlags struct {
	rack, site, interfaces      string
	credentials, username, pass string
	dry                         bool
}

func (a commands) rackImportCmd() *cobra.Command {
	var f rackFlags
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Register the machines of a CSV file, or of an export of NetBox",
		Long: `Register the machines of a file, and update those that are known: a column that the file does
not have, and a cell that is empty, change nothing. Every line is checked before the first is
written; what is wrong is named by line and column. A row whose serial number, or site, is not that
of the machine of its name is refused: it may be another machine.

Columns: machine_id (or name), rack, position, mac_addresses, bmc_endpoint, bmc_credentials_ref,
serial, site, location, group, external_id, install_disk, install_mirror, install_path,
install_address, labels.KEY.
The position becomes a label.
A table of devices that NetBox exports as CSV (all data), and the JSON of its API, are read as they
are: the out-of-band address is the BMC's; --interfaces names its table of interfaces, for the MAC
addresses.

With --bmc-username the credentials that the machines name are stored first, for the BMCs of the
file. The password is asked for, or read from --bmc-password-file; it is never in the file.`,
		Example: `  ingot rack import rack42.csv --dry-run
  ingot rack import rack42.csv --site r42 --bmc-credentials rack42 --bmc-username admin
  ingot rack import netbox_devices.csv --interfaces netbox_interfaces.csv --site r42

  # rack42.csv
  name,rack,position,mac_addresses,bmc_endpoint
  r42-01,r42,1,52:54:00:12:34:56,10.42.1.1`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return a.importRack(cmd.Context(), args[0], &f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.rack, "rack", "", "rack of the machines of which the file names none")
	flags.StringVar(&f.site, "site", "", "site of the machines, whatever the file says")
	flags.StringVar(&f.interfaces, "interfaces", "", "NetBox's table of interfaces, as CSV or JSON")
	flags.StringVar(&f.credentials, "bmc-credentials", "", "credentials of the BMCs for which the file names none")
	flags.StringVar(&f.username, "bmc-username", "", "store these credentials, with this user name")
	flags.StringVar(&f.pass, "bmc-password-file", "", "file with their password; - is standard input")
	flags.BoolVar(&f.dry, "dry-run", false, "write nothing, and say what would change")
	a.app.Must(cmd.RegisterFlagCompletionFunc("site", a.app.CompleteSites()))
	a.app.Must(cmd.RegisterFlagCompletionFunc("bmc-credentials", a.app.CompleteCredentials()))
	return cmd
}

// rackPlan is what an import would write.
type rackPlan struct {
	file *rackFile
	// machines are as they would be; old as they are, nil for a new one; said what the file has of them.
	machines, old, said []*pb.Machine
	credentials         *pb.SetBMCCredentialsRequest
	// claims is who in the file has what only one machine can have.
	claims map[string]string
}

func (a commands) importRack(ctx context.Context, path string, f *rackFlags) error {
	file, err := a.rackOf(path, f)
	if err != nil {
		return err
	}
	svc := a.app.Services()
	p, err := a.planRack(ctx, svc, file, f)
	if err != nil {
		return err
	}
	check := func(m, old *pb.Machine) error {
		_, err := writeMachine(ctx, svc, m, old, true)
		return err
	}
	if err := p.check(p.machines, check); err != nil {
		return err
	}
	if f.dry {
		return a.app.Print(&pb.ListMachinesResponse{Machines: p.machines}, p.text, p.names()...)
	}
	if err := a.storeCredentials(ctx, svc, p, f); err != nil {
		return err
	}
	for i, m := range p.machines {
		if p.machines[i], err = writeMachine(ctx, svc, m, p.old[i], false); err != nil {
			a.app.Note("%d of %d machines are written; %s is not. Repeat the import when this is mended: it goes on", i,
				len(p.machines), m.GetMachineId())
			return err
		}
	}
	if err := a.app.Print(&pb.ListMachinesResponse{Machines: p.machines}, p.text, p.names()...); err != nil {
		return err
	}
	if !a.app.Document() {
		a.app.Note("Next: ingot provision %s --image IMAGE", selectFlag(p.machines))
	}
	return nil
}

// selectFlag selects the machines by their rack where they have one in common.
func selectFlag(machines []*pb.Machine) string {
	rack := machines[0].GetSpec().GetRack()
	if rack == "" || slices.ContainsFunc(machines, func(m *pb.Machine) bool { return m.GetSpec().GetRack() != rack }) {
		return "--select state=NEW"
	}
	if command.Quote(rack) != rack || strings.Contains(rack, ",") { // for the filter, and then for the shell
		rack = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(rack) + `"`
	}
	return "--select " + command.Quote("rack="+rack+",state=NEW")
}

// rackOf reads the file, and the one of interfaces, and lays the flags over it.
func (a commands) rackOf(path string, f *rackFlags) (*rackFile, error) {
	raw, err := a.app.ReadInput(path)
	if err != nil {
		return nil, err
	}
	file, err := readRack(path, raw)
	if err != nil {
		return nil, err
	}
	if len(file.rows) == 0 && len(file.problems) == 0 {
		return nil, command.Invalidf("%s has no machines", path)
	}
	if f.interfaces != "" {
		if raw, err = a.app.ReadInput(f.interfaces); err != nil {
			return nil, err
		}
		if err := file.addInterfaces(f.interfaces, raw); err != nil {
			return nil, err
		}
	}
	for _, row := range file.rows {
		at := cell{line: row.line, col: 1}
		at.text = f.site
		if f.site != "" {
			row.fields["site"] = at
		}
		at.text = f.rack
		if _, there := row.fields["rack"]; !there && f.rack != "" {
			row.fields["rack"] = at
		}
		at.text = f.credentials
		_, bmc := row.fields["bmc_endpoint"]
		if _, there := row.fields["bmc_credentials_ref"]; bmc && !there && f.credentials != "" {
			row.fields["bmc_credentials_ref"] = at
		}
	}
	return file, nil
}

// planRack checks everything: the values, the machines against each other, and against those that there are.
func (a commands) planRack(
	ctx context.Context,
	svc *command.Services,
	file *rackFile,
	f *rackFlags,
) (*rackPlan, error) {
	known, err := knownMachines(ctx, svc)
	if err != nil {
		return nil, err
	}
	p := &rackPlan{file: file}
	for _, row := range file.rows {
		p.take(known, row, file.machine(row), f.site != "")
	}
	if err := p.planCredentials(ctx, svc, f); err != nil {
		return nil, err
	}
	return p, file.err()
}

// known is what there is already.
type known struct {
	machines map[string]*pb.Machine
	// owners are who has a claim.
	owners map[string]string
}

func knownMachines(ctx context.Context, svc *command.Services) (known, error) {
	have, err := command.All[*pb.Machine](ctx, 0, svc.Machines.ListMachines, &pb.ListMachinesRequest{})
	k := known{map[string]*pb.Machine{}, map[string]string{}}
	for _, m := range have {
		k.machines[m.GetMachineId()] = m
		for _, c := range claimsOf(m) {
			k.owners[c.what] = m.GetMachineId()
		}
	}
	return k, err
}

// take plans one machine of a file, and notes what speaks against it: in the file, and in what there is.
func (p *rackPlan) take(k known, row rackRow, m *pb.Machine, siteGiven bool) {
	if p.claims == nil {
		p.claims = map[string]string{}
	}
	place := "line"
	if p.file.numbered {
		place = "machine"
	}
	old := k.machines[m.GetMachineId()]
	for _, c := range claimsOf(overlaid(old, m)) {
		if other := p.claims[c.what]; other != "" {
			p.file.fault(row.at(c.field), c.field, "%s is that of %s as well", c.text, other)
		} else if other := k.owners[c.what]; other != "" && other != m.GetMachineId() {
			p.file.fault(row.at(c.field), c.field, "%s belongs to machine %s", c.text, other)
		}
		p.claims[c.what] = fmt.Sprintf("%s %d", place, row.line)
	}
	if old != nil {
		for _, d := range otherMachine(old, m, siteGiven) {
			p.file.fault(row.at(d.field), d.field, "%s", d.text)
		}
	}
	p.machines, p.old, p.said = append(p.machines, overlaid(old, m)), append(p.old, old), append(p.said, m)
}

// otherMachine decides whether a row means another machine than the one of its name. A serial number that differs is
// proof of it. Another site is, unless something that only one machine has is the same.
func otherMachine(old, m *pb.Machine, siteGiven bool) []problem {
	id, a, b := old.GetMachineId(), old.GetSpec(), m.GetSpec()
	had, has := hwid.Text(a.GetSerial()), hwid.Text(b.GetSerial())
	if had != "" && has != "" && !strings.EqualFold(had, has) {
		return []problem{
			{field: "serial", text: fmt.Sprintf("machine %s (site %s) has serial number %s, and this row (site %s) "+
				"has %s: two machines of one name. Rename one; after a change of the chassis: ingot machine update %s --serial %s",
				id, a.GetSite(), had, cmp.Or(b.GetSite(), a.GetSite()), has, id, has)},
		}
	}
	same := had != "" && has != "" || slices.ContainsFunc(b.GetMacAddresses(), func(mac string) bool {
		return slices.ContainsFunc(a.GetMacAddresses(), func(o string) bool { return hwid.SameMAC(mac, o) })
	})
	from, to := a.GetSite(), b.GetSite()
	if same || siteGiven || from == "" || from == "default" || to == "" || from == to {
		return nil
	}
	return []problem{
		{field: "site", text: fmt.Sprintf("machine %s is in site %s, and this row in site %s, without a serial number "+
			"or MAC address that they share: maybe two machines of one name. Rename one; if it has moved: "+
			"ingot machine update %s --site %s", id, from, to, id, to)},
	}
}

// check asks the server of every machine whether it would take it, before the first is written.
func (p *rackPlan) check(machines []*pb.Machine, ask func(m, old *pb.Machine) error) error {
	for i, m := range machines {
		err := ask(m, p.old[i])
		switch status.Code(err) {
		case codes.OK:
		case codes.InvalidArgument, codes.AlreadyExists, codes.FailedPrecondition, codes.NotFound, codes.PermissionDenied,
			codes.Aborted:
			p.file.fault(cell{line: p.file.rows[i].line, col: 1}, m.GetMachineId(), "%s", status.Convert(err).Message())
		default:
			return err
		}
		if len(p.file.problems) >= mostProblems {
			break
		}
	}
	return p.file.err()
}

// claim is what only one machine can have.
type claim struct{ what, field, text string }

func claimsOf(m *pb.Machine) []claim {
	var out []claim
	if id := m.GetMachineId(); id != "" {
		out = append(out, claim{"id " + id, "machine_id", id})
	}
	for _, text := range m.GetSpec().GetMacAddresses() {
		if mac, err := hwid.MAC(text); err == nil {
			out = append(out, claim{"mac " + mac, "mac_addresses", mac})
		}
	}
	if bmc := m.GetSpec().GetBmcEndpoint(); bmc != "" {
		if at, err := bmcaddr.Parse(bmc); err == nil {
			// Networks of sites may have the same addresses.
			out = append(out, claim{"bmc " + cmp.Or(m.GetSpec().GetSite(), "default") + " " + at.Key(), "bmc_endpoint", bmc})
		}
	}
	if address := m.GetSpec().GetInstallAddress(); address != "" {
		out = append(out, claim{"address " + address, "install_address", address})
	}
	return out
}

// overlaid returns the present machine with the values of the file.
func overlaid(old, m *pb.Machine) *pb.Machine {
	if old == nil {
		return m
	}
	out := proto.CloneOf(old)
	if out.Spec == nil {
		out.Spec = &pb.MachineSpec{}
	}
	spec := out.Spec.ProtoReflect()
	m.GetSpec().ProtoReflect().Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		spec.Set(field, v)
		return true
	})
	if len(m.GetLabels()) > 0 && out.Labels == nil {
		out.Labels = map[string]string{}
	}
	maps.Copy(out.Labels, m.GetLabels())
	return out
}

// planCredentials finds the credentials that machines name and that are not stored, or makes them of the flags.
func (p *rackPlan) planCredentials(ctx context.Context, svc *command.Services, f *rackFlags) error {
	endpoints := map[string][]string{}
	for i, m := range p.machines {
		ref, bmc := m.GetSpec().GetBmcCredentialsRef(), m.GetSpec().GetBmcEndpoint()
		if ref == "" || bmc == "" {
			continue
		}
		host := hostOf(bmc)
		if host == "" {
			p.file.fault(p.file.rows[i].fields["bmc_endpoint"], "bmc_endpoint", "%q is no address", bmc)
		}
		endpoints[ref] = append(endpoints[ref], host)
	}
	stored := map[string]*pb.BMCCredentials{}
	if len(endpoints) > 0 {
		r, err := svc.Admin.ListBMCCredentials(ctx, &pb.ListBMCCredentialsRequest{})
		if err != nil {
			return err
		}
		for _, c := range r.GetCredentials() {
			stored[c.GetCredentialsRef()] = c
		}
	}
	if f.username != "" {
		refs := slices.Sorted(maps.Keys(endpoints))
		if len(refs) != 1 {
			return command.Usagef("--bmc-username stores one set of credentials, and the machines name %d: %s", len(refs),
				strings.Join(refs, ", "))
		}
		allowed := slices.Concat(stored[refs[0]].GetAllowedEndpoints(), endpoints[refs[0]])
		slices.Sort(allowed)
		p.credentials = &pb.SetBMCCredentialsRequest{CredentialsRef: refs[0], Username: f.username,
			AllowedEndpoints: slices.Compact(allowed)}
		return nil
	}
	for i, m := range p.machines {
		ref := m.GetSpec().GetBmcCredentialsRef()
		if _, there := stored[ref]; !there && endpoints[ref] != nil {
			p.file.fault(p.file.rows[i].fields["bmc_credentials_ref"], "bmc_credentials_ref",
				"there are no credentials %q; give --bmc-username, or ingot bmc credentials set", ref)
		}
	}
	return nil
}

// hostOf is the host of a BMC's address; empty where it is none.
func hostOf(endpoint string) string {
	at, err := bmcaddr.Parse(endpoint)
	if err != nil {
		return ""
	}
	return at.Host
}

func (a commands) storeCredentials(ctx context.Context, svc *command.Services, p *rackPlan, f *rackFlags) error {
	if p.credentials == nil {
		return nil
	}
	var err error
	if p.credentials.Password, err = a.app.Password(p.credentials.GetCredentialsRef(), f.pass); err != nil {
		return err
	}
	if p.credentials.GetPassword() == "" {
		return command.Invalidf("the password of %s is empty", p.credentials.GetCredentialsRef())
	}
	_, err = svc.Admin.SetBMCCredentials(ctx, p.credentials)
	return err
}

// writeMachine registers a new machine, or changes one that was not changed meanwhile. With check it only asks whether
// that would be taken.
func writeMachine(ctx context.Context, svc *command.Services, m, old *pb.Machine, check bool) (*pb.Machine, error) {
	switch {
	case old == nil:
		return svc.Machines.RegisterMachine(ctx,
			&pb.RegisterMachineRequest{Machine: m, CreateOnly: true, RequestId: ids.New("req"), ValidateOnly: check})
	case proto.Equal(m, old):
		return m, nil
	}
	return svc.Machines.UpdateMachine(ctx, &pb.UpdateMachineRequest{Machine: m, ExpectedVersion: old.GetVersion(),
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels", "spec"}}, ValidateOnly: check})
}

func (p *rackPlan) names() []string {
	var out []string
	for _, m := range p.machines {
		out = append(out, m.GetMachineId())
	}
	return out
}

// text is the difference: a line for each machine that is new or changes.
func (p *rackPlan) text() string {
	var b strings.Builder
	counts := map[string]int{}
	for i, m := range p.machines {
		what, changes := "new", differences(&pb.Machine{}, m)
		if p.old[i] != nil {
			what, changes = "changed", differences(p.old[i], m)
		}
		if len(changes) == 0 {
			what = "same"
		}
		counts[what]++
		if what != "same" {
			fmt.Fprintf(&b, "%s %s: %s\n", map[string]string{"new": "+", "changed": "~"}[what], m.GetMachineId(),
				strings.Join(changes, ", "))
		}
	}
	if c := p.credentials; c != nil {
		fmt.Fprintf(&b, "+ credentials %s of %s, for %s\n", c.GetCredentialsRef(), view.Clean(c.GetUsername()),
			view.NameList(c.GetAllowedEndpoints()))
	}
	fmt.Fprintf(&b, "%d machines: %d new, %d changed, %d as they were\n", len(p.machines), counts["new"],
		counts["changed"], counts["same"])
	return b.String()
}

// differences are the fields in which two machines differ, as "rack: r41 → r42".
func differences(old, m *pb.Machine) []string {
	var out []string
	add := func(name, was, is string) {
		switch was {
		case is:
		case "":
			out = append(out, name+" "+view.Clean(is))
		default:
			out = append(out, name+" "+view.Clean(was)+" → "+view.Clean(is))
		}
	}
	a, b := old.GetSpec().ProtoReflect(), m.GetSpec().ProtoReflect()
	for i := range specFields().Len() {
		field := specFields().Get(i)
		add(string(field.Name()), fieldText(a, field), fieldText(b, field))
	}
	for _, key := range slices.Sorted(maps.Keys(m.GetLabels())) {
		add("labels."+key, old.GetLabels()[key], m.GetLabels()[key])
	}
	return out
}

func fieldText(m protoreflect.Message, field protoreflect.FieldDescriptor) string {
	if !field.IsList() {
		return m.Get(field).String()
	}
	var all []string
	for i := range m.Get(field).List().Len() {
		all = append(all, m.Get(field).List().Get(i).String())
	}
	return strings.Join(all, " ")
}
