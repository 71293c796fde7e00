package health

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/times"
	"github.com/ingot-metal/ingot/cli/view"
	"github.com/ingot-metal/ingot/internal/doctor"
	"github.com/ingot-metal/ingot/internal/filter"
	"github.com/ingot-metal/ingot/internal/label"
)

const (
	// leafSoon is the time left of a listener's certificate below which the controller should have replaced it.
	leafSoon = 7 * 24 * time.Hour
	// caSoon is long enough to give every agent another root.
	caSoon = 90 * 24 * time.Hour
	// tokenSoon is when a token's end is near.
	tokenSoon = 14 * 24 * time.Hour
	// firstLook is when the BMC of a new machine has been asked.
	firstLook = time.Minute
	// mostSkew is how far the clocks of this machine and the controller may differ.
	mostSkew = 10 * time.Second
	// mostNamed bounds the machines that a finding names.
	mostNamed = 10
)

func (a commands) doctorCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check the installation, and say what to do about what is missing",
		Long: `Check the installation over the API: the controllers, their certificates and clocks, sites and their
agents, the installer, BMCs and their credentials, tokens, rights by rack, webhooks. It changes
nothing. It needs scope admin. Exit code 5 when a check fails; warnings are not failures.

ingot-controller doctor checks a controller's machine, ingot-agent doctor that of an agent.`,
		Example: "  ingot doctor\n  ingot doctor -o json | jq '.checks[] | select(.level != \"ok\")'",
		Args:    cobra.NoArgs,
		RunE: a.app.Run(func(cmd *cobra.Command, svc *command.Services, _ []string) error {
			list := (&examination{a: a, svc: svc, version: cmd.Root().Version}).all(cmd.Context())
			out, write := &strings.Builder{}, doctor.Text
			if a.app.Document() {
				write = doctor.JSON
			}
			err := write(out, list)
			if err != nil {
				err = &command.ExitError{Code: command.ExitFailed}
			}
			text := out.String()
			if a.app.Document() {
				if writeErr := command.WriteJSON(a.app, []byte(strings.TrimSuffix(text, "\n"))); writeErr != nil {
					return writeErr
				}
			} else if writeErr := a.app.Write(text); writeErr != nil {
				return writeErr
			}
			return err
		}),
	}
}

// examination is one run of doctor.
type examination struct {
	a       commands
	svc     *command.Services
	version string
	server  *pb.ServerInfo
	found   []doctor.Finding
}

func (x *examination) well(check, what string) {
	x.found = append(x.found, doctor.Well(check, view.Clean(what)))
}

func (x *examination) warn(check, what, remedy string) {
	x.found = append(x.found, doctor.Warning(check, view.Clean(what), view.Clean(remedy)))
}

func (x *examination) fault(check, what, remedy string) {
	x.found = append(x.found, doctor.Fault(check, view.Clean(what), view.Clean(remedy)))
}

// all makes every check. Where the controller does not answer there is no other.
func (x *examination) all(ctx context.Context) []doctor.Finding {
	if !x.checkServer(ctx) {
		return x.found
	}
	for _, c := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"controllers", x.checkControllers}, {"sites", x.checkSites}, {"agents", x.checkAgents},
		{"bmc", x.checkBMCs},
		{"tokens", x.checkTokens}, {"racks", x.checkRacks}, {"webhooks", x.checkWebhooks},
	} {
		before := len(x.found)
		if err := c.do(ctx); err != nil {
			x.notChecked(c.name, err)
		} else if len(x.found) == before {
			x.well(c.name, "nothing to do")
		}
	}
	return x.found
}

// notChecked reports a check that was not made to its end. Where the caller has too few rights, that is no fault of the
// controller.
func (x *examination) notChecked(check string, err error) {
	all := []error{err}
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		all = several.Unwrap()
	}
	remedy := "ingot config use-context, with a token of scope admin for all machines"
	var texts []string
	for _, err := range all {
		texts = append(texts, status.Convert(err).Message())
		if status.Code(err) != codes.PermissionDenied {
			remedy = "journalctl -u ingot-controller"
		}
	}
	x.fault(check, "not checked: "+strings.Join(texts, "; "), remedy)
}

// checkServer reports whether the controller answers an admin.
func (x *examination) checkServer(ctx context.Context) bool {
	var p peer.Peer
	var err error
	if x.server, err = x.svc.Admin.GetServerInfo(ctx, &pb.GetServerInfoRequest{}, grpc.Peer(&p)); err != nil {
		x.fault("controller", status.Convert(err).Message(),
			"ingot config get-contexts; on the controller's machine: ingot-controller doctor")
		return false
	}
	x.well("controller", "version "+x.server.GetVersion()+" answers")
	if x.version != "" && x.version != x.server.GetVersion() {
		x.warn("version", "this program is "+x.version+", the controller "+x.server.GetVersion(),
			"install the same version of both")
	}
	if skew := x.a.app.Now().Sub(x.server.GetServerTime().AsTime()).Abs(); skew > mostSkew {
		x.warn("time", "the controller's clock differs by "+skew.Round(time.Second).String(),
			"a time service on both machines: apt install chrony")
	}
	if since := x.server.GetFrozenSince(); since != nil {
		x.warn("freeze", "the fleet is frozen since "+view.Time(since)+": "+x.server.GetFrozenBecause(),
			"ingot server thaw, once its reason is gone")
	}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
		x.checkChain(info)
	}
	return true
}

// checkChain looks at the certificates that the controller has shown.
func (x *examination) checkChain(info credentials.TLSInfo) {
	for i, c := range info.State.PeerCertificates {
		what, soon, remedy := "the listener's certificate", leafSoon,
			"systemctl restart ingot-controller replaces its own; of tls.cert_file, install the next one"
		if i > 0 {
			what, soon, remedy = "the certificate of "+c.Subject.CommonName, caSoon,
				"ingot ca rotate, before this one ends"
		}
		x.found = append(x.found, doctor.Ends("certificate", view.Clean(what), c.NotAfter, x.a.app.Now(), soon, remedy))
	}
}

func (x *examination) checkControllers(ctx context.Context) error {
	r, err := x.svc.Admin.ListControllers(ctx, &pb.ListControllersRequest{})
	for _, c := range r.GetControllers() {
		if c.GetState() != pb.Controller_SERVING {
			continue
		}
		what := c.GetControllerId() + " on " + c.GetHostname()
		if c.GetVersion() != x.server.GetVersion() {
			x.warn("controllers", what+" has version "+c.GetVersion()+", and the one that answers "+x.server.GetVersion(),
				"finish the upgrade")
		}
	}
	return err
}

// listSites waits a little for agents that have just been told something new.
func (x *examination) listSites(ctx context.Context) ([]*pb.Site, error) {
	for range 3 {
		r, err := x.svc.Admin.ListSites(ctx, &pb.ListSitesRequest{})
		late := func(s *pb.Site) bool { return s.GetAgentId() != "" && s.GetAppliedRevision() < s.GetRevision() }
		if err != nil || !slices.ContainsFunc(r.GetSites(), late) {
			return r.GetSites(), err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-x.a.app.Config.Clock.After(time.Second):
		}
	}
	r, err := x.svc.Admin.ListSites(ctx, &pb.ListSitesRequest{})
	return r.GetSites(), err
}

func (x *examination) checkSites(ctx context.Context) error {
	sites, err := x.listSites(ctx)
	if err != nil {
		return err
	}
	serving := false
	for _, s := range sites {
		if len(s.GetSegments()) == 0 {
			continue
		}
		serving = true
		switch {
		case s.GetAgentId() == "":
			x.fault("sites", s.GetSite()+" has segments and no agent", "ingot token issue --role site --site "+s.GetSite()+
				" --bare, and on its machine ingot-agent setup --token-file -")
		case s.GetAppliedRevision() < s.GetRevision():
			x.warn("sites", fmt.Sprintf("%s serves by revision %d of %d", s.GetSite(), s.GetAppliedRevision(),
				s.GetRevision()), "on its machine: ingot-agent doctor")
		}
	}
	if !serving {
		return nil
	}
	return x.checkInstaller(ctx)
}

func (x *examination) checkInstaller(ctx context.Context) error {
	for _, kind := range []string{"installer-kernel", "installer-uki"} {
		r, err := x.svc.Admin.ListImages(ctx, &pb.ListImagesRequest{Filter: "kind=" + kind, PageSize: 1})
		if err != nil {
			return err
		}
		if len(r.GetImages()) > 0 {
			return nil
		}
	}
	x.fault("installer", "there is none, so that no machine can be installed from the network",
		"on the controller's machine: apt install ingot-installer, then ingot setup again")
	return nil
}

func (x *examination) checkAgents(ctx context.Context) error {
	agents, err := command.Pages(0, func(size int32, token string) ([]*pb.Agent, string, error) {
		r, err := x.svc.Admin.ListAgents(ctx, &pb.ListAgentsRequest{PageSize: size, PageToken: token})
		return r.GetAgents(), r.GetNextPageToken(), err
	})
	if err != nil {
		return err
	}
	var others, away []string
	for _, agent := range agents {
		name := agent.GetAgentId()
		if m := agent.GetMachineId(); m != "" {
			name += " of " + m
		}
		if agent.GetConnected() && agent.GetVersion() != x.server.GetVersion() {
			others = append(others, name)
		}
		if agent.GetConnected() {
			continue
		}
		end := certificateEnd(agent)
		switch {
		case agent.GetRole() == pb.AgentRole_AGENT_ROLE_SITE && !end.IsZero():
			x.fault("agents", "the agent of site "+agent.GetSite()+" is away since "+view.Time(agent.GetLastHeartbeatAt()),
				"on its machine: ingot-agent doctor; systemctl status ingot-agent")
		case endsSoon(agent, x.a.app.Now()):
			x.warn("agents", name+" is away, and its certificate ends on "+times.TimeOf(end),
				"on its machine: ingot-agent doctor")
		case agent.GetRole() == pb.AgentRole_AGENT_ROLE_HOST && end.After(x.a.app.Now()):
			away = append(away, cmp.Or(agent.GetMachineId(), agent.GetAgentId()))
		}
	}
	if len(away) > 0 {
		x.warn("agents", fmt.Sprintf("%d machines' agents are away: %s", len(away), firstOf(away)),
			"ingot agent list --filter connected=false; ingot why "+away[0])
	}
	if len(others) > 0 {
		x.warn("agents", fmt.Sprintf("%d have another version than the controller: %s", len(others), firstOf(others)),
			"upgrade them; older agents go on working meanwhile")
	}
	return nil
}

// firstOf names the first of a list.
func firstOf(names []string) string {
	if len(names) <= mostNamed {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:mostNamed], ", ") + fmt.Sprintf(" and %d more", len(names)-mostNamed)
}

func (x *examination) checkBMCs(ctx context.Context) error {
	return errors.Join(x.checkReachable(ctx), x.checkCredentials(ctx), x.checkCertificates(ctx))
}

func (x *examination) checkReachable(ctx context.Context) error {
	r, err := x.svc.Machines.ListMachines(ctx, &pb.ListMachinesRequest{Filter: "conditions.BMCReachable=false",
		PageSize: mostNamed})
	var names []string
	for _, m := range r.GetMachines() {
		if asked := m.GetCreatedAt().
			AsTime().
			Before(x.a.app.Now().Add(-firstLook)); asked &&
			m.GetSpec().GetBmcEndpoint() != "" {
			names = append(names, m.GetMachineId())
		}
	}
	if len(names) > 0 {
		more := ""
		if r.GetNextPageToken() != "" {
			more = " and more"
		}
		x.warn("bmc", "no answer from those of "+strings.Join(names, ", ")+more, "ingot why "+names[0])
	}
	return err
}

func (x *examination) checkCredentials(ctx context.Context) error {
	r, err := x.svc.Admin.ListBMCCredentials(ctx, &pb.ListBMCCredentialsRequest{})
	for _, c := range r.GetCredentials() {
		ref := c.GetCredentialsRef()
		what, allow := "credentials "+ref+" ", "ingot bmc credentials allow "+ref
		if c.GetAdopted() {
			x.warn("bmc", what+"may go where an upgrade found them in use: "+strings.Join(c.GetAllowedEndpoints(), " "),
				allow+" --allow … with those that are right")
		}
		if c.GetAllowPlainHttp() {
			x.warn("bmc", what+"may be sent without TLS", allow+
				" --allow-plain-http=false, and redfish:// in the machines' bmc_endpoint")
		}
		if c.GetAllowUnverifiedTls() {
			x.warn("bmc", what+"may be sent whatever certificate a BMC shows", allow+" --allow-unverified-tls=false")
		}
		if n := len(c.GetRefusedMachines()); n > 0 {
			x.fault("bmc", fmt.Sprintf("%sare not for the BMCs of %d machines that name them: %s", what, n,
				firstOf(c.GetRefusedMachines())), allow+" --allow …, or correct bmc_endpoint")
		}
	}
	return err
}

func (x *examination) checkCertificates(ctx context.Context) error {
	all, err := command.Pages(0, func(size int32, page string) ([]*pb.BMCCertificate, string, error) {
		r, err := x.svc.Admin.ListBMCCertificates(ctx, &pb.ListBMCCertificatesRequest{Changed: true, PageSize: size,
			PageToken: page})
		return r.GetCertificates(), r.GetNextPageToken(), err
	})
	for _, c := range all {
		remedy := "no machine has this BMC any more"
		if ids := c.GetMachineIds(); len(ids) > 0 {
			remedy = "compare, then ingot bmc trust " + ids[0] + " --sha256 " + c.GetOfferedSha256()
		}
		x.fault("bmc", c.GetEndpoint()+" shows another certificate since "+view.Time(c.GetOfferedAt())+
			" and gets no password", remedy)
	}
	return err
}

func (x *examination) tokens(ctx context.Context) ([]*pb.APIToken, error) {
	return command.Pages(0, func(size int32, page string) ([]*pb.APIToken, string, error) {
		r, err := x.svc.Admin.ListAPITokens(ctx, &pb.ListAPITokensRequest{PageSize: size, PageToken: page})
		return r.GetTokens(), r.GetNextPageToken(), err
	})
}

func (x *examination) checkTokens(ctx context.Context) error {
	all, err := x.tokens(ctx)
	for _, t := range all {
		if t.GetScope() == "report" && t.GetSelection() == "" {
			x.warn("tokens", t.GetName()+" reports about every machine", unbound(t))
		}
		if end := t.GetExpiresAt(); end != nil && t.GetRevokedAt() == nil && end.AsTime().After(x.a.app.Now()) &&
			end.AsTime().Before(x.a.app.Now().Add(tokenSoon)) {
			x.warn("tokens", t.GetName()+" ends on "+view.Time(end),
				"ingot token create "+t.GetName()+" --scope "+t.GetScope())
		}
	}
	return err
}

// checkRacks reports whose rights come from a label. A selection by rack holds machines whose label alone names it;
// before migration 0058 it held none of them.
func (x *examination) checkRacks(ctx context.Context) error {
	tokens, err := x.tokens(ctx)
	if err != nil {
		return err
	}
	roles, err := command.Pages(0, func(size int32, page string) ([]*pb.RoleBinding, string, error) {
		r, err := x.svc.Access.ListRoleBindings(ctx, &pb.ListRoleBindingsRequest{PageSize: size, PageToken: page})
		return r.GetBindings(), r.GetNextPageToken(), err
	})
	if err != nil {
		return err
	}
	holders := map[string][]string{} // by selection
	for _, t := range tokens {
		if t.GetRevokedAt() == nil {
			holders[t.GetSelection()] = append(holders[t.GetSelection()], "token "+t.GetName())
		}
	}
	for _, b := range roles {
		holders[b.GetSelection()] = append(holders[b.GetSelection()], "role "+b.GetBindingId())
	}
	for _, selection := range slices.Sorted(maps.Keys(holders)) {
		if !byRack(selection) {
			continue
		}
		named, err := x.rackByLabel(ctx, selection)
		if err != nil {
			return err
		}
		if len(named) > 0 {
			x.warn("racks", fmt.Sprintf("%s: %q holds %d machines by the label rack alone: %s",
				firstOf(holders[selection]), selection, len(named), firstOf(named)),
				"set spec.rack of those that belong there, and remove the label of others")
		}
	}
	return nil
}

// byRack reports whether a selection asks for machines of named racks.
func byRack(selection string) bool {
	terms, err := filter.Parse(selection)
	return err == nil && slices.ContainsFunc(terms, func(t filter.Term) bool { return t.Key == label.Rack && !t.Not })
}

// rackByLabel returns the machines of a selection whose spec names no rack.
func (x *examination) rackByLabel(ctx context.Context, selection string) (ids []string, err error) {
	all, err := command.Pages(0, func(size int32, page string) ([]*pb.Machine, string, error) {
		r, err := x.svc.Machines.ListMachines(ctx, &pb.ListMachinesRequest{Filter: selection, PageSize: size,
			PageToken: page})
		return r.GetMachines(), r.GetNextPageToken(), err
	})
	for _, m := range all {
		if m.GetSpec().GetRack() == "" {
			ids = append(ids, m.GetMachineId())
		}
	}
	return ids, err
}

// unbound returns how to bind a token that reports to a machine or a site.
func unbound(t *pb.APIToken) string {
	if t.GetTokenId() == "" {
		return "in the token file, end its line with a selection such as site=berlin or machine_id=m-1"
	}
	return "ingot token create NAME --scope report --selection site=SITE, then ingot token revoke " + t.GetTokenId()
}

func (x *examination) checkWebhooks(ctx context.Context) error {
	all, err := command.Pages(0, func(size int32, token string) ([]*pb.Webhook, string, error) {
		r, err := x.svc.Admin.ListWebhooks(ctx, &pb.ListWebhooksRequest{PageSize: size, PageToken: token})
		return r.GetWebhooks(), r.GetNextPageToken(), err
	})
	for _, w := range all {
		switch {
		case w.GetState() != "active" && w.GetStateReason() != "OPERATOR":
			x.fault("webhooks", w.GetWebhookId()+" is "+w.GetState()+": "+w.GetStateReason(),
				"ingot webhook test "+w.GetWebhookId()+"; ingot webhook resume "+w.GetWebhookId())
		case w.GetFailingSince() != nil:
			x.warn("webhooks", w.GetWebhookId()+" takes nothing since "+view.Time(w.GetFailingSince()),
				"ingot webhook test "+w.GetWebhookId())
		}
	}
	return err
}
