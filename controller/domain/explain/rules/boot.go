package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/kind"
)

// waitInstaller: the machine was sent into the installer, which has not reported.
func (s *scene) waitInstaller(e *explain.Explanation) {
	v := s.bootTrouble()
	v.into(e)
	e.Since = s.sentIn()
	if s.cmd != nil {
		e.Summary = fmt.Sprintf("%s, step %s, waits for the installer: %s %s; %s", s.Op.Type, s.Op.CurrentStage,
			cmp.Or(kind.Of(s.cmd.Kind).Entered, "sent in"), s.Ago(e.Since), v.Text)
	}
}

// sentIn is when the machine was sent into the installer.
func (s *scene) sentIn() time.Time {
	if s.cmd == nil {
		return s.step.StartedAt
	}
	return explain.Latest(s.cmd.FinishedAt, s.cmd.GrantedAt)
}

// bootRule names what keeps an installer from reporting since the machine was sent there.
type bootRule struct {
	when func(*scene, time.Time) bool
	say  func(*scene, time.Time) verdict
}

// The boot rules, the most certain first. bootSite and bootSegments read what holds now: they explain a machine that
// waits, and never an attempt that has ended.
var (
	bootIdentity = []bootRule{
		{func(s *scene, at time.Time) bool { return s.Boot.ContenderAt.After(at) }, (*scene).contested},
		{func(s *scene, _ time.Time) bool { return s.Boot.InstallerAgentID != "" }, (*scene).certified},
		{func(s *scene, at time.Time) bool { return s.Boot.Impostor.At.After(at) }, (*scene).impostor},
		{(*scene).stillOff, (*scene).sayStillOff},
		{func(s *scene, _ time.Time) bool { return len(s.spec.GetMacAddresses()) == 0 }, (*scene).noMAC},
	}
	bootSite = []bootRule{
		{(*scene).siteGone, func(s *scene, _ time.Time) verdict { return s.siteWithoutBMC(s.SiteAgents()) }},
	}
	bootLeases = []bootRule{
		{func(s *scene, at time.Time) bool { return s.Site.LeaseSince(at) != nil }, (*scene).hasAddress},
	}
	bootSegments = []bootRule{
		{func(s *scene, _ time.Time) bool { return s.notServed() != nil }, (*scene).sayNotServed},
		{func(s *scene, _ time.Time) bool { return s.foreign() != nil }, (*scene).sayForeign},
		{func(s *scene, _ time.Time) bool { return s.full() != nil }, (*scene).sayFull},
	}
	bootUnseen = []bootRule{
		{func(s *scene, at time.Time) bool { return s.Site.StrangerSince(at) != nil }, (*scene).sayStranger},
		{func(*scene, time.Time) bool { return true }, (*scene).noDHCP},
	}
)

// bootTrouble explains why a machine that waits for its installer does not get there.
func (s *scene) bootTrouble() verdict {
	v := s.firstOf(bootIdentity, bootSite, bootLeases, bootSegments, bootUnseen)
	if g := s.foreign(); g != nil {
		v.Facts = append(v.Facts, "another DHCP server, "+g.ForeignDHCP+", answers on segment "+g.Name)
	}
	return v
}

// bootFailure explains by stored facts alone why an attempt to get into the installer has failed.
func (s *scene) bootFailure() verdict { return s.firstOf(bootIdentity, bootLeases, bootUnseen) }

// bootNow returns what keeps the machine from its installer at this moment, without a reason if nothing is seen.
func (s *scene) bootNow() verdict { return s.firstOf(bootSite, bootSegments) }

func (s *scene) firstOf(tables ...[]bootRule) verdict {
	at := s.sentIn()
	for _, r := range slices.Concat(tables...) {
		if r.when(s, at) {
			v := r.say(s, at)
			v.Facts = append(v.Facts, s.bootFacts(at)...)
			return v
		}
	}
	return verdict{}
}

func (s *scene) contested(time.Time) verdict {
	return verdict{
		explain.Cause{Reason: "ENROLMENT_CONTESTED", Text: "a second system claims to be this machine's installer, since " +
			s.At(s.Boot.ContenderAt) +
			": it waits until the first is silent, or is refused"},
		explain.OnOperator,
		"one installer",
		[]explain.Action{
			{Command: "ingot site leases " + s.SiteName(),
				Consequence: "shows which addresses the machine's interfaces have; a second machine with the same MAC address " +
					"must be switched off"},
		},
	}
}

// impostor: a system asked to be the installer and was refused. It may be the machine itself, with another mainboard.
func (s *scene) impostor(time.Time) verdict {
	i := s.Boot.Impostor
	return verdict{
		explain.Cause{Reason: i.Reason, Text: i.Message + " (refused at " + s.At(i.At) + ")"},
		explain.OnOperator,
		"a system that proves to be the machine",
		[]explain.Action{
			{Command: "ingot site leases " + s.SiteName(),
				Consequence: "shows which addresses the machine's interfaces have; a second machine with the same MAC address " +
					"must be switched off"},
			{Command: "ingot machine show " + s.ID(),
				Consequence: "shows the identity level and the TPM that the machine is known by"}},
	}
}

func (s *scene) certified(time.Time) verdict {
	id := s.Boot.InstallerAgentID
	text := "the installer was certified as agent " + id + ", and has opened no session with the controller"
	if a := s.Agent(id); a != nil && !a.LastSeen.IsZero() {
		text = "the installer has reported as agent " + id + " and " + s.Seen(a)
	}
	return verdict{explain.Cause{Reason: "INSTALLER_SILENT", Text: text,
		Facts: []string{"the installer reaches the controller through its site's boot server"}}, explain.OnAgent,
		"the installer, agent " + id, []explain.Action{s.Console()}}
}

func (s *scene) stillOff(at time.Time) bool {
	p, seen := s.ObservedPower()
	return p == "off" && s.cmd != nil && kind.Of(s.cmd.Kind).Path == kind.PathBMC && !seen.Before(at)
}

func (s *scene) sayStillOff(time.Time) verdict {
	return verdict{
		explain.Cause{
			Reason: "BMC_NO_EFFECT",
			Text:   s.bmc() + " took the power-on, and says that the machine is off again or still",
			Facts:  nil,
		},
		explain.OnBMC,
		s.bmc(),
		[]explain.Action{{Command: "switch the machine on by hand",
			Consequence: "it boots the installer, which goes on with the step"}},
	}
}

func (s *scene) noMAC(time.Time) verdict {
	return verdict{explain.Cause{Reason: "INSTALLER_SILENT",
		Text: "no MAC address is registered for the machine, so its site cannot tell it from a stranger"}, explain.OnOperator,
		"the machine's MAC addresses",
		[]explain.Action{{Command: "ingot machine update " + s.ID() + " --mac-addresses MAC",
			Consequence: "the site serves the machine at its next request"},
			{Command: "ingot site discovered " + s.SiteName(),
				Consequence: "shows which unknown MAC addresses have asked to boot"}}}
}

func (s *scene) siteGone(time.Time) bool {
	all := s.SiteAgents()
	return len(all) == 0 || !all[0].Live
}

func (s *scene) hasAddress(at time.Time) verdict {
	l := s.Site.LeaseSince(at)
	return verdict{
		explain.Cause{
			Reason: "INSTALLER_SILENT",
			Text: fmt.Sprintf("it got the address %s by DHCP at %s, and the installer has not reported since: it hangs in boot "+
				"files, kernel or drivers",
				l.Address, s.At(l.Given)),
			Facts: []string{
				"a slow link, a missing network driver in the installer, or too little memory look like this",
			},
		},
		explain.OnAgent,
		"the installer",
		[]explain.Action{s.Console()},
	}
}

func (s *scene) notServed() *explain.Segment {
	return s.Site.Segment(func(g *explain.Segment) bool { return g.State != "" && g.State != "up" })
}

func (s *scene) foreign() *explain.Segment {
	return s.Site.Segment(func(g *explain.Segment) bool { return g.ForeignDHCP != "" })
}

func (s *scene) full() *explain.Segment {
	return s.Site.Segment(func(g *explain.Segment) bool { return g.PoolSize > 0 && g.PoolUsed >= g.PoolSize })
}

func (s *scene) sayNotServed(time.Time) verdict {
	g := s.notServed()
	return verdict{
		explain.Cause{
			Reason: "INSTALLER_SILENT",
			Text: "segment " + g.Name + " of site " + s.SiteName() + " is not served: " +
				g.State,
		},
		explain.OnDHCP,
		"segment " + g.Name,
		[]explain.Action{s.SiteGet()},
	}
}

func (s *scene) sayForeign(time.Time) verdict {
	g := s.foreign()
	return verdict{
		explain.Cause{
			Reason: "INSTALLER_SILENT",
			Text: fmt.Sprintf(
				"another DHCP server, %s, answers on segment %s: the machine has probably taken its answer, "+
					"which names no installer",
				g.ForeignDHCP,
				g.Name,
			),
			Facts: nil,
		},
		explain.OnDHCP,
		"segment " + g.Name,
		[]explain.Action{
			{Command: "switch off the DHCP server " + g.ForeignDHCP,
				Consequence: "the machine gets its address and its boot files from the site's agent at its next boot"},
			{Command: "ingot site set -f SITE.yaml   (with mode: proxy)",
				Consequence: "the other server goes on giving addresses, and the site's agent only adds how to boot"}},
	}
}

func (s *scene) sayFull(time.Time) verdict {
	g := s.full()
	return verdict{
		explain.Cause{
			Reason: "INSTALLER_SILENT",
			Text: fmt.Sprintf("segment %s has no free address: %d of %d are in use", g.Name,
				g.PoolUsed, g.PoolSize),
		},
		explain.OnLimit,
		"an address on segment " + g.Name,
		[]explain.Action{{Command: "ingot site set -f SITE.yaml   (with a larger pool)",
			Consequence: "the machine gets an address at its next request"},
			{Command: "ingot site leases " + s.SiteName(), Consequence: "shows who has the addresses"}},
	}
}

func (s *scene) sayStranger(at time.Time) verdict {
	x := s.Site.StrangerSince(at)
	return verdict{
		explain.Cause{
			Reason: "INSTALLER_SILENT",
			Text: fmt.Sprintf(
				"no DHCP request from %s has been seen since, and the unknown MAC address %s asks to boot on segment "+
					"%s: it may be this machine, registered with another address",
				strings.Join(s.spec.GetMacAddresses(), ", "), x.MAC, x.Segment,
			),
		},
		explain.OnDHCP,
		"a request from a registered MAC address",
		[]explain.Action{
			{Command: "ingot machine update " + s.ID() + " --mac-addresses " + x.MAC,
				Consequence: "the site serves that address as this machine; be sure that it is"},
			{Command: "ingot site discovered " + s.SiteName(),
				Consequence: "shows the unknown MAC addresses that have asked to boot"}},
	}
}

func (s *scene) noDHCP(time.Time) verdict {
	macs := strings.Join(s.spec.GetMacAddresses(), ", ")
	v := verdict{explain.Cause{Reason: "INSTALLER_SILENT", Text: "no DHCP request from " + macs +
		" has been seen since: cabling, VLAN or boot order"}, explain.OnDHCP, "a DHCP request from " + macs,
		[]explain.Action{s.Console(),
			{Command: "ingot site leases " + s.SiteName(), Consequence: "shows which addresses have been given on the segment"}}}
	if s.Site.Segment(func(g *explain.Segment) bool { return g.Mode == "proxy" }) != nil {
		v.Text = "the installer has not been loaded; addresses are given by another server there, so whether the machine " +
			"has asked for one cannot be seen: cabling, VLAN, boot order, or that server"
	}
	if s.cmd != nil && kind.Of(s.cmd.Kind).Path == kind.PathKexec {
		v.Text = "no DHCP request from " + macs +
			" has been seen since: the installer's kernel hangs, or has no driver for the network card"
	}
	return v
}

// bootFacts are what bears on a boot from the network whatever the cause is.
func (s *scene) bootFacts(at time.Time) []string {
	var out []string
	if s.cmd != nil {
		out = append(
			out,
			"the machine was "+cmp.Or(kind.Of(s.cmd.Kind).Entered, "sent into the installer")+" at "+s.At(at)+" (command "+
				s.cmd.ID+")",
		)
	}
	if p, at := s.ObservedPower(); p != "" {
		out = append(out, "the BMC says that the power is "+p+", since "+s.At(at))
	}
	if s.Site != nil {
		out = append(out, s.revisions())
		if l := s.Site.LeaseSince(time.Time{}); l != nil {
			out = append(out, l.MAC+" had the address "+l.Address+" last at "+s.At(l.Given))
		}
	}
	return out
}

func (s *scene) revisions() string {
	text := fmt.Sprintf("site %s serves by document %d of %d", s.SiteName(), s.Site.Applied, s.Site.Revision)
	if !s.Site.AppliedAt.IsZero() {
		text += ", since " + s.At(s.Site.AppliedAt)
	}
	return text
}

// parked reports whether a BMC is not asked again before an operator acts.
func parked(message string) bool {
	return strings.Contains(message, "not asked again") || strings.Contains(message, "left alone")
}
