package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/session"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/hwid"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/safetext"
)

const (
	// lookFor is how long a site's agent looks for BMCs, and awaitReport how long its report is awaited.
	lookFor     = 4*time.Minute + 30*time.Second
	awaitReport = 5 * time.Minute
	// mostText is more characters than a BMC's word for a thing has, mostProblem than a problem, and mostMACs more
	// addresses than a machine. With them an answer stays below 4 MiB.
	mostText    = 100
	mostProblem = 400
	mostMACs    = 32
)

// DiscoverBMCs implements AdminService.
func (s *Server) DiscoverBMCs(
	ctx context.Context, r *baremetalv1.DiscoverBMCsRequest,
) (*baremetalv1.DiscoverBMCsResponse, error) {
	addresses, err := validate.Discovery(r)
	if err != nil {
		return nil, err
	}
	sess, err := s.siteSession(ctx, r.GetSite())
	if err != nil {
		return nil, err
	}
	id := ids.New("dsc")
	reports, end, ok := sess.BeginDiscovery(id)
	if !ok {
		return nil, failure.Precondition("DISCOVERY_UNDER_WAY", "the agent of site %s is looking for BMCs already",
			r.GetSite())
	}
	defer end()
	order, err := s.discoveryOrder(ctx, id, r, addresses, sess.AgentID)
	if err != nil {
		return nil, err
	}
	sess.Send(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_DiscoverBmcs{DiscoverBmcs: order}})
	out, err := s.awaitDiscovery(ctx, sess, reports, addresses)
	if err != nil {
		sess.Send(&fleetv1.ControllerMessage{Message: &fleetv1.ControllerMessage_DiscoverBmcs{
			DiscoverBmcs: &fleetv1.DiscoverBMCs{DiscoveryId: id, Stop: true},
		}})
		return nil, err
	}
	out.Addresses = int32(len(addresses))
	return out, s.recognize(ctx, r.GetSite(), out.GetBmcs())
}

// siteSession finds a session of the site's agent here, or says where there is one.
func (s *Server) siteSession(ctx context.Context, site string) (*session.Session, error) {
	if s.Config.Sessions != nil {
		if sess := s.Config.Sessions.OfSite(site); sess != nil {
			return sess, nil
		}
	}
	if _, err := s.stores.Sites.GetSite(ctx, site); err != nil {
		return nil, err
	}
	const most = 100
	agents, err := s.stores.Agents.ListAgents(ctx, agentstore.AgentFilter{Site: site, Role: "site", Connected: "true",
		Limit: most})
	if err != nil {
		return nil, err
	}
	for _, a := range agents {
		if a.GetControllerId() == s.Config.Info.ControllerID {
			return nil, failure.Precondition("SITE_AGENT_UNAVAILABLE",
				"the agent of site %s, version %s, cannot look for BMCs; upgrade it", site, a.GetVersion())
		}
	}
	if len(agents) == 0 {
		return nil, failure.Precondition("SITE_AGENT_UNAVAILABLE", "no agent of site %s is connected", site)
	}
	at := agents[0].GetControllerId()
	all, err := s.stores.Sessions.ListControllers(ctx, false, "", most, s.Clock.Now())
	if err != nil {
		return nil, err
	}
	name := ""
	if i := slices.IndexFunc(all, func(c *baremetalv1.Controller) bool { return c.GetControllerId() == at }); i >= 0 {
		name = all[i].GetHostname()
	}
	return nil, failure.Precondition("SITE_AGENT_ELSEWHERE",
		"the agent of site %s has its session with controller %s on %s; ask that one, with --server", site, at,
		cmp.Or(name, "another host")).WithMeta("controller_id", at)
}

// discoveryOrder is what the agent is sent. The audit log has it first.
func (s *Server) discoveryOrder(
	ctx context.Context, id string, r *baremetalv1.DiscoverBMCsRequest, addresses []netip.Addr, agentID string,
) (*fleetv1.DiscoverBMCs, error) {
	c, err := s.stores.Credentials.CredentialsForDiscovery(ctx, credentialstore.Discovery{
		Site: r.GetSite(), AgentID: agentID, Ref: r.GetCredentialsRef(), Actor: service.Actor(ctx),
		Networks: r.GetNetworks(), Addresses: addresses, Port: r.GetPort(),
	}, s.Clock.Now())
	if err != nil {
		return nil, err
	}
	order := &fleetv1.DiscoverBMCs{
		DiscoveryId: id, Networks: r.GetNetworks(), Port: r.GetPort(), CredentialsRef: r.GetCredentialsRef(),
		TimeoutMs: int32(lookFor.Milliseconds()),
	}
	if c.Sealed == nil {
		return order, nil
	}
	plain, err := s.Config.Secrets.OpenBMC(c.Ref, c.Sealed)
	if errors.Is(err, secret.ErrSealed) {
		return nil, failure.NotFound("CREDENTIALS_NOT_FOUND",
			"this controller does not have the key of the BMC credentials %q", c.Ref)
	}
	if err != nil {
		return nil, err
	}
	order.Credentials = &fleetv1.GetBMCCredentialsResponse{
		Username: plain.Username, Password: plain.Password, Version: c.Version, AllowedEndpoints: c.Allowed,
		AllowPlainHttp: c.PlainHTTP, AllowUnverifiedTls: c.UnverifiedTLS,
	}
	return order, nil
}

// awaitDiscovery gathers the agent's reports. Of what it says no more is taken than was asked for.
func (s *Server) awaitDiscovery(
	ctx context.Context, sess *session.Session, reports <-chan *fleetv1.BMCsDiscovered, addresses []netip.Addr,
) (*baremetalv1.DiscoverBMCsResponse, error) {
	asked := map[string]bool{}
	for _, a := range addresses {
		asked[a.String()] = true
	}
	out := &baremetalv1.DiscoverBMCsResponse{}
	late := s.Clock.After(awaitReport)
	for {
		select {
		case report := <-reports:
			for _, found := range report.GetBmcs() {
				a, err := bmcaddr.Parse(found.GetEndpoint())
				if err != nil || !asked[a.Host] {
					continue
				}
				delete(asked, a.Host)
				out.Bmcs = append(out.Bmcs, discovered(found))
			}
			if report.GetDone() {
				out.Skipped, out.Problem = report.GetSkipped(), shown(report.GetProblem(), mostProblem)
				return out, nil
			}
		case <-sess.Context().Done():
			return nil, failure.Precondition("SITE_AGENT_UNAVAILABLE",
				"the session of the site's agent has ended; what BMCs have refused is not sent to them again")
		case <-s.Config.Draining.Done():
			return nil, failure.Unavailable("CONTROLLER_DRAINING", "this controller is shutting down")
		case <-late:
			return nil, failure.Precondition("SITE_AGENT_UNAVAILABLE", "the site's agent has not reported within %v",
				awaitReport)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func discovered(f *fleetv1.FoundBMC) *baremetalv1.DiscoveredBMC {
	return &baremetalv1.DiscoveredBMC{
		Endpoint: shown(
			f.GetEndpoint(),
			mostText,
		),
		Protocol: shown(f.GetProtocol(), mostText),
		Vendor:   shown(f.GetVendor(), mostText),
		Model: shown(
			f.GetModel(),
			mostText,
		),
		SerialNumber: shown(f.GetSerialNumber(), mostText),
		SystemUuid:   shown(f.GetSystemUuid(), mostText),
		MacAddresses: macs(f.GetMacAddresses()),
		Problem:      shown(f.GetProblem(), mostProblem),
	}
}

// shown bounds what an agent says.
func shown(text string, most int) string {
	r := []rune(safetext.Line(text))
	return string(r[:min(len(r), most)])
}

// macs are those of the addresses that are some.
func macs(list []string) (out []string) {
	for _, text := range list[:min(len(list), mostMACs)] {
		if mac, ok := validate.MAC(text); ok {
			out = append(out, mac)
		}
	}
	return out
}

// recognize names the machine that each BMC is of. A BMC that says it is of a machine with another BMC has a problem,
// and one that two machines could have.
func (s *Server) recognize(ctx context.Context, site string, bmcs []*baremetalv1.DiscoveredBMC) error {
	var all []string
	for _, b := range bmcs {
		all = append(all, b.GetMacAddresses()...)
	}
	known, err := s.stores.Machines.KnownHardware(ctx, site, all)
	if err != nil {
		return err
	}
	recognizeAmong(known, bmcs)
	return nil
}

// recognizeAmong is recognize with what is known.
func recognizeAmong(known []machinestore.Hardware, bmcs []*baremetalv1.DiscoveredBMC) {
	sharing := map[string][]int{}
	for i, m := range known {
		for _, sign := range signs(m) {
			sharing[sign] = append(sharing[sign], i)
		}
	}
	for _, b := range bmcs {
		found := machinestore.Hardware{BMCEndpoint: b.GetEndpoint(), MACs: b.GetMacAddresses(), UUID: b.GetSystemUuid(),
			Serials: []string{b.GetSerialNumber()}}
		var candidates []machinestore.Hardware
		for _, i := range sharers(sharing, found) {
			candidates = append(candidates, known[i])
		}
		name(b, found, candidates)
	}
}

// sharers returns the positions of the machines that have one of the signs, sorted.
func sharers(sharing map[string][]int, found machinestore.Hardware) []int {
	var out []int
	for _, sign := range signs(found) {
		out = append(out, sharing[sign]...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// name names the machine of a BMC, or why it is unknown. A UUID or serial number outweighs addresses: a network card
// moves, and a BMC's address is given to another one.
func name(b *baremetalv1.DiscoveredBMC, found machinestore.Hardware, candidates []machinestore.Hardware) {
	var strong, weak, other []machinestore.Hardware
	for _, m := range candidates {
		switch v := judge(m, found); {
		case v.Confirmed:
			strong = append(strong, m)
		case v.Other():
			other = append(other, m)
		default:
			weak = append(weak, m)
		}
	}
	of := strong
	if len(of) == 0 {
		of = weak
	}
	switch {
	case len(of) == 0 && len(other) == 0:
	case len(of) == 0:
		b.Problem = cmp.Or(b.GetProblem(), fmt.Sprintf("it has an address of machine %s, and is another one: %s",
			other[0].MachineID, judge(other[0], found)))
	case len(of) > 1:
		var ids []string
		for _, m := range of[:min(len(of), 5)] {
			ids = append(ids, m.MachineID)
		}
		b.MachineId = of[0].MachineID
		b.Problem = cmp.Or(b.GetProblem(), "it fits the machines "+strings.Join(ids, ", "))
	default:
		b.MachineId = of[0].MachineID
		if at := of[0].BMCEndpoint; at != "" && place(at) != place(b.GetEndpoint()) {
			b.Problem = cmp.Or(b.GetProblem(), fmt.Sprintf("machine %s has the BMC %s", b.GetMachineId(), at))
		}
	}
}

// judge compares a machine with what a BMC tells of its own. A machine has several serial numbers: as registered, and
// as seen.
func judge(m, found machinestore.Hardware) hwid.Verdict {
	shown := hwid.Facts{UUID: hwid.UUID(found.UUID), Serial: hwid.Text(found.Serials[0])}
	is := hwid.Facts{UUID: hwid.UUID(m.UUID)}
	for _, serial := range m.Serials {
		if serial = hwid.Text(serial); is.Serial == "" || strings.EqualFold(serial, shown.Serial) {
			is.Serial = serial
		}
	}
	return hwid.Judge(is, shown)
}

// signs are what two machines cannot both have.
func signs(h machinestore.Hardware) []string {
	var out []string
	add := func(kind, value string) {
		if value != "" {
			out = append(out, kind+" "+strings.ToLower(value))
		}
	}
	add("bmc", place(h.BMCEndpoint))
	add("uuid", hwid.UUID(h.UUID))
	for _, mac := range h.MACs {
		add("mac", mac)
	}
	for _, serial := range h.Serials {
		add("serial", hwid.Text(serial))
	}
	return out
}

// place is where a BMC is, in the same words for both of its protocols and their own ports.
func place(endpoint string) string {
	a, err := bmcaddr.Parse(endpoint)
	if err != nil || a.Port == "" || a.Port == "443" || a.Port == "623" {
		return a.Host
	}
	return a.Host + " " + a.Port
}
