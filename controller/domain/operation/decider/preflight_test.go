package decider_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// inPreflight brings a machine with a system of its own into an installer that is asked whether it can write.
func inPreflight(t tb) (*metal, string) {
	m := newMetal(t, "bmc", realHost())
	m.world.Install = operation.Install{Counted: false, Max: 3}
	m.extra = []string{"preflight"}
	inst := m.toInstaller()
	if c := m.latest(); c.Kind != kind.Preflight || c.ExecutorID != inst || c.State != operation.Sent {
		t.Fatalf("the installer is not asked first: %s", dump(c))
	}
	return m, inst
}

// TestTheInstallerLooksFirst: the write is given to it when it has said that it can, without a grant of its own before.
func TestTheInstallerLooksFirst(t *testing.T) {
	m, inst := inPreflight(t)
	if d := m.ask(m.latest(), m.bootOf(inst)); d.Grant || d.Refusal == nil {
		t.Fatal("a preflight is granted")
	}
	m.result(operation.OutcomeSucceeded, "", false, map[string]string{evidence.PreflightDisk: "QM0001"})
	m.granted(kind.Repave, inst)
	m.result(operation.OutcomeSucceeded, "", false, wrote())
	m.siteApplies()
	m.granted(kind.Reboot, inst)
	m.newSystemComes(digest)
	m.ends(operation.Succeeded, "")
}

// TestTheInstallerRefusesAndTheOldSystemIsBootedAgain: nothing is granted that writes, no attempt is counted, no
// certificate revoked; the operation fails with the installer's reason once the old system runs again.
func TestTheInstallerRefusesAndTheOldSystemIsBootedAgain(t *testing.T) {
	m, inst := inPreflight(t)
	m.result(operation.OutcomeFailed, "DISK_RULE_NO_UNIQUE_MATCH", false, nil)
	if m.world.Boot.Mode != operation.BootDisk || m.op.WaitReason != operation.WaitSite {
		t.Fatalf("the machine would boot %s again, and it waits for %s", m.world.Boot.Mode, m.op.WaitReason)
	}
	m.siteApplies()
	m.granted(kind.Reboot, inst)
	m.without(inst)
	m.comesBack("boot-old-2")
	m.ends(operation.Failed, "DISK_RULE_NO_UNIQUE_MATCH")
	if text := m.op.Error.Message; !strings.Contains(text, "nothing was written") ||
		!strings.Contains(text, "runs again") {
		t.Errorf("it says %q", text)
	}
	m.holdsUntouched(t)
}

// holdsUntouched: no write was granted.
func (m *metal) holdsUntouched(t *testing.T) {
	t.Helper()
	for _, c := range m.commands {
		if c.Kind == kind.Repave {
			t.Errorf("there is a write: %s", dump(c))
		}
	}
	if m.fence != "" || m.op.Evidence[evidence.ImageDigest] != "" {
		t.Errorf("fence %q, evidence %v", m.fence, m.op.Evidence)
	}
}

// TestOddEndsOfAPreflight: nobody answers, an answer that is none, one that is another, and a machine without a system.
func TestOddEndsOfAPreflight(t *testing.T) {
	home := func(m *metal, inst string) {
		m.siteApplies()
		m.granted(kind.Reboot, inst)
		m.without(inst)
		m.comesBack("boot-old-2")
	}
	for name, c := range map[string]struct {
		happens func(m *metal, inst string)
		code    string
	}{
		"no answer": {func(m *metal, inst string) {
			m.now = m.latest().Deadline
			m.look()
			home(m, inst)
		}, "STEP_TIMEOUT"},
		"no disk named": {func(m *metal, inst string) {
			m.result(operation.OutcomeSucceeded, "", false, nil)
			home(m, inst)
		}, "EVIDENCE_MISSING"},
		"it cannot know": {func(m *metal, inst string) {
			for range 2 {
				m.result(operation.OutcomeUnknown, "EXECUTOR_PANICKED", false, nil)
				m.now = m.op.WakeAt
				m.look()
			}
			home(m, inst)
		}, "EXECUTOR_PANICKED"},
		"an image that is away for good": {func(m *metal, inst string) {
			for range 2 {
				m.result(operation.OutcomeFailed, "IMAGE_UNAVAILABLE", true, nil)
				m.now = m.op.WakeAt
				m.look()
			}
			home(m, inst)
		}, "IMAGE_UNAVAILABLE"},
		"the installer does not leave": {func(m *metal, inst string) {
			m.result(operation.OutcomeFailed, "IMAGE_TOO_LARGE", false, nil)
			m.siteApplies()
			m.granted(kind.Reboot, inst)
			m.now = m.now.Add(operation.InstallerPatience)
			m.look()
			m.granted(kind.Power, siteID)
			m.result(operation.OutcomeSucceeded, "", false, nil)
			m.without(inst)
			m.comesBack("boot-old-2")
		}, "IMAGE_TOO_LARGE"},
		"the old system never comes": {func(m *metal, inst string) {
			m.result(operation.OutcomeFailed, "IMAGE_TOO_LARGE", false, nil)
			m.siteApplies()
			m.without(inst)
			m.now = m.now.Add(fleet.HandOverAfter)
			m.look()
			m.granted(kind.Power, siteID)
			m.result(operation.OutcomeSucceeded, "", false, nil)
			for !operation.IsTerminal(m.op.Phase) {
				m.now = m.op.WakeAt
				m.look()
			}
		}, "IMAGE_TOO_LARGE"},
	} {
		t.Run(name, func(t *testing.T) {
			m, inst := inPreflight(t)
			c.happens(m, inst)
			m.ends(operation.Failed, c.code)
			m.holdsUntouched(t)
		})
	}
	m := newMetal(t, "auto")
	m.extra = []string{"preflight"}
	m.toInstaller()
	m.result(operation.OutcomeFailed, "DISK_RULE_NO_UNIQUE_MATCH", false, nil)
	m.ends(operation.Failed, "DISK_RULE_NO_UNIQUE_MATCH")
	m.holdsUntouched(t)
}

// TestCancelDuringAPreflight ends at once: nothing acts.
func TestCancelDuringAPreflight(t *testing.T) {
	m, _ := inPreflight(t)
	m.do(operation.CancelAsked{Actor: "test"})
	m.ends(operation.Canceled, "CANCELED_BY_REQUEST")
	m.holdsUntouched(t)
}

// TestWhatCannotBeInstalledStaysInItsSystem: what is known to fail fails before anything is started.
func TestWhatCannotBeInstalledStaysInItsSystem(t *testing.T) {
	for _, first := range []int{0, 1} {
		m := newMetal(t, "auto", realHost("kexec", "netboot"))
		m.op.Steps = m.op.Steps[first:]
		m.world.Unfit = &fleet.Refusal{Reason: "IMAGE_TOO_LARGE", Message: "the disk is too small"}
		m.look()
		m.ends(operation.Failed, "IMAGE_TOO_LARGE")
		if len(m.commands) > 0 || m.world.Boot.Mode != operation.BootDisk {
			t.Errorf("something was started: %s", dump(m.latest()))
		}
	}
}

// TestNoWayIn: what can be known of the ways beforehand.
func TestNoWayIn(t *testing.T) {
	gone := func(c fleet.Candidate) fleet.Candidate { c.Live = false; return c }
	able, unable := realHost("kexec"), realHost()
	for name, c := range map[string]struct {
		way    string
		agents []fleet.Candidate
		change func(*operation.Boot)
		want   string
	}{
		"a BMC":                            {"", []fleet.Candidate{bmcSite(true)}, nil, ""},
		"a BMC whose site agent is away":   {"auto", []fleet.Candidate{bmcSite(false)}, nil, ""},
		"kexec":                            {"", []fleet.Candidate{able}, nil, ""},
		"next boot":                        {"bootnext", []fleet.Candidate{realHost("netboot")}, nil, ""},
		"nothing":                          {"", nil, nil, "NO_BOOT_PATH"},
		"an agent that cannot":             {"", []fleet.Candidate{unable}, nil, "NO_BOOT_PATH"},
		"an agent that is away":            {"", []fleet.Candidate{gone(unable)}, nil, ""},
		"BMC asked for and none":           {"bmc", []fleet.Candidate{able}, nil, "NO_BOOT_PATH"},
		"kexec asked for and none":         {"kexec", []fleet.Candidate{unable, bmcSite(true)}, nil, "NO_BOOT_PATH"},
		"next boot asked for, kexec there": {"bootnext", []fleet.Candidate{able}, nil, "NO_BOOT_PATH"},
		"no installer": {"", []fleet.Candidate{able},
			func(b *operation.Boot) { b.InstallerReady = false }, "INSTALLER_MISSING"},
		"no segment": {"", []fleet.Candidate{able}, func(b *operation.Boot) { b.Segments = 0 }, "NO_BOOT_PATH"},
	} {
		w := operation.World{Provider: "agent", Candidates: slices.Clone(c.agents),
			Boot: operation.Boot{Segments: 1, InstallerReady: true}}
		if c.change != nil {
			c.change(&w.Boot)
		}
		got := ""
		if r := decider.NoBootPath(w, c.way); r != nil {
			got = r.Reason
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestAPreviewAsksOfTheSystemOnlyWhatExistsBeforeTheWork: a health check and a reboot that follow a written system are
// about that system, and are left to the work. Without the write, they are asked.
func TestAPreviewAsksOfTheSystemOnlyWhatExistsBeforeTheWork(t *testing.T) {
	await := operation.Step{Kind: kind.WaitForAgent}
	for name, c := range map[string]struct {
		step     operation.Step
		silent   bool // the machine's agent has no session
		replaced bool // other work writes another system before
		asked    bool
	}{
		"a health check":                    {operation.Step{Kind: kind.WorkflowStage, Mode: workflow.VerifyNode}, true, false, false},
		"a reboot without an agent":         {reboot(), true, false, true},
		"a reboot into the new system":      {reboot(), false, true, false},
		"a wait for the new system's agent": {await, false, true, false},
		"a configuration of the system":     {reconfig(), false, false, false},
		"a configuration of the new system": {reconfig(), false, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStored(t, c.step)
			if c.silent {
				s.world.TargetAgentLive = false
				s.setAgents(host("s-1", false))
				s.world.Candidates[0].LastSeen = t0
			}
			f := decider.Foresee(s.snapshot(operation.Evaluate{}), c.replaced, t0)
			if f.Refusal != nil {
				t.Fatalf("refused: %+v", f.Refusal)
			}
			if asked := len(f.NotAsked) > 0; asked != c.asked {
				t.Errorf("left to the work: %q", f.NotAsked)
			}
		})
	}
}

// TestAPreviewCountsTheAttemptThatTheWorkWouldSpend: a step that fails after the last counted write spends the node's
// last attempt, and the preview is refused with the work's reason.
func TestAPreviewCountsTheAttemptThatTheWorkWouldSpend(t *testing.T) {
	s := newStored(t, operation.Step{Kind: kind.Repave}, operation.Step{Kind: kind.TestHardware})
	s.world.Install = operation.Install{Counted: true, Failed: 2, Max: 3}
	f := decider.Foresee(s.snapshot(operation.Evaluate{}), false, t0)
	if f.Refusal == nil || f.Refusal.Reason != "INSTALL_ATTEMPTS_EXHAUSTED" {
		t.Errorf("refused with %+v", f.Refusal)
	}
}
