// Package discover has the command that finds the BMCs of a rack and registers their machines.
package discover

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/view"
	"github.com/ingot-metal/ingot/internal/ids"
)

// Commands returns discover.
func Commands(app *command.App) []*cobra.Command {
	a := commands{app}
	return []*cobra.Command{a.discoverCmd()}
}

// commands makes the commands of this package, all for one run of the command line.
type commands struct{ app *command.App }

type flags struct {
	networks                        []string
	credentials, site, rack, prefix string
	port                            int32
	bySerial, dry                   bool
}

func (a commands) discoverCmd() *cobra.Command {
	var f flags
	cmd := &cobra.Command{
		Use:   "discover --bmc NETWORK --credentials NAME --site SITE",
		Short: "Find the BMCs of a network, and register their machines",
		Long: `Have the site's agent look for BMCs at addresses and networks, 1,024 addresses at most, and list
what answers by Redfish or IPMI, with what it says of its machine. That takes five minutes at most.

The password is sent to each BMC at most once, and only where the credentials are for it. A BMC that
has refused it does not get it again, by no later discovery either. When three BMCs in a row have
refused it, it is sent to no other.

With --register the machines without a problem that are not registered are: named by a prefix and a
number, in the order of their addresses, or with --by-serial by their serial numbers. What two BMCs
both say of themselves is a problem.`,
		Example: `  ingot discover --bmc 10.42.1.0/24 --credentials rack42 --site r42
  ingot discover --bmc 10.42.1.0/24 --credentials rack42 --site r42 --rack r42 --register r42- --dry-run
  ingot discover --bmc 10.42.1.7,10.42.1.8 --credentials rack42 --site r42 --register dc1- --by-serial`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.prefix == "" && (f.bySerial || f.rack != "") {
				return command.Usagef("--rack and --by-serial say how machines are registered: give --register")
			}
			return a.discover(cmd.Context(), &f)
		},
	}
	fs := cmd.Flags()
	fs.StringSliceVar(&f.networks, "bmc", nil, "addresses and networks, such as 10.42.1.0/24 (required)")
	fs.StringVar(&f.credentials, "credentials", "", "credentials to log in with (required)")
	fs.StringVar(&f.site, "site", "", "site whose agent looks for them (required)")
	fs.Int32Var(&f.port, "port", 0, "port of the BMCs (default: 443 for Redfish, 623 for IPMI)")
	fs.StringVar(&f.prefix, "register", "", "register the new machines; what their names begin with")
	fs.BoolVar(&f.bySerial, "by-serial", false, "name them by their serial numbers instead of numbers")
	fs.StringVar(&f.rack, "rack", "", "rack of the new machines")
	fs.BoolVar(&f.dry, "dry-run", false, "register nothing, and say what would be")
	for _, name := range []string{"bmc", "credentials", "site"} {
		a.app.Must(cmd.MarkFlagRequired(name))
	}
	a.app.Must(cmd.RegisterFlagCompletionFunc("site", a.app.CompleteSites()))
	a.app.Must(cmd.RegisterFlagCompletionFunc("credentials", a.app.CompleteCredentials()))
	return cmd
}

func (a commands) discover(ctx context.Context, f *flags) error {
	svc := a.app.Services()
	if !a.app.Document() {
		a.app.Note("The agent of site %s looks for BMCs; this takes five minutes at most", f.site)
	}
	found, err := svc.Admin.DiscoverBMCs(ctx, &pb.DiscoverBMCsRequest{
		Site: f.site, Networks: f.networks, CredentialsRef: f.credentials, Port: f.port,
	})
	if err != nil {
		return err
	}
	fresh, err := a.plan(ctx, svc, f, found.GetBmcs())
	if err != nil {
		return err
	}
	if a.app.Document() {
		// The document is one, and names those that are registered too.
		if err := a.register(ctx, svc, f, fresh); err != nil {
			return err
		}
		return a.print(found)
	}
	if err := a.print(found); err != nil {
		return err
	}
	a.noteRest(found)
	if err := a.register(ctx, svc, f, fresh); err != nil {
		return err
	}
	a.noteNext(f, fresh)
	return nil
}

func (a commands) print(found *pb.DiscoverBMCsResponse) error {
	names := make([]string, 0, len(found.GetBmcs()))
	for _, b := range found.GetBmcs() {
		names = append(names, b.GetEndpoint())
	}
	return a.app.Print(
		found,
		func() string { return command.Table(a.app, view.Style.DiscoveredBMCs, found.GetBmcs()...) },
		names...)
}

// noteRest prints the counts and the problem below the table.
func (a commands) noteRest(found *pb.DiscoverBMCsResponse) {
	a.app.Note("%d BMCs at %d addresses", len(found.GetBmcs()), found.GetAddresses())
	if n := found.GetSkipped(); n > 0 {
		a.app.Note("There was no time for %d addresses: ask for smaller networks", n)
	}
	if found.GetProblem() != "" {
		a.app.Note("%s", view.Clean(found.GetProblem()))
	}
}

// newMachine is a machine to register, and the BMC that it is of.
type newMachine struct {
	machine *pb.Machine
	bmc     *pb.DiscoveredBMC
}

// plan names the machines that --register registers; none without it.
func (a commands) plan(
	ctx context.Context, svc *command.Services, f *flags, bmcs []*pb.DiscoveredBMC,
) ([]newMachine, error) {
	if f.prefix == "" {
		return nil, nil
	}
	next, err := nextNumber(ctx, svc, f.prefix)
	if err != nil {
		return nil, err
	}
	var out []newMachine
	for _, b := range bmcs {
		if b.GetProblem() != "" || b.GetMachineId() != "" || b.GetProtocol() == "" {
			continue
		}
		id := fmt.Sprintf("%s%02d", f.prefix, next)
		if f.bySerial {
			if id = f.prefix + plainID(b.GetSerialNumber()); b.GetSerialNumber() == "" {
				b.Problem = "it says no serial number, after which the machine could be named"
				continue
			}
		}
		next++
		out = append(out, newMachine{bmc: b, machine: &pb.Machine{MachineId: id, Spec: &pb.MachineSpec{
			Site: f.site, Rack: f.rack, Serial: b.GetSerialNumber(), MacAddresses: b.GetMacAddresses(),
			BmcEndpoint: b.GetEndpoint(), BmcCredentialsRef: f.credentials,
		}}})
	}
	return out, nil
}

// nextNumber is the one after the highest of the machines that are named so already.
func nextNumber(ctx context.Context, svc *command.Services, prefix string) (int, error) {
	have, err := command.All[*pb.Machine](ctx, 0, svc.Machines.ListMachines, &pb.ListMachinesRequest{})
	next := 1
	for _, m := range have {
		if rest, ok := strings.CutPrefix(m.GetMachineId(), prefix); ok {
			if n, err := strconv.Atoi(rest); err == nil {
				next = max(next, n+1)
			}
		}
	}
	return next, err
}

var notOfID = regexp.MustCompile(`[^a-z0-9]+`)

// plainID is a serial number as part of a machine's id.
func plainID(serial string) string {
	return strings.Trim(notOfID.ReplaceAllString(strings.ToLower(serial), "-"), "-")
}

func (a commands) register(ctx context.Context, svc *command.Services, f *flags, fresh []newMachine) error {
	for i, n := range fresh {
		line := fmt.Sprintf("%s: %s, serial number %s, %d MAC addresses", n.machine.GetMachineId(), n.bmc.GetEndpoint(),
			cmp.Or(view.Clean(n.bmc.GetSerialNumber()), "unknown"), len(n.bmc.GetMacAddresses()))
		if f.dry {
			a.app.Note("Would register %s", line)
			continue
		}
		_, err := svc.Machines.RegisterMachine(ctx,
			&pb.RegisterMachineRequest{Machine: n.machine, CreateOnly: true, RequestId: ids.New("req")})
		if err != nil {
			a.app.Note("%d of %d machines are registered, %s is not. Repeat the command when this is mended: it goes on", i,
				len(fresh), n.machine.GetMachineId())
			return err
		}
		n.bmc.MachineId = n.machine.GetMachineId()
		a.app.Note("Registered %s", line)
	}
	return nil
}

// noteNext prints the next step.
func (a commands) noteNext(f *flags, fresh []newMachine) {
	if f.dry || f.prefix == "" {
		return
	}
	if len(fresh) == 0 {
		a.app.Note("There is nothing to register")
		return
	}
	var without []string
	for _, n := range fresh {
		if len(n.bmc.GetMacAddresses()) == 0 {
			without = append(without, n.machine.GetMachineId())
		}
	}
	if len(without) > 0 {
		a.app.Note("Without a MAC address, and so without boots from the network: %s. Add it: "+
			"ingot machine update MACHINE --mac-addresses", view.NameList(without))
	}
	if f.rack != "" {
		a.app.Note("Next: ingot provision --select rack=%s,state=NEW --image IMAGE", f.rack)
	}
}
