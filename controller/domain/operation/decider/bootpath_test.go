package decider_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
)

const (
	oldHostID, newHostID = "a-old-host", "a-new-host"
	digest               = "sha256:5eed"
)

// metal is a real machine with a BMC, on a site that serves it.
type metal struct {
	*stored
	grants uint64
	// installers that have enrolled so far, and what they can do besides.
	installers int
	extra      []string
}

// newMetal makes a reimage of a machine whose agents are these besides the site's.
func newMetal(t tb, path string, agents ...fleet.Candidate) *metal {
	m := &metal{stored: newStored(t,
		operation.Step{Kind: kind.Netboot, MaxRetries: 2},
		operation.Step{Kind: kind.Repave, MaxRetries: 1, Mode: path},
		operation.Step{Kind: kind.Reboot, MaxRetries: 2, Mode: "graceful"},
	)}
	m.op.Type = fleet.Reimage
	m.world.Provider, m.world.TargetAgentID, m.world.TargetBootID, m.world.TargetAgentLive = "agent", "", "", false
	m.world.Boot = operation.Boot{Mode: operation.BootDisk, Segments: 1, InstallerReady: true}
	m.setAgents(append(agents, bmcSite(true))...)
	for _, a := range agents {
		m.world.TargetAgentID, m.world.TargetBootID, m.world.TargetAgentLive = a.AgentID, a.BootID, a.Live
	}
	return m
}

func bmcSite(live bool) fleet.Candidate {
	return fleet.Candidate{AgentID: siteID, Role: "site", StateID: "s-site", Live: live, LastSeen: t0,
		Capabilities: []string{"netboot", "power", "provider:agent", "reboot"}}
}

func realHost(capabilities ...string) fleet.Candidate {
	return fleet.Candidate{AgentID: oldHostID, Role: "host", StateID: "s-old", BootID: "boot-old", Live: true,
		LastSeen:     t0,
		Capabilities: append([]string{"reboot", "reconfig"}, capabilities...)}
}

func (m *metal) look() operation.Decision { m.t.Helper(); return m.do(operation.Evaluate{}) }

// siteApplies says that the site serves by the newest document.
func (m *metal) siteApplies() {
	m.t.Helper()
	m.world.Boot.Applied = m.revision
	m.look()
}

// granted asks for the grant of the latest command as its executor would.
func (m *metal) granted(k kind.Kind, executor string) *operation.Command {
	m.t.Helper()
	c := m.latest()
	if c == nil || c.Kind != k || c.ExecutorID != executor || c.State != operation.Sent {
		m.t.Fatalf("the latest command is %s, want a %s of %s (operation %s, %s, %+v)", dump(c), k, executor, m.op.Phase,
			m.op.WaitReason, m.op.Error)
	}
	m.grants++
	d := m.do(operation.GrantAsked{
		CommandID: c.ID, AgentID: executor, StateID: c.ExecutorStateID, BootID: m.bootOf(executor), Seq: m.grants,
		Digest: c.Digest,
	})
	if !d.Grant {
		m.t.Fatalf("no grant: %+v", d.Refusal)
	}
	return m.latest()
}

func (m *metal) bootOf(agentID string) string {
	for _, c := range m.world.Candidates {
		if c.AgentID == agentID {
			return c.BootID
		}
	}
	return ""
}

func (m *metal) result(outcome operation.Outcome, reason string, retryable bool, seen map[string]string) {
	m.t.Helper()
	c := m.latest()
	m.do(operation.Resulted{CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID, Outcome: outcome,
		Reason: reason, Retryable: retryable, Evidence: seen})
}

// without takes an agent's session away.
func (m *metal) without(agentID string) {
	for i := range m.world.Candidates {
		if m.world.Candidates[i].AgentID == agentID {
			m.world.Candidates[i].Live, m.world.Candidates[i].LastSeen = false, m.now
		}
	}
}

// installerComes opens the session of another installer.
func (m *metal) installerComes() string {
	m.t.Helper()
	m.installers++
	id := "a-installer-" + string(rune('0'+m.installers))
	boot := "boot-" + id
	m.without(oldHostID)
	m.world.Candidates = append(m.world.Candidates, fleet.Candidate{
		AgentID: id, Role: "installer", StateID: "s-" + id, BootID: boot, Live: true, LastSeen: m.now, OperationID: m.op.ID,
		Capabilities: append([]string{"repave", "erase", "reboot"}, m.extra...),
	})
	m.world.Boot.InstallerAgentID, m.world.TargetBootID = id, boot
	m.do(operation.SessionOpened{AgentID: id, StateID: "s-" + id, BootID: boot, Installer: true})
	return id
}

// newSystemComes opens the session of the system that was written.
func (m *metal) newSystemComes(image string) {
	m.t.Helper()
	for _, c := range m.world.Candidates {
		if c.Role == "installer" {
			m.without(c.AgentID)
		}
	}
	m.world.Candidates = append(m.world.Candidates, fleet.Candidate{
		AgentID: newHostID, Role: "host", StateID: "s-new", BootID: "boot-new", Live: true, LastSeen: m.now,
		OperationID: m.op.ID,
		ImageDigest: image, Capabilities: []string{"reboot"},
	})
	m.world.TargetAgentID, m.world.TargetBootID, m.world.TargetAgentLive = newHostID, "boot-new", true
	m.do(operation.SessionOpened{AgentID: newHostID, StateID: "s-new", BootID: "boot-new", OfTarget: true})
}

func (m *metal) ends(phase operation.Phase, code string) {
	m.t.Helper()
	got := ""
	if m.op.Error != nil {
		got = m.op.Error.Code
	}
	if m.op.Phase != phase || got != code {
		m.t.Fatalf("the operation is %s %q (%+v), want %s %q", m.op.Phase, got, m.op.Error, phase, code)
	}
	if m.world.Boot.Mode == operation.BootInstaller {
		m.t.Fatalf("the machine would still boot the installer")
	}
}

func wrote() map[string]string {
	return map[string]string{evidence.ImageDigest: digest, "disk": "QM0001"}
}

// toInstaller brings a machine without a system into the installer through its BMC.
func (m *metal) toInstaller() string {
	m.t.Helper()
	m.look()
	if m.op.WaitReason != operation.WaitSite || m.latest() != nil {
		m.t.Fatalf("nothing may be started before the site serves the installer: %s, %s", m.op.WaitReason, dump(m.latest()))
	}
	m.siteApplies()
	m.granted(kind.Power, siteID)
	m.result(operation.OutcomeSucceeded, "", false, map[string]string{"power_on_seen_at": "now"})
	if m.op.WaitReason != operation.WaitInstaller {
		m.t.Fatalf("it waits for %s", m.op.WaitReason)
	}
	return m.installerComes()
}

func TestReimageOfAnEmptyMachine(t *testing.T) {
	m := newMetal(t, "auto")
	inst := m.toInstaller()
	m.granted(kind.Repave, inst)
	m.result(operation.OutcomeSucceeded, "", false, wrote())
	if m.world.Boot.Mode != operation.BootDisk || m.op.WaitReason != operation.WaitSite {
		t.Fatalf("the reboot must wait until the site serves the disk: %+v, %s", m.world.Boot, m.op.WaitReason)
	}
	m.siteApplies()
	m.granted(kind.Reboot, inst)
	m.newSystemComes(digest)
	m.ends(operation.Succeeded, "")
	if m.op.Evidence[evidence.BootIDAfter] != "boot-new" || m.op.Evidence[evidence.ImageDigest] != digest {
		t.Errorf("evidence %v", m.op.Evidence)
	}
}

// TestTheSystemBeforeIsNoProof: a boot of whatever was on another disk, or an image that is not the one that was
// written, is no success.
func TestTheSystemBeforeIsNoProof(t *testing.T) {
	m := newMetal(t, "auto", realHost("kexec"))
	m.without(oldHostID)
	inst := m.toInstaller()
	m.granted(kind.Repave, inst)
	m.result(operation.OutcomeSucceeded, "", false, wrote())
	m.siteApplies()
	m.granted(kind.Reboot, inst)
	m.without(inst)
	m.world.TargetBootID = "boot-old-2"
	m.do(operation.SessionOpened{AgentID: oldHostID, StateID: "s-old", BootID: "boot-old-2", OfTarget: true})
	if m.op.Phase != operation.Running {
		t.Fatalf("the old system counted: %s", m.op.Phase)
	}
	m.newSystemComes("sha256:0dd")
	m.ends(operation.Failed, "EVIDENCE_MISSING")
}

func TestWaysIntoTheInstaller(t *testing.T) {
	cases := []struct {
		name, path string
		host       fleet.Candidate
		kinds      []kind.Kind // of the commands up to the installer, each of which does nothing until the last
	}{
		{"kexec of a running system", "auto", realHost("kexec"), []kind.Kind{kind.Kexec}},
		{"firmware's next boot first", "auto", realHost("kexec", "netboot"),
			[]kind.Kind{kind.Netboot, kind.Reboot}},
		{"each way after the other", "auto", realHost("kexec", "netboot"),
			[]kind.Kind{kind.Netboot, kind.Reboot, kind.Kexec, kind.Power}},
		{"kexec asked for", "kexec", realHost("kexec", "netboot"), []kind.Kind{kind.Kexec}},
		{"virtual media asked for", "media", realHost("kexec", "netboot"), []kind.Kind{kind.Power}},
		{"BMC asked for", "bmc", realHost("kexec", "netboot"), []kind.Kind{kind.Power}},
		{"next boot asked for", "bootnext", realHost("kexec", "netboot"),
			[]kind.Kind{kind.Netboot, kind.Reboot}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newMetal(t, c.path, c.host)
			m.look()
			m.siteApplies()
			for i, k := range c.kinds {
				executor := oldHostID
				if k == kind.Power {
					executor = siteID
				}
				m.granted(k, executor)
				switch {
				case k == kind.Netboot:
					m.result(operation.OutcomeSucceeded, "", false, map[string]string{evidence.BootNext: "Boot0003"})
				case i < len(c.kinds)-1:
					m.result(operation.OutcomeFailed, "EXECUTION_FAILED", false, nil)
				case k == kind.Power:
					m.result(operation.OutcomeSucceeded, "", false, nil)
				}
			}
			inst := m.installerComes()
			m.granted(kind.Repave, inst)
		})
	}
}

func TestNoWayIntoTheInstaller(t *testing.T) {
	silent := func(m *metal) {
		m.setAgents(slices.DeleteFunc(m.world.Candidates, func(c fleet.Candidate) bool { return c.Role == "site" })...)
	}
	cases := []struct {
		name, path, code string
		prepare          func(m *metal)
	}{
		{"no agent and no BMC", "auto", operation.WaitNobody, silent},
		{"a site agent of another provider", "auto", "NO_BOOT_PATH", func(m *metal) {
			site := bmcSite(true)
			site.Capabilities = []string{"provider:maas"}
			m.setAgents(site)
		}},
		{"no provisioning network", "auto", "NO_BOOT_PATH", func(m *metal) { m.world.Boot.Segments = 0 }},
		{"no installer", "auto", "INSTALLER_MISSING", func(m *metal) { m.world.Boot.InstallerReady = false }},
		{"kexec without a system", "kexec", "AGENT_UNAVAILABLE", nil},
		{"next boot without a system", "bootnext", "NETBOOT_UNSUPPORTED", nil},
		{"a site that never serves", "auto", "SITE_AGENT_SILENT", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			m := newMetal(t, c.path)
			if c.prepare != nil {
				c.prepare(m)
			}
			if c.path == "kexec" {
				old := realHost()
				old.Live = false
				m.setAgents(append(m.world.Candidates, old)...)
			}
			m.look()
			for range 30 {
				if operation.IsTerminal(m.op.Phase) {
					break
				}
				m.now = m.op.WakeAt
				if c.code != "SITE_AGENT_SILENT" {
					m.world.Boot.Applied = m.revision
				}
				m.look()
			}
			m.ends(operation.Failed, c.code)
			if m.latest() != nil {
				t.Errorf("something was started: %s", dump(m.latest()))
			}
		})
	}
}

func TestWrongBMCPassword(t *testing.T) {
	m := newMetal(t, "auto")
	m.look()
	m.siteApplies()
	m.granted(kind.Power, siteID)
	m.result(operation.OutcomeFailed, "BMC_AUTH_FAILED", false, nil)
	m.ends(operation.Failed, "BMC_AUTH_FAILED")
	if len(m.commands) != 1 {
		t.Errorf("%d commands: a wrong password is tried once", len(m.commands))
	}
}

func TestInstallerThatNeverReports(t *testing.T) {
	m := newMetal(t, "auto")
	m.look()
	m.siteApplies()
	for range 2 {
		m.granted(kind.Power, siteID)
		m.result(operation.OutcomeSucceeded, "", false, nil)
		m.now = m.op.WakeAt
		m.look()
		m.now = m.op.WakeAt
		m.look()
	}
	m.ends(operation.Failed, "INSTALLER_SILENT")
}

// TestPowerCutInTheMiddleOfWriting: another installer proves that the first one is gone, and the next attempt
// completes.
func TestPowerCutInTheMiddleOfWriting(t *testing.T) {
	m := newMetal(t, "auto")
	first := m.toInstaller()
	m.granted(kind.Repave, first)
	m.without(first)
	second := m.installerComes()
	if c := m.command("c-2"); c.State != operation.Done || c.Outcome != operation.OutcomeFailed ||
		c.SettledBy != "installer_restarted" {
		t.Fatalf("the first attempt is %s", dump(c))
	}
	m.now = m.op.WakeAt
	m.look()
	m.granted(kind.Repave, second)
	m.result(operation.OutcomeSucceeded, "", false, wrote())
	m.siteApplies()
	m.granted(kind.Reboot, second)
	m.newSystemComes(digest)
	m.ends(operation.Succeeded, "")
}

// TestInstallerFallsSilent: the machine is switched off before anything else is tried.
func TestInstallerFallsSilent(t *testing.T) {
	m := newMetal(t, "auto")
	first := m.toInstaller()
	m.granted(kind.Repave, first)
	m.without(first)
	m.now = m.now.Add(operation.InstallerLost)
	m.look()
	m.siteApplies()
	m.granted(kind.Power, siteID)
	m.result(operation.OutcomeSucceeded, "", false, nil)
	second := m.installerComes()
	m.granted(kind.Repave, second)
	m.without(second)
	m.now = m.op.Steps[1].StartedAt.Add(time.Hour)
	m.look()
	m.ends(operation.Failed, "OUTCOME_UNKNOWN")
	if m.fence == "" {
		t.Error("no retry was left, and the machine is not fenced")
	}
	c := m.command(m.fence)
	elsewhere := operation.Booted{AgentID: "a-installer-9", Role: "installer", BootID: "boot-elsewhere"}
	again := operation.Booted{AgentID: second, Role: "installer", BootID: c.BootIDBefore}
	if !operation.ProofSettles(c, elsewhere) || operation.ProofSettles(c, again) ||
		!operation.PowerOffSettles(c, m.now) || operation.PowerOffSettles(c, c.GrantedAt.Add(-time.Second)) {
		t.Error("another boot, or a power-off seen after the grant, settles it, and nothing else does")
	}
}

func TestContestedEnrolmentStops(t *testing.T) {
	m := newMetal(t, "auto")
	inst := m.toInstaller()
	m.do(operation.Quarantine{Reason: "ENROLMENT_CONTESTED", Message: "two systems"})
	m.ends(operation.Failed, "ENROLMENT_CONTESTED")
	if c := m.latest(); c.ExecutorID != inst || c.State != operation.CommandCanceled {
		t.Errorf("the write is %s", dump(c))
	}
}

// TestRandomMetal: whatever happens in whatever order, the rules of the harness hold, the operation ends, nothing is
// written after a verified write, and no ended operation leaves a machine that boots the installer.
func TestRandomMetal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var agents []fleet.Candidate
		if rapid.Bool().Draw(t, "has a system") {
			agents = append(agents,
				realHost(rapid.SampledFrom([][]string{{}, {"kexec"}, {"netboot"}, {"kexec", "netboot"}}).Draw(t,
					"capabilities")...))
		}
		m := newMetal(t, rapid.SampledFrom([]string{"", "auto", "kexec", "bootnext", "bmc"}).Draw(t, "path"), agents...)
		if rapid.Bool().Draw(t, "looks first") {
			m.extra = []string{"preflight"}
		}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			m.randomEvent(t)
		}
		for i := 0; !operation.IsTerminal(m.op.Phase); i++ {
			if i > 200 {
				t.Fatalf("it does not end: %s, %s, %s", m.op.CurrentStage, m.op.WaitReason, dump(m.latest()))
			}
			m.now = m.op.WakeAt
			m.world.Boot.Applied = m.revision
			m.look()
		}
		if m.world.Boot.Mode == operation.BootInstaller {
			t.Fatalf("it has ended and the machine still boots the installer")
		}
		m.checkWrites(t)
	})
}

func (m *metal) randomEvent(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
	c := m.latest()
	switch rapid.SampledFrom([]string{"look", "applied", "grant", "result", "installer", "lost", "old system",
		"new system", "cancel"}).Draw(t, "event") {
	case "look":
		m.look()
	case "applied":
		m.siteApplies()
	case "grant":
		if c != nil {
			m.grants++
			m.do(operation.GrantAsked{CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID,
				BootID: m.bootOf(c.ExecutorID), Seq: m.grants, Digest: c.Digest})
		}
	case "result":
		if c != nil && (c.State == operation.Granted || c.Kind == kind.Preflight && c.State == operation.Sent) {
			m.randomResult(t)
		}
	case "installer":
		if m.installers < 9 && !operation.IsTerminal(m.op.Phase) {
			m.installerComes()
		}
	case "lost":
		if c != nil {
			m.without(c.ExecutorID)
		}
	case "old system":
		if m.installers > 0 && m.world.TargetAgentID != newHostID {
			m.hostComesBack(rapid.SampledFrom([]string{"boot-old", "boot-old-2"}).Draw(t, "boot"))
		}
	case "new system":
		if m.op.Evidence[evidence.ImageDigest] != "" && m.world.TargetAgentID != newHostID {
			m.newSystemComes(rapid.SampledFrom([]string{digest, digest, digest, ""}).Draw(t, "image"))
		}
	case "cancel":
		if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
			m.do(operation.CancelAsked{Actor: "test"})
		}
	}
}

func (m *metal) randomResult(t *rapid.T) {
	outcome := rapid.SampledFrom([]operation.Outcome{operation.OutcomeSucceeded, operation.OutcomeSucceeded,
		operation.OutcomeFailed, operation.OutcomeUnknown}).Draw(t, "outcome")
	seen := map[string]string{}
	if outcome == operation.OutcomeSucceeded {
		seen = wrote()
		if m.latest().Kind != kind.Repave {
			seen = map[string]string{evidence.BootNext: "Boot0003", evidence.PreflightDisk: "QM0001"}
		}
	}
	m.result(outcome, "", rapid.Bool().Draw(t, "retryable"), seen)
}

// checkWrites: a write that was verified is the last one, and none is granted where the installer refuses it.
func (m *metal) checkWrites(t *rapid.T) {
	verified, refused := false, m.op.Steps[1].Evidence[evidence.Refused] != ""
	for _, c := range m.commands {
		if refused && c.Kind == kind.Repave && !c.GrantedAt.IsZero() {
			t.Fatalf("the step was refused, and %s was granted", c.ID)
		}
		if c.Kind != kind.Repave {
			continue
		}
		if verified {
			t.Fatalf("%s follows a verified write", c.ID)
		}
		verified = c.Outcome == operation.OutcomeSucceeded
		if !strings.HasPrefix(c.ExecutorID, "a-installer") {
			t.Fatalf("%s was given to %s", c.ID, c.ExecutorID)
		}
	}
}
