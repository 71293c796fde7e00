package decider_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// installation is a reimage whose failed attempts count for its node, as the store would count them.
type installation struct{ *stored }

func newInstallation(t *testing.T, retries int) installation {
	t.Helper()
	s := newStored(t, operation.Step{Kind: kind.Repave, MaxRetries: retries})
	s.op.Type, s.phase = fleet.Reimage, fleet.Maintenance
	s.world.Install = operation.Install{Counted: true, Max: 3}
	s.look()
	return installation{s}
}

// try lets the write be granted, and fail.
func (i installation) try(reason string, retryable bool) operation.Decision {
	i.t.Helper()
	c := i.latest()
	if c.State != operation.Sent {
		i.t.Fatalf("the latest command is %s", dump(c))
	}
	if d := i.ask(c, "boot-1"); !d.Grant {
		i.t.Fatalf("no grant: %+v", d.Refusal)
	}
	return i.counted(i.do(operation.Resulted{
		CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID, Outcome: operation.OutcomeFailed, Reason: reason,
		Message: "bad disk", Retryable: retryable,
	}))
}

func (i installation) counted(d operation.Decision) operation.Decision {
	if d.AttemptFailed != "" {
		i.world.Install.Failed++
	}
	return d
}

// again waits for the next try.
func (i installation) again() {
	i.t.Helper()
	i.now = i.op.WakeAt
	i.look()
}

// Three attempts, each with the plan's tries, and then it has failed for the reason of the rule, with the cause beside
// it.
func TestThreeAttemptsOfOneReimage(t *testing.T) {
	for retries := range 3 {
		i := newInstallation(t, retries)
		tries := 0
		for !operation.IsTerminal(i.op.Phase) {
			if tries > 0 {
				i.again()
			}
			d := i.try("DISK_WRITE_ERROR", true)
			tries++
			if over := tries%(retries+1) == 0; over != (d.AttemptFailed != "") || over &&
				i.world.Install.Failed != tries/(retries+1) {
				t.Fatalf("%d retries, try %d: counted %q, %d failed", retries, tries, d.AttemptFailed, i.world.Install.Failed)
			}
		}
		i.ended(operation.Failed, "INSTALL_ATTEMPTS_EXHAUSTED")
		e := i.op.Error
		if tries != 3*(retries+1) || e.Details["cause"] != "DISK_WRITE_ERROR" ||
			!strings.Contains(e.Message, "attempt 3 of 3") || !strings.Contains(e.Message, "bad disk") || e.Retryable {
			t.Errorf("%d retries: %d tries, %+v", retries, tries, e)
		}
	}
}

// What an earlier operation has used up is gone.
func TestAttemptsOfAnEarlierOperationCount(t *testing.T) {
	i := newInstallation(t, 0)
	i.world.Install.Failed = 1
	i.try("DISK_WRITE_ERROR", true)
	i.again()
	i.try("DISK_WRITE_ERROR", true)
	i.ended(operation.Failed, "INSTALL_ATTEMPTS_EXHAUSTED")
}

// What no further try can mend ends the operation under its own name, and is an attempt all the same; the third is the
// last.
func TestAFailureForGoodIsAnAttempt(t *testing.T) {
	for failed, code := range []string{"IMAGE_TOO_LARGE", "IMAGE_TOO_LARGE", "INSTALL_ATTEMPTS_EXHAUSTED"} {
		i := newInstallation(t, 2)
		i.world.Install.Failed = failed
		if d := i.try("IMAGE_TOO_LARGE", false); d.AttemptFailed != "IMAGE_TOO_LARGE: bad disk" {
			t.Errorf("counted %q", d.AttemptFailed)
		}
		i.ended(operation.Failed, code)
	}
}

// An attempt counts from the grant of its write on, and once.
func TestOnlyAGrantedWriteIsAnAttempt(t *testing.T) {
	i := newInstallation(t, 0)
	i.now = i.now.Add(time.Hour)
	if d := i.look(); d.AttemptFailed != "" {
		t.Errorf("never granted, and counted: %q", d.AttemptFailed)
	}
	i.ended(operation.Failed, "AGENT_UNAVAILABLE")

	i = newInstallation(t, 0)
	i.try("DISK_WRITE_ERROR", true)
	i.setAgents(host("s-1", false))
	for !operation.IsTerminal(i.op.Phase) {
		i.now = i.op.WakeAt
		i.counted(i.look())
	}
	i.ended(operation.Failed, "AGENT_UNAVAILABLE")
	if i.world.Install.Failed != 1 {
		t.Errorf("one write was granted, %d attempts are counted", i.world.Install.Failed)
	}
}

// A command that may still act is settled first: that is what the operator must know.
func TestAnUnknownOutcomeKeepsItsName(t *testing.T) {
	i := newInstallation(t, 0)
	i.world.Install.Failed = 2
	c := i.latest()
	i.ask(c, "boot-1")
	if d := i.do(operation.Resulted{CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID,
		Outcome: operation.OutcomeUnknown}); d.AttemptFailed == "" {
		t.Error("not counted")
	}
	i.ended(operation.Failed, "OUTCOME_UNKNOWN")
}

// A cancel is nobody's failure.
func TestACancelIsNoAttempt(t *testing.T) {
	i := newInstallation(t, 0)
	i.ask(i.latest(), "boot-1")
	i.do(operation.CancelAsked{Actor: "ann"})
	if d := i.result(i.latest(), operation.OutcomeCanceled, nil); d.AttemptFailed != "" {
		t.Errorf("counted %q", d.AttemptFailed)
	}
	i.ended(operation.Canceled, "CANCELED_BY_REQUEST")
}

// Where nothing is counted, the plan's retries are all there is.
func TestRetriesWhereNothingIsCounted(t *testing.T) {
	i := newInstallation(t, 1)
	i.world.Install.Counted = false
	i.try("DISK_WRITE_ERROR", true)
	i.again()
	if d := i.try("DISK_WRITE_ERROR", true); d.AttemptFailed != "" {
		t.Errorf("counted %q", d.AttemptFailed)
	}
	i.ended(operation.Failed, "DISK_WRITE_ERROR")
}

// A machine that is away is back when it shows another boot than the one before, and not by being there still.
func TestReplacementIsProvenByAnotherBoot(t *testing.T) {
	s := newStored(t, operation.Step{Kind: kind.WorkflowStage, Mode: workflow.AwaitReplacement, Timeout: 24 * time.Hour})
	s.look()
	opened := func(boot string) {
		s.world.TargetBootID, s.world.TargetAgentLive = boot, true
		s.do(operation.SessionOpened{AgentID: hostID, StateID: "s-1", BootID: boot, OfTarget: true})
	}
	opened("boot-1")
	if s.op.Phase != operation.Running || s.op.WaitReason != operation.WaitAgent {
		t.Fatalf("the same boot, and it is %s, waits for %q", s.op.Phase, s.op.WaitReason)
	}
	opened("boot-2")
	s.ended(operation.Succeeded, "")

	s = newStored(t, operation.Step{Kind: kind.WorkflowStage, Mode: workflow.AwaitReplacement, Timeout: 24 * time.Hour})
	s.look()
	s.now = s.now.Add(25 * time.Hour)
	s.look()
	s.ended(operation.Failed, "AGENT_UNAVAILABLE")
}

// Reports of an installer: each restarts the clock, failures count, the third ends it, completion ends it well.
func TestReportsAreAwaited(t *testing.T) {
	begin := func() installation {
		s := newStored(t, operation.Step{Kind: kind.WorkflowStage, Mode: workflow.ReportedInstall, Timeout: time.Hour})
		s.op.Type = fleet.NodeTransition
		s.world.Install = operation.Install{Counted: true, Max: 3}
		s.look()
		return installation{s}
	}
	i := begin()
	for range 5 {
		i.now = i.now.Add(50 * time.Minute)
		i.do(operation.Reported{Status: "progress"})
		i.look()
	}
	i.do(operation.Reported{Status: "complete", Actor: "installer"})
	i.ended(operation.Succeeded, "")
	if i.op.Evidence[decider.EvidenceReportedBy] != "installer" {
		t.Errorf("evidence %v", i.op.Evidence)
	}
	if d := i.do(operation.Reported{Status: "failed"}); d.Refusal == nil || d.Refusal.Reason != "REPORT_REFUSED" {
		t.Errorf("a report after the end: %+v", d.Refusal)
	}

	i = begin()
	for n := 1; n <= 3; n++ {
		if d := i.counted(i.do(operation.Reported{Status: "failed", Error: "no disk"})); d.AttemptFailed != "no disk" {
			t.Errorf("failure %d counts %q", n, d.AttemptFailed)
		}
	}
	i.ended(operation.Failed, "INSTALL_ATTEMPTS_EXHAUSTED")

	i = begin()
	i.now = i.now.Add(time.Hour)
	if d := i.look(); !strings.Contains(d.AttemptFailed, "has not reported") {
		t.Errorf("silence counts %q", d.AttemptFailed)
	}
	i.ended(operation.Failed, "INSTALLER_SILENT")
}

// A machine that is blocked between two steps gets no further command.
func TestNothingIsMadeForABlockedMachine(t *testing.T) {
	for _, flag := range []fleet.ConditionType{fleet.RMA, fleet.RetiredFlag} {
		s := newStored(t, reboot(), reconfig())
		s.world.Machine.Conditions[flag] = true
		s.look()
		s.ended(operation.Failed, "MACHINE_BLOCKED")
		if len(s.commands) != 0 {
			t.Errorf("%s: %d commands", flag, len(s.commands))
		}
	}
}

// Switching a machine off waits for an agent of its site, for a while, and is not even tried on a blocked machine.
func TestSwitchingOffWaitsForTheSite(t *testing.T) {
	begin := func() *stored {
		s := newStored(t, operation.Step{Kind: kind.WorkflowStage, Mode: workflow.PowerOffNode, Timeout: time.Minute})
		s.setAgents()
		return s
	}
	s := begin()
	s.look()
	if s.op.WaitReason != operation.WaitAgent || !s.op.WakeAt.After(s.now) {
		t.Fatalf("it waits for %q until %v", s.op.WaitReason, s.op.WakeAt)
	}
	s.now = s.now.Add(time.Minute)
	s.look()
	s.ended(operation.Failed, "AGENT_UNAVAILABLE")
	s = begin()
	s.world.Machine.Conditions[fleet.RetiredFlag] = true
	s.look()
	s.ended(operation.Failed, "MACHINE_BLOCKED")
}

// TestOldSystemComesBack: the machine was restarted before the installer had written anything, and boots the old
// system from its disk.
func TestOldSystemComesBack(t *testing.T) {
	for name, boot := range map[string]string{"another boot": "boot-old-2",
		"a session that outlived its system": "boot-old"} {
		t.Run(name, func(t *testing.T) {
			m := newMetal(t, "bmc", realHost())
			first := m.toInstaller()
			m.granted(kind.Repave, first)
			m.without(first)
			m.hostComesBack(boot)
			m.now = m.now.Add(time.Second)
			m.look()
			c := m.command(m.firstWrite())
			if boot == "boot-old" {
				if c.State != operation.Granted {
					t.Fatalf("settled by a boot that came before the grant: %s", dump(c))
				}
				return
			}
			if c.State != operation.Done || c.Outcome != operation.OutcomeFailed || c.SettledBy != "old_system_booted" {
				t.Fatalf("the attempt is %s", dump(c))
			}
			m.now = m.op.WakeAt
			m.look()
			m.siteApplies()
			if l := m.latest(); l.Kind != kind.Power || m.op.Phase != operation.Running {
				t.Errorf("nothing follows: %s, %s", m.op.Phase, dump(l))
			}
		})
	}
}

// firstWrite is the id of the first command that an installer was given.
func (m *metal) firstWrite() string {
	for _, c := range m.commands {
		if c.Kind == kind.Repave {
			return c.ID
		}
	}
	m.t.Fatalf("no write")
	return ""
}

func (m *metal) hostComesBack(boot string) {
	for i := range m.world.Candidates {
		if c := &m.world.Candidates[i]; c.AgentID == oldHostID {
			c.Live, c.LastSeen, c.BootID = true, m.now, boot
		}
	}
}
