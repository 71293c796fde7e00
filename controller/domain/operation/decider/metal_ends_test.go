package decider_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// TestAClaimOverTheNewBootIsProofToo: an executor that has claimed success says it again from the system that has come
// up.
func TestAClaimOverTheNewBootIsProofToo(t *testing.T) {
	s := granted(t, reboot())
	s.result(s.latest(), operation.OutcomeSucceeded, nil)
	if s.op.WaitReason != operation.WaitEvidence {
		t.Fatalf("waits for %q", s.op.WaitReason)
	}
	s.do(operation.Resulted{CommandID: s.latest().ID, AgentID: hostID, Outcome: operation.OutcomeSucceeded,
		SessionBootID: "boot-2"})
	s.ended(operation.Succeeded, "")
}

// written is a machine whose disk is written, and that has to leave the installer.
func written(t *testing.T) (*metal, string) {
	t.Helper()
	m := newMetal(t, "auto")
	inst := m.toInstaller()
	m.granted(kind.Repave, inst)
	m.result(operation.OutcomeSucceeded, "", false, wrote())
	return m, inst
}

// TestTheNewSystemCameByItself: somebody has pressed the button, and nothing is left to do.
func TestTheNewSystemCameByItself(t *testing.T) {
	m, _ := written(t)
	n := len(m.commands)
	m.newSystemComes(digest)
	m.ends(operation.Succeeded, "")
	if len(m.commands) != n || m.op.Evidence[evidence.BootIDAfter] != "boot-new" {
		t.Errorf("%d commands more, evidence %v", len(m.commands)-n, m.op.Evidence)
	}
	m, _ = written(t)
	m.newSystemComes("sha256:0dd")
	m.ends(operation.Failed, "EVIDENCE_MISSING")
}

// TestNobodyStartsTheWrittenDisk: the installer is gone and there is no BMC; it says so when the time is up, and not
// before.
func TestNobodyStartsTheWrittenDisk(t *testing.T) {
	m, inst := written(t)
	m.without(inst)
	m.without(siteID)
	m.world.Boot.Applied = m.revision
	m.look()
	if m.op.Phase != operation.Running || m.op.WaitReason != operation.WaitAgent {
		t.Fatalf("%s, waits for %q", m.op.Phase, m.op.WaitReason)
	}
	m.now = m.now.Add(stepTimeout)
	m.look()
	m.ends(operation.Failed, "AGENT_UNAVAILABLE")
	if !m.op.Error.Retryable {
		t.Error("not to be tried again, though an agent may come")
	}
}

// TestAKexecThatSaysNothing: after its patience the machine is switched through its BMC, where nobody has asked for
// kexec alone.
func TestAKexecThatSaysNothing(t *testing.T) {
	for path, switched := range map[string]bool{"auto": true, "kexec": false} {
		m := newMetal(t, path, realHost("kexec"))
		m.look()
		m.siteApplies()
		c := m.granted(kind.Kexec, oldHostID)
		patience := min(operation.InstallerPatience, stepTimeout/3)
		m.now = m.now.Add(patience - time.Second)
		m.look()
		if got := m.command(c.ID); got.State != operation.Granted {
			t.Fatalf("%s: given up too early: %s", path, dump(got))
		}
		m.now = m.now.Add(time.Second)
		m.look()
		if got := m.command(c.ID); (got.State == operation.Done) != switched || switched && got.SettledBy != "power_cycle" {
			t.Errorf("%s: the kexec is %s", path, dump(got))
		}
		if switched {
			m.granted(kind.Power, siteID)
		}
	}
}

// TestOnlyTheOldSystemIsBackAgain: on the way back out of the installer, another agent or the boot of before proves
// nothing.
func TestOnlyTheOldSystemIsBackAgain(t *testing.T) {
	back := func(t *testing.T) (*metal, string) {
		t.Helper()
		m, inst := inPreflight(t)
		m.result(operation.OutcomeFailed, "DISK_RULE_NO_UNIQUE_MATCH", false, nil)
		m.siteApplies()
		m.granted(kind.Reboot, inst)
		m.without(inst)
		return m, inst
	}
	m, _ := back(t)
	m.comesBack("boot-old")
	if m.op.Phase != operation.Running {
		t.Errorf("the boot of before: %s", m.op.Phase)
	}
	m, _ = back(t)
	stranger := realHost()
	stranger.AgentID, stranger.BootID, stranger.LastSeen = "a-stranger", "boot-x", m.now
	m.world.Candidates = append(m.world.Candidates, stranger)
	m.do(operation.SessionOpened{AgentID: "a-stranger", StateID: "s-x", BootID: "boot-x"})
	if m.op.Phase != operation.Running {
		t.Errorf("another agent: %s %+v", m.op.Phase, m.op.Error)
	}
	m, _ = back(t)
	m.comesBack("boot-old-2")
	m.ends(operation.Failed, "DISK_RULE_NO_UNIQUE_MATCH")
}

// TestAPreflightThatCannotKnowMayBeTriedAgain: nothing was changed, whatever came of it.
func TestAPreflightThatCannotKnowMayBeTriedAgain(t *testing.T) {
	m, inst := inPreflight(t)
	for m.op.Steps[1].Evidence[evidence.Refused] == "" {
		m.result(operation.OutcomeUnknown, "", false, nil)
		if m.op.WaitReason == operation.WaitRetry {
			m.now = m.op.WakeAt
			m.look()
		}
	}
	m.siteApplies()
	m.granted(kind.Reboot, inst)
	m.without(inst)
	m.comesBack("boot-old-2")
	if m.op.Error == nil || !m.op.Error.Retryable {
		t.Errorf("ends with %+v", m.op.Error)
	}
}

// TestAnErasureNeedsNoPreflight: an installer that can look first is asked only before it writes an image.
func TestAnErasureNeedsNoPreflight(t *testing.T) {
	m := newMetal(t, "auto")
	m.extra = []string{"preflight"}
	m.op.Steps = []operation.Step{{Name: "erase", Kind: kind.Erase, State: operation.StepWaiting,
		Timeout: stepTimeout}}
	inst := m.toInstaller()
	m.granted(kind.Erase, inst)
}

// TestANetworkBootThatHappenedStays: the machine may boot the same again; one that did not happen is taken back.
func TestANetworkBootThatHappenedStays(t *testing.T) {
	m := newNetboot(t)
	m.installerComes()
	m.ends(operation.Succeeded, "")
	if m.world.Boot.Mode != operation.BootRescue {
		t.Errorf("it would boot %s", m.world.Boot.Mode)
	}
	m = newNetboot(t)
	m.comesBack("boot-old-2")
	m.result(operation.OutcomeSucceeded, "", false, nil)
	m.ends(operation.Failed, "WRONG_SYSTEM_BOOTED")
	if m.world.Boot.Mode != operation.BootDisk {
		t.Errorf("it would boot %s", m.world.Boot.Mode)
	}
}

// TestAStepIsTurnedBackByItsRefusal alone.
func TestAStepIsTurnedBackByItsRefusal(t *testing.T) {
	if operation.TurnedBack(operation.Step{Kind: kind.Repave}) {
		t.Error("turned back without a refusal")
	}
	if !operation.TurnedBack(operation.Step{Kind: kind.Repave,
		Evidence: map[string]string{evidence.Refused: "X"}}) {
		t.Error("not turned back by a refusal")
	}
}

// TestAReplacementIsProvenByASession: an agent that is away proves nothing by the boot that it was last heard from.
func TestAReplacementIsProvenByASession(t *testing.T) {
	s := newStored(t, operation.Step{Kind: kind.WorkflowStage, Mode: "await_replacement", Timeout: 24 * time.Hour})
	s.look()
	away := host("s-1", false)
	away.BootID = "boot-2"
	s.setAgents(away)
	s.look()
	if s.op.Phase != operation.Running {
		t.Fatalf("%s %+v", s.op.Phase, s.op.Error)
	}
	away.Live = true
	s.setAgents(away)
	s.look()
	s.ended(operation.Succeeded, "")
	if s.op.Evidence[evidence.BootIDBefore] != "boot-1" || s.op.Evidence[evidence.BootIDAfter] != "boot-2" {
		t.Errorf("evidence %v", s.op.Evidence)
	}
}

// TestTheInstallerIsThereBeforeItsSender: the claim of the agent that sent the machine into the installer comes late.
func TestTheInstallerIsThereBeforeItsSender(t *testing.T) {
	m := newMetal(t, "kexec", realHost("kexec"))
	m.look()
	m.siteApplies()
	c := m.granted(kind.Kexec, oldHostID)
	m.without(oldHostID)
	m.world.Candidates = append(m.world.Candidates, fleet.Candidate{
		AgentID: "a-installer-1", Role: "installer", StateID: "s-i", BootID: "boot-i", Live: true, LastSeen: m.now,
		OperationID:  m.op.ID,
		Capabilities: []string{"repave", "reboot"},
	})
	m.result(operation.OutcomeSucceeded, "", false, nil)
	if got := m.command(c.ID); got.Outcome != operation.OutcomeSucceeded || got.SettledBy != "installer_session" {
		t.Fatalf("the kexec is %s", dump(got))
	}
	m.granted(kind.Repave, "a-installer-1")
}

// newAgentless brings a system without an agent onto the disk, whose installer waits for the site to serve the disk.
func newAgentless(t tb) (*metal, string) {
	m := newMetal(t, "auto")
	m.op.Steps[1].Agentless, m.extra = true, []string{"agentless"}
	inst := m.toInstaller()
	m.granted(kind.Repave, inst)
	d := m.do(operation.Resulted{CommandID: m.latest().ID, AgentID: inst, StateID: m.latest().ExecutorStateID,
		Outcome: operation.OutcomeSucceeded, Evidence: wrote()})
	if !d.Machine.Agentless || !d.Machine.RevokeHosts {
		t.Fatalf("the machine is not noted to have no agent: %+v", d.Machine)
	}
	return m, inst
}

func (m *metal) phonesHome(instance string) operation.Decision {
	m.t.Helper()
	m.world.Boot.PhonedHome = map[string]string{
		evidence.PhonedHomeAt: "2026-03-01T12:05:00Z", evidence.PhonedHomeFrom: "10.20.0.50", evidence.InstanceID: instance,
	}
	return m.look()
}

// TestASystemWithoutAnAgentIsProvenByItsPhoneHome: by the instance of this installation and nothing else.
func TestASystemWithoutAnAgentIsProvenByItsPhoneHome(t *testing.T) {
	m, inst := newAgentless(t)
	m.siteApplies()
	m.granted(kind.Reboot, inst)
	m.without(inst)
	m.phonesHome("ingot-op-2")
	m.newSystemComes(digest)
	if m.op.Phase != operation.Running {
		t.Fatalf("another instance, or an agent, ended the operation: %s", m.op.Phase)
	}
	d := m.phonesHome("ingot-op-1")
	m.ends(operation.Succeeded, "")
	e := m.op.Evidence
	if e[evidence.BootedBy] != operation.ByPhoneHome || e[evidence.InstanceID] != "ingot-op-1" ||
		e[evidence.PhonedHomeAt] == "" || d.Machine.ProbeAddress != "10.20.0.50" || !m.conditions[fleet.Reachable] {
		t.Errorf("evidence %v, machine %+v", e, d.Machine)
	}
}

// TestAPhoneHomeBeforeTheRestartIsEnough: somebody has pressed the button.
func TestAPhoneHomeBeforeTheRestartIsEnough(t *testing.T) {
	m, _ := newAgentless(t)
	n := len(m.commands)
	m.phonesHome("ingot-op-1")
	m.ends(operation.Succeeded, "")
	if len(m.commands) != n {
		t.Errorf("%d commands more", len(m.commands)-n)
	}
}

// TestAPhoneHomeBeforeTheWriteIsVerifiedProvesNothing: nothing can have the secret for a good reason then.
func TestAPhoneHomeBeforeTheWriteIsVerifiedProvesNothing(t *testing.T) {
	m := newMetal(t, "auto")
	m.op.Steps[1].Agentless, m.extra = true, []string{"agentless"}
	inst := m.toInstaller()
	m.granted(kind.Repave, inst)
	m.phonesHome("ingot-op-1")
	if m.op.Phase != operation.Running || m.op.CurrentStep != 1 {
		t.Fatalf("%s at step %d", m.op.Phase, m.op.CurrentStep)
	}
}

func TestASystemThatDoesNotPhoneHome(t *testing.T) {
	m, inst := newAgentless(t)
	m.siteApplies()
	m.granted(kind.Reboot, inst)
	m.without(inst)
	m.phonesHome("i-of-another-source")
	m.now = m.now.Add(stepTimeout)
	m.look()
	m.ends(operation.Failed, "PHONE_HOME_MISSING")
	for _, want := range []string{"written and verified", "console", "i-of-another-source"} {
		if !strings.Contains(m.op.Error.Message, want) {
			t.Errorf("%q lacks %q", m.op.Error.Message, want)
		}
	}
	if m.fence == "" {
		t.Error("a restart that may still come is not fenced")
	}
	// Through the BMC it was read back, and nothing is left that may act.
	m = newMetal(t, "auto")
	m.op.Steps[1].Agentless, m.extra = true, []string{"agentless"}
	inst = m.toInstaller()
	m.granted(kind.Repave, inst)
	m.result(operation.OutcomeSucceeded, "", false, wrote())
	m.without(inst)
	m.siteApplies()
	m.granted(kind.Power, siteID)
	m.result(operation.OutcomeSucceeded, "", false, map[string]string{evidence.PowerOnSeenAt: "now"})
	m.now = m.now.Add(stepTimeout)
	m.look()
	m.ends(operation.Failed, "PHONE_HOME_MISSING")
	if m.fence != "" {
		t.Error("a power cycle that was read back is fenced")
	}
}

// TestAnOldInstallerDoesNotWriteWithoutAnAgent: it would add one all the same.
func TestAnOldInstallerDoesNotWriteWithoutAnAgent(t *testing.T) {
	m := newMetal(t, "auto")
	m.op.Steps[1].Agentless = true
	m.toInstaller()
	m.ends(operation.Failed, "CAPABILITY_MISSING")
}

// TestASimulatedMachineBootsNoInstaller: what its agent cannot do in place fails before the machine leaves its system,
// in the first step that would set its next boot.
func TestASimulatedMachineBootsNoInstaller(t *testing.T) {
	host := realHost("netboot")
	host.Simulated = true
	m := newMetal(t, "auto", host)
	m.look()
	m.ends(operation.Failed, "CAPABILITY_MISSING")
	m = newMetal(t, "auto", host)
	m.op.Steps = m.op.Steps[1:]
	if f := decider.Foresee(m.snapshot(operation.Evaluate{}), false, t0); f.Refusal == nil ||
		f.Refusal.Reason != "CAPABILITY_MISSING" || !strings.Contains(f.Refusal.Message, "repave") {
		t.Errorf("the preview: %+v", f.Refusal)
	}
}

// TestAnOldInstallerWritesNoMirror: it would write one of the two disks, and say that it is done.
func TestAnOldInstallerWritesNoMirror(t *testing.T) {
	for _, can := range []string{"", "mirror"} {
		m := newMetal(t, "auto")
		m.op.Steps[1].Needs = []string{"mirror", "data_disks"}
		m.extra = []string{can}
		m.toInstaller()
		m.ends(operation.Failed, "CAPABILITY_MISSING")
	}
	m := newMetal(t, "auto")
	m.op.Steps[1].Needs = []string{"mirror", "data_disks"}
	m.extra = []string{"data_disks", "mirror"}
	m.toInstaller()
	if c := m.latest(); c == nil || c.Kind != kind.Repave {
		t.Errorf("a newer installer gets %s", dump(c))
	}
}

// TestARebootWithoutAnAgentIsProvenByPowerAndProbe: power read back off and on, then the system's answer; a part of it
// proves nothing.
func TestARebootWithoutAnAgentIsProvenByPowerAndProbe(t *testing.T) {
	whole := map[string]string{evidence.PowerOffSeenAt: "1", evidence.PowerOnSeenAt: "2", evidence.ProbeAnsweredAt: "3"}
	for missing := range map[string]bool{"": true, evidence.PowerOffSeenAt: true, evidence.PowerOnSeenAt: true,
		evidence.ProbeAnsweredAt: true} {
		m := &metal{stored: newStored(t, operation.Step{Kind: kind.Reboot, MaxRetries: 2, Mode: "graceful"})}
		m.op.Type = fleet.Reboot
		m.world.Provider, m.world.TargetAgentID, m.world.TargetBootID, m.world.TargetAgentLive = "agent", "", "", false
		m.world.Machine.Agentless = true
		m.setAgents(bmcSite(true))
		m.look()
		m.granted(kind.Reboot, siteID)
		seen := maps.Clone(whole)
		delete(seen, missing)
		m.result(operation.OutcomeSucceeded, "", false, seen)
		if missing != "" {
			if m.op.Phase != operation.Running {
				t.Errorf("without %s it is %s", missing, m.op.Phase)
			}
			m.now = m.now.Add(stepTimeout)
			m.look()
			m.ends(operation.Failed, "EVIDENCE_MISSING")
			continue
		}
		m.ends(operation.Succeeded, "")
		if m.op.Evidence[evidence.BootedBy] != operation.ByProbe || !m.conditions[fleet.Reachable] {
			t.Errorf("evidence %v", m.op.Evidence)
		}
	}
}
