package lab_test

import (
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/harness"
	"github.com/ingot-metal/ingot/lab/metal"
)

// strangerMAC is in no record.
const strangerMAC = "52:54:00:ba:4e:ff"

// bootFault is a fault that keeps a machine from booting the installer. It is really brought about: by its BMC, by its
// card's packets on the segment, by other hosts there.
type bootFault struct {
	harness.Expected
	// spec changes the machine's record; happens runs once the machine has been switched on.
	spec    func(*pb.MachineSpec)
	happens func(*bare)
}

// bootFaults leave the site as it is.
var bootFaults = []bootFault{
	{Expected: harness.Expected{Fault: "nobody asks by DHCP", Reasons: []string{"INSTALLER_SILENT"}, On: "dhcp",
		Says: []string{"no DHCP request", "52:54:00:ba:4e:01"}}},
	{Expected: harness.Expected{Fault: "an address, and then silence", Reasons: []string{"INSTALLER_SILENT"}, On: "agent",
		Says: []string{"10.77.0."}},
		happens: func(b *bare) {
			b.plug(b.mac)
			if b.asks() == "" {
				b.Fatal("no address was given")
			}
		}},
	{Expected: harness.Expected{Fault: "certified, and then silence", Reasons: []string{"INSTALLER_SILENT"}, On: "agent",
		Says: []string{"certified"}},
		happens: func(b *bare) {
			b.plug(b.mac)
			b.asks()
			b.enrols()
		}},
	{Expected: harness.Expected{Fault: "a second key", Reasons: []string{"ENROLMENT_CONTESTED"}, On: "operator",
		Says: []string{"second"}},
		happens: func(b *bare) {
			b.plug(b.mac)
			b.asks()
			b.enrols()
			b.enrols()
		}},
	{Expected: harness.Expected{Fault: "the power goes off again", Reasons: []string{"BMC_NO_EFFECT"}, On: "bmc",
		Says: []string{"off"}},
		happens: func(b *bare) {
			testkit.Eventually(b.T, cycle, func() bool { return b.get(b.id).GetStatus().GetPowerState() == "on" },
				"nobody has seen it on")
			if err := b.chassis.SetPower(b.ctx, bmc.ForceOff); err != nil {
				b.Fatal(err)
			}
		}},
	{Expected: harness.Expected{Fault: "no MAC address is registered", Reasons: []string{"INSTALLER_SILENT"},
		On: "operator", Says: []string{"MAC address"}},
		spec: func(m *pb.MachineSpec) { m.MacAddresses = nil }},
}

// TestWhyOfAMachineThatDoesNotBoot: every way not to come into the installer has its name, while it is going on.
func TestWhyOfAMachineThatDoesNotBoot(t *testing.T) {
	if !asRoot(t) {
		return
	}
	t.Parallel()
	s := newSite(t, nil)
	all := &harness.Answers{}
	began := time.Now()
	for n, f := range bootFaults {
		s.bootFails(all, n+1, f)
	}
	s.bootFails(all, 11, bootFault{
		Expected: harness.Expected{Fault: "another card than the one that is registered",
			Reasons: []string{"INSTALLER_SILENT"}, On: "dhcp", Says: []string{strangerMAC}},
		happens: func(b *bare) {
			b.plug(strangerMAC)
			b.asks()
		},
	})
	s.siteFaults(all)
	all.Table(t)
	t.Logf("in %.1f s", time.Since(began).Seconds())
}

// bootFails sends a machine into the installer, lets happen what keeps it from arriving, and asks.
func (s *site) bootFails(all *harness.Answers, n int, f bootFault) {
	s.Helper()
	b := s.bare(n, f.spec)
	b.sentIn()
	if f.happens != nil {
		f.happens(b)
	}
	s.asked(all, b, f.Expected)
}

func (s *site) asked(all *harness.Answers, b *bare, x harness.Expected) {
	s.Helper()
	all.Ask(s.T, x, func() *pb.ExplainMachineResponse {
		e, err := s.api.Machines.ExplainMachine(s.ctx, &pb.ExplainMachineRequest{MachineId: b.id})
		if err != nil {
			s.Fatal(err)
		}
		return e
	})
}

// siteFaults break the site one after the other, and mend it in between.
func (s *site) siteFaults(all *harness.Answers) {
	s.Helper()
	pool := func(end string) func(*pb.Segment) { return func(g *pb.Segment) { g.PoolEnd = end } }
	s.segments(pool(metal.PoolStart))
	b := s.bare(21, nil)
	b.sentIn()
	b.plug(b.mac)
	if got := b.asks(); got != "" {
		s.Errorf("there is an address left: %s", got)
	}
	s.asked(all, b, harness.Expected{Fault: "the address pool is used up", Reasons: []string{"INSTALLER_SILENT"},
		On: "limit", Says: []string{"no free address"}})
	s.segments(pool(metal.PoolEnd))

	s.segments(func(g *pb.Segment) { g.Interface = "gone0" })
	b = s.bare(22, nil)
	b.sentIn()
	s.asked(all, b, harness.Expected{Fault: "the segment's card is gone", Reasons: []string{"INSTALLER_SILENT"},
		On: "dhcp", Says: []string{"not served", "rack1"}})
	s.segments(func(g *pb.Segment) { g.Interface = "site0" })

	s.anotherServer(all)
}

// anotherServer is the only one that answers a machine, and is noticed when another machine asks.
func (s *site) anotherServer(all *harness.Answers) {
	s.Helper()
	taken, dead, witness := s.bare(23, nil), s.bare(24, nil), s.bare(25, nil)
	taken.sentIn()
	if err := s.lab.KillSite(); err != nil {
		s.Fatal(err)
	}
	dead.reimage(dead.id, "in")
	s.asked(all, dead, harness.Expected{Fault: "the site's agent is dead", Reasons: []string{"SITE_AGENT_SILENT"},
		On: "agent", Says: []string{metal.SiteName}})
	s.foreignServer()
	taken.plug(taken.mac)
	testkit.Eventually(s.T, cycle, func() bool { return taken.asks() != "" }, "the other server gives no address")
	if err := s.lab.StartSite(s.ctx); err != nil {
		s.Fatal(err)
	}
	witness.plug(witness.mac)
	testkit.Eventually(s.T, cycle, func() bool {
		witness.asks()
		site, err := s.api.Admin.GetSite(s.ctx, &pb.GetSiteRequest{Site: metal.SiteName})
		return err == nil && site.GetSegments()[0].GetForeignDhcpServer() != ""
	}, "the other server is not noticed")
	s.asked(all, taken, harness.Expected{Fault: "another DHCP server", Reasons: []string{"INSTALLER_SILENT"}, On: "dhcp",
		Says: []string{foreignAddress}})
}
