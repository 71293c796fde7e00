package decider_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
	"github.com/ingot-metal/ingot/internal/evidence"
)

func TestRebootSucceedsOnAnotherBootOnly(t *testing.T) {
	s := granted(t, reboot())
	c := s.latest()
	d := s.do(operation.Resulted{CommandID: c.ID, AgentID: hostID, Outcome: operation.OutcomeSucceeded,
		SessionBootID: "boot-1"})
	if !d.Ack || s.op.Phase != operation.Running || s.op.WaitReason != operation.WaitEvidence {
		t.Fatalf("a claim without proof: %s, waits for %q, ack %t", s.op.Phase, s.op.WaitReason, d.Ack)
	}
	s.world.TargetBootID = "boot-2"
	s.do(operation.SessionOpened{AgentID: hostID, StateID: "s-1", BootID: "boot-2", OfTarget: true})
	s.ended(operation.Succeeded, "")
	if s.op.Evidence[evidence.BootIDBefore] != "boot-1" || s.op.Evidence[evidence.BootIDAfter] != "boot-2" {
		t.Errorf("evidence %v", s.op.Evidence)
	}
}

func TestResultOverTheNewBootIsProof(t *testing.T) {
	s := granted(t, reboot())
	s.do(operation.Resulted{CommandID: s.latest().ID, AgentID: hostID, Outcome: operation.OutcomeSucceeded,
		SessionBootID: "boot-2"})
	s.ended(operation.Succeeded, "")
}

func TestClaimThatNothingConfirms(t *testing.T) {
	s := granted(t, reboot())
	c := s.latest()
	s.result(c, operation.OutcomeSucceeded, nil)
	s.now = s.latest().Deadline
	s.look()
	s.ended(operation.Failed, "EVIDENCE_MISSING")
	if s.fence != c.ID {
		t.Fatalf("fence %q", s.fence)
	}
	s.result(c, operation.OutcomeSucceeded, nil)
	if s.fence != c.ID {
		t.Fatal("the same claim once more lifted the fence")
	}
	if operation.ProofSettles(s.latest(), booted("boot-1")) || operation.ProofSettles(s.latest(), booted("")) {
		t.Error("settled by the boot of before")
	}
	if !operation.ProofSettles(s.latest(), booted("boot-2")) {
		t.Error("not settled by a late new boot")
	}
	if done := operation.Settle(s.latest(), "new_boot"); done.State != operation.Done || done.SettledBy != "new_boot" ||
		s.latest().State != operation.Unknown {
		t.Errorf("settled as %+v", done)
	}
}

// A reboot that was claimed may still be on its way: what is said afterwards must not start another one.
func TestFirstResultCounts(t *testing.T) {
	s := granted(t, reboot())
	s.result(s.latest(), operation.OutcomeSucceeded, nil)
	for _, o := range []operation.Outcome{operation.OutcomeFailed, operation.OutcomeUnknown, operation.OutcomeCanceled} {
		s.do(operation.Resulted{CommandID: "c-1", AgentID: hostID, Outcome: o, Retryable: true})
		if len(s.commands) != 1 || s.op.Phase != operation.Running || s.op.WaitReason != operation.WaitEvidence {
			t.Fatalf("%s after a claim: %s, waits for %q", o, s.op.Phase, s.op.WaitReason)
		}
	}
}

func TestResultBeatsCancel(t *testing.T) {
	s := granted(t, reconfig())
	s.result(s.latest(), operation.OutcomeSucceeded, map[string]string{evidence.ConfigDigest: "sha256:1"})
	d := s.do(operation.CancelAsked{Actor: "x"})
	s.ended(operation.Succeeded, "")
	if d.Refusal == nil || d.Refusal.Reason != "OPERATION_FINISHED" {
		t.Errorf("refusal %+v", d.Refusal)
	}
}

func TestCancelThenResult(t *testing.T) {
	for outcome, want := range map[operation.Outcome]operation.Phase{
		operation.OutcomeSucceeded: operation.Succeeded, // it was done: that is the truth
		operation.OutcomeCanceled:  operation.Canceled,
		operation.OutcomeFailed:    operation.Canceled,
	} {
		s := granted(t, reconfig())
		if s.op.Phase != operation.Running {
			t.Fatalf("the phase is %s before the cancel", s.op.Phase)
		}
		d := s.do(operation.CancelAsked{Actor: "x"})
		if d.CancelOnAgent != s.latest().ID || s.op.WaitReason != operation.WaitCancelling ||
			s.op.Phase != operation.Running {
			t.Fatalf("told to cancel %q, waits for %q, %s", d.CancelOnAgent, s.op.WaitReason, s.op.Phase)
		}
		s.result(s.latest(), outcome, map[string]string{evidence.ConfigDigest: "sha256:1"})
		if s.op.Phase != want || s.op.FinishedAt.IsZero() {
			t.Errorf("%s after a cancel: %s at %v, want %s", outcome, s.op.Phase, s.op.FinishedAt, want)
		}
	}
}

func TestCancelBetweenSteps(t *testing.T) {
	s := granted(t, reconfig(), reboot())
	s.do(operation.CancelAsked{Actor: "x"})
	s.result(s.latest(), operation.OutcomeSucceeded, map[string]string{evidence.ConfigDigest: "sha256:1"})
	s.ended(operation.Canceled, "CANCELED_BY_REQUEST")
	if len(s.commands) != 1 {
		t.Errorf("%d commands", len(s.commands))
	}
}

// TestACancelThatComesTooLateSaysSo: a reboot that was allowed cannot be taken back, and nothing follows that could be
// left out.
func TestACancelThatComesTooLateSaysSo(t *testing.T) {
	s := granted(t, reboot())
	if d := s.do(operation.CancelAsked{Actor: "x"}); d.Refusal == nil || d.Refusal.Reason != "CANCEL_TOO_LATE" ||
		d.CancelOnAgent != "" || d.Changed {
		t.Errorf("the cancel of a granted reboot is answered with %+v", d.Refusal)
	}
	if s.op.WaitReason == operation.WaitCancelling || !s.op.CancelRequested.IsZero() {
		t.Errorf("the reboot is being cancelled: %+v", s.op)
	}
	s = granted(t, reboot(), reconfig())
	if d := s.do(operation.CancelAsked{Actor: "x"}); d.Refusal != nil || s.op.CancelRequested.IsZero() {
		t.Errorf("steps follow, and the cancel is answered with %+v", d.Refusal)
	}
}

// TestAMachineThatNobodyReachesSaysSoAtOnce and fails early, with nothing started; an agent that comes in time takes
// the step.
func TestAMachineThatNobodyReachesSaysSoAtOnce(t *testing.T) {
	s := newStored(t, reboot())
	s.setAgents()
	s.look()
	if s.op.WaitReason != operation.WaitNobody || s.op.WakeAt.Sub(s.now) > operation.NobodyGrace {
		t.Errorf("it waits for %s until %v", s.op.WaitReason, s.op.WakeAt)
	}
	s.now = s.now.Add(operation.NobodyGrace)
	s.look()
	s.ended(operation.Failed, "NOBODY_REACHES_MACHINE")
	if len(s.commands) != 0 {
		t.Errorf("%d commands", len(s.commands))
	}
	s = newStored(t, reboot())
	s.setAgents()
	s.look()
	s.now = s.now.Add(operation.NobodyGrace - time.Second)
	s.setAgents(host("s-1", true))
	s.look()
	if len(s.commands) != 1 {
		t.Errorf("%d commands after the agent came", len(s.commands))
	}
	s = newStored(t, reboot())
	s.setAgents(host("s-1", false))
	s.look()
	if s.op.WaitReason != operation.WaitAgent {
		t.Errorf("an agent that is away is waited for as %s", s.op.WaitReason)
	}
}

func TestCancelThatNobodyAnswers(t *testing.T) {
	s := granted(t, reconfig())
	s.do(operation.CancelAsked{Actor: "x"})
	s.now = s.now.Add(operation.CancelPatience)
	if s.op.WakeAt.After(s.now) {
		t.Errorf("wakes at %v only", s.op.WakeAt)
	}
	s.look()
	s.ended(operation.Failed, "OUTCOME_UNKNOWN")
}

func TestCancelWithoutGrantIsAtOnce(t *testing.T) {
	s := started(t, reboot())
	c := s.latest()
	s.do(operation.CancelAsked{Actor: "x"})
	s.ended(operation.Canceled, "CANCELED_BY_REQUEST")
	if d := s.ask(c, "boot-1"); d.Grant {
		t.Error("granted after the cancel")
	}

	s = newStored(t, reboot())
	s.do(operation.CancelAsked{Actor: "x"})
	s.ended(operation.Canceled, "CANCELED_BY_REQUEST")
}

func TestDeadlineWithoutResult(t *testing.T) {
	s := granted(t, reboot())
	c := s.latest()
	s.now = c.Deadline.Add(-time.Nanosecond)
	s.look()
	if s.op.Phase != operation.Running {
		t.Fatal("ended before its deadline")
	}
	s.now = c.Deadline
	s.look()
	s.ended(operation.Failed, "OUTCOME_UNKNOWN")
	if s.fence != c.ID || s.conditions[fleet.NeedsIntervention] != true {
		t.Fatalf("fence %q, conditions %v", s.fence, s.conditions)
	}
	finished := s.op
	if d := s.result(c, operation.OutcomeUnknown, nil); !d.Ack || s.fence != c.ID {
		t.Errorf("a late \"I don't know\" changed the fence to %q, ack %t", s.fence, d.Ack)
	}
	s.result(c, operation.OutcomeFailed, nil)
	if s.fence != "" || s.latest().SettledBy != "late_result" || s.op.Version != finished.Version {
		t.Errorf("fence %q, settled by %q", s.fence, s.latest().SettledBy)
	}
}

func TestDeadlineWithoutGrantLeavesNoFence(t *testing.T) {
	s := started(t, reboot())
	s.now = s.latest().Deadline
	s.look()
	s.ended(operation.Failed, "AGENT_UNAVAILABLE")
	if s.latest().State != operation.Expired || s.fence != "" || !s.op.Error.Retryable {
		t.Errorf("command %s, fence %q", s.latest().State, s.fence)
	}
}

// A deadline that passes while the controllers are away ends nothing before agents have had the time to come back, and
// nobody else takes the step meanwhile.
func TestNoDeadlineEndsWhileAgentsComeBack(t *testing.T) {
	for name, begin := range map[string]func(*testing.T, ...operation.Step) *stored{"sent": started, "granted": granted} {
		s := begin(t, reboot())
		caughtUp := s.latest().Deadline.Add(10*time.Minute + 40*time.Second)
		s.now = caughtUp.Add(-40 * time.Second)
		s.world.CaughtUpAt = caughtUp
		gone := host("s-1", false)
		gone.NotHeardUntil = caughtUp
		s.setAgents(gone, site("s-2"))
		for s.now.Before(caughtUp) {
			s.look()
			if s.op.Phase != operation.Running || len(s.commands) != 1 || !s.op.WakeAt.After(s.now) {
				t.Fatalf("%s: %v before they are back: %s with %d commands, wakes at %v", name, caughtUp.Sub(s.now),
					s.op.Phase, len(s.commands), s.op.WakeAt)
			}
			s.now = s.op.WakeAt
		}
		s.look()
		if s.op.Phase != operation.Failed {
			t.Errorf("%s: %s after that", name, s.op.Phase)
		}
	}
}

// A command whose time ran out while the controllers were away is replaced by one with time of its own. The agent would
// refuse the old one.
func TestACommandThatOutlivedItsControllersIsReplaced(t *testing.T) {
	for name, comes := range map[string]func(*stored, *operation.Command){
		"asks": func(s *stored, c *operation.Command) {
			if d := s.ask(c, "boot-1"); d.Grant || d.Refusal == nil || d.Refusal.Reason != "COMMAND_EXPIRED" {
				t.Errorf("grant %t, refusal %v", d.Grant, d.Refusal)
			}
		},
		"refuses": func(s *stored, c *operation.Command) {
			s.do(operation.Resulted{CommandID: c.ID, AgentID: hostID, Outcome: operation.OutcomeRefused,
				Reason: "COMMAND_EXPIRED", Message: "expired"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := started(t, reboot())
			old := s.latest()
			s.now = old.Deadline.Add(time.Minute)
			s.world.CaughtUpAt = s.now.Add(20 * time.Second)
			comes(s, old)
			if c := s.latest(); c.ID == old.ID || c.State != operation.Sent || !c.Deadline.Equal(s.now.Add(stepTimeout)) {
				t.Fatalf("command %s of %s, %s until %v", c.ID, old.ID, c.State, c.Deadline)
			}
			s.ask(s.latest(), "boot-1")
			if c := s.latest(); s.op.Phase != operation.Running || c.State != operation.Granted {
				t.Errorf("%s, command %s", s.op.Phase, c.State)
			}
		})
	}
}

// The time to wait for a grant does not count against the step.
func TestGrantGivesTheStepItsTime(t *testing.T) {
	s := started(t, reboot())
	s.now = t0.Add(4 * time.Minute)
	s.ask(s.latest(), "boot-1")
	if want := s.now.Add(stepTimeout); !s.latest().Deadline.Equal(want) || !s.op.WakeAt.Equal(want) {
		t.Errorf("runs until %v, wakes at %v, want %v", s.latest().Deadline, s.op.WakeAt, want)
	}
}

func TestNewBootBeatsTheDeadline(t *testing.T) {
	s := granted(t, reboot())
	s.world.TargetBootID = "boot-2"
	s.now = s.latest().Deadline
	s.look()
	s.ended(operation.Succeeded, "")
}

func TestRetriesWithBackoff(t *testing.T) {
	s := granted(t, operation.Step{Kind: kind.Net, MaxRetries: 2})
	for retry := 1; retry <= 2; retry++ {
		s.do(operation.Resulted{CommandID: s.latest().ID, AgentID: hostID, Outcome: operation.OutcomeFailed, Retryable: true})
		if want := s.now.Add(operation.Backoff(retry)); s.op.WaitReason != operation.WaitRetry || !s.op.WakeAt.Equal(want) {
			t.Fatalf("retry %d: waits for %q until %v, want %v", retry, s.op.WaitReason, s.op.WakeAt, want)
		}
		s.look()
		if len(s.commands) != retry {
			t.Fatal("retried before its time")
		}
		s.now = s.op.WakeAt
		s.look()
		if c := s.latest(); len(s.commands) != retry+1 || c.Attempt != retry+1 || c.ID == s.commands[0].ID {
			t.Fatalf("retry %d made %s", retry, dump(c))
		}
		s.ask(s.latest(), "boot-1")
	}
	s.result(s.latest(), operation.OutcomeSucceeded, map[string]string{evidence.ConfigDigest: "sha256:1"})
	s.ended(operation.Succeeded, "")
}

func TestRetriesEnd(t *testing.T) {
	s := granted(t, operation.Step{Kind: kind.Net, Name: "apply", MaxRetries: 1}, reboot())
	for try, want := range []struct {
		phase operation.Phase
		notes []string
	}{
		{operation.Running, []string{"step_retrying", "waiting"}}, // one retry is left
		{operation.Failed, []string{"step_failed", "failed"}},
	} {
		d := s.do(operation.Resulted{CommandID: s.latest().ID, AgentID: hostID, Outcome: operation.OutcomeFailed,
			Reason: "CONFIG_ROLLED_BACK", Message: "the host has lost its way back", Retryable: true})
		var notes []string
		for _, n := range d.Notes {
			notes = append(notes, n.Kind)
			if n.Step != "apply" || n.Kind != "waiting" && !strings.Contains(n.Message, "lost its way") {
				t.Errorf("try %d: a note %+v", try, n)
			}
		}
		if s.op.Phase != want.phase || !slices.Equal(notes, want.notes) || s.op.FinishedAt.IsZero() != (try == 0) {
			t.Errorf("after try %d: %s with %q, finished %v", try, s.op.Phase, notes, s.op.FinishedAt)
		}
		s.now = s.now.Add(time.Minute)
		s.look()
		if try == 0 {
			s.ask(s.latest(), "boot-1")
		}
	}
	s.ended(operation.Failed, "CONFIG_ROLLED_BACK")
	if len(s.commands) != 2 || s.op.Steps[0].RetryCount != 1 || s.op.Steps[0].FinishedAt.IsZero() ||
		s.op.Steps[1].State != operation.StepWaiting || s.op.Error.Message != "the host has lost its way back" {
		t.Errorf("%d commands, step %+v, error %+v", len(s.commands), s.op.Steps[0], s.op.Error)
	}
}

func TestBackoffGrowsToItsBound(t *testing.T) {
	last := time.Duration(0)
	for retry := 1; retry < 200; retry++ {
		d := operation.Backoff(retry)
		if d < last || d > 30*time.Second || (d == last && d != 30*time.Second) {
			t.Fatalf("Backoff(%d) = %v after %v", retry, d, last)
		}
		last = d
	}
}

func TestHandOverWithoutAGrant(t *testing.T) {
	s := started(t, reboot())
	old := s.latest()
	s.setAgents(host("s-1", false), site("s-9"))
	s.now = t0.Add(fleet.HandOverAfter - time.Second)
	s.look()
	if s.latest() != old {
		t.Fatal("handed over too early")
	}
	s.now = t0.Add(fleet.HandOverAfter)
	s.look()
	now := s.latest()
	if now.ExecutorID != siteID || now.Attempt != 2 || s.command(old.ID).State != operation.CommandCanceled {
		t.Fatalf("%s and %s", dump(s.command(old.ID)), dump(now))
	}
	if d := s.ask(old, "boot-1"); d.Grant {
		t.Error("the one who was silent is granted its old command")
	}
	if d := s.ask(now, ""); !d.Grant {
		t.Errorf("the new executor is refused: %+v", d.Refusal)
	}
}

func TestNoHandOverOfWhatWasGranted(t *testing.T) {
	s := granted(t, reboot())
	s.setAgents(host("s-1", false), site("s-9"))
	s.now = t0.Add(2 * time.Minute)
	s.look()
	if len(s.commands) != 1 || s.latest().State != operation.Granted {
		t.Fatalf("%d commands, the last %s", len(s.commands), s.latest().State)
	}
}

func TestMemoryLostBeforeTheGrant(t *testing.T) {
	s := started(t, reboot())
	old := s.latest()
	s.now = t0.Add(time.Minute)
	s.setAgents(host("s-2", true))
	s.do(operation.SessionOpened{AgentID: hostID, StateID: "s-2", BootID: "boot-1", OfTarget: true})
	now := s.latest()
	if now.ExecutorStateID != "s-2" || now.Attempt != 2 || s.fence != "" {
		t.Fatalf("%s, fence %q", dump(now), s.fence)
	}
	if !now.Deadline.Equal(old.Deadline) {
		t.Errorf("the replacement runs until %v, what it replaces until %v", now.Deadline, old.Deadline)
	}
	if d := s.ask(old, "boot-1"); d.Grant {
		t.Error("the old attempt is granted")
	}
}

// An agent that forgets everything again and again must not keep an operation alive for ever.
func TestForgetfulAgentsDoNotKeepAnOperationAlive(t *testing.T) {
	s := started(t, reboot())
	for i := range 40 {
		s.now = s.now.Add(20 * time.Second)
		state := []string{"s-1", "s-2"}[i%2]
		s.setAgents(host(state, true))
		s.do(operation.SessionOpened{AgentID: hostID, StateID: state, BootID: "boot-1", OfTarget: true})
		if !s.op.WakeAt.After(s.now) {
			s.look()
		}
	}
	s.ended(operation.Failed, "AGENT_UNAVAILABLE")
	if over := s.op.FinishedAt.Sub(t0); over > stepTimeout+time.Minute {
		t.Errorf("ended after %v", over)
	}
}

func TestMemoryLostAfterTheGrant(t *testing.T) {
	for boot, want := range map[string]operation.Phase{"boot-1": operation.Failed, "boot-2": operation.Succeeded} {
		s := granted(t, reboot())
		s.setAgents(host("s-2", true))
		s.do(operation.SessionOpened{AgentID: hostID, StateID: "s-2", BootID: boot, OfTarget: true})
		if s.op.Phase != want || len(s.commands) != 1 || (s.fence != "") != (want == operation.Failed) {
			t.Errorf("memory lost, back with %s: %s, fence %q, %d commands", boot, s.op.Phase, s.fence, len(s.commands))
		}
	}
}

func TestRolledBackMemory(t *testing.T) {
	s := granted(t, reboot())
	c := s.latest()
	d := s.do(operation.GrantAsked{CommandID: c.ID, AgentID: hostID, StateID: "s-1", BootID: "boot-1", Seq: 1,
		Digest: c.Digest})
	if d.Grant || !d.FlagRollback || d.Refusal.Reason != "AGENT_STATE_ROLLED_BACK" {
		t.Errorf("a number that was used before: %+v", d)
	}
	s.ended(operation.Failed, "AGENT_STATE_ROLLED_BACK")

	s = granted(t, reboot())
	s.do(operation.SessionOpened{AgentID: hostID, StateID: "s-1", BootID: "boot-1", OfTarget: true, RolledBack: true})
	s.ended(operation.Failed, "AGENT_STATE_ROLLED_BACK")
	if s.fence == "" {
		t.Error("no fence over a granted command")
	}

	s = started(t, reboot())
	s.do(operation.SessionOpened{AgentID: hostID, StateID: "s-1", BootID: "boot-1", OfTarget: true, RolledBack: true})
	s.ended(operation.Failed, "AGENT_STATE_ROLLED_BACK")
	if s.fence != "" {
		t.Error("a fence over a command that was never granted")
	}
}

// An agent that names another boot when it asks than when it opened its session would have the boot that it is in taken
// for a new one.
func TestAnAskComesFromTheBootOfItsSession(t *testing.T) {
	s := started(t, reboot())
	c := s.latest()
	g := operation.GrantAsked{
		CommandID: c.ID, AgentID: hostID, StateID: c.ExecutorStateID, BootID: "boot-0", SessionBootID: "boot-1", Seq: 1,
		Digest: c.Digest,
	}
	if d := s.do(g); d.Grant || d.Refusal == nil || d.Refusal.Reason != "GRANT_REFUSED" {
		t.Errorf("an ask from a boot that is not its session's: grant %t, %+v", d.Grant, d.Refusal)
	}
	g.BootID, g.Seq = "boot-1", 2
	if d := s.do(g); !d.Grant {
		t.Errorf("the same from the right boot is refused: %+v", d.Refusal)
	}
}

// A copy of the memory that was granted a command may have counted further than its original. It does not know the ask.
func TestACommandIsNotGrantedToACopyOfTheMemoryThatHasIt(t *testing.T) {
	s := granted(t, reboot())
	c := s.latest()
	g := operation.GrantAsked{
		CommandID: c.ID, AgentID: hostID, StateID: c.ExecutorStateID, BootID: "boot-1", Seq: c.GrantSeq + 5, Digest: c.Digest,
		Earlier: []uint64{c.GrantSeq + 4},
	}
	if d := s.do(g); d.Grant || !d.FlagRollback || d.Refusal.Reason != "AGENT_STATE_ROLLED_BACK" {
		t.Errorf("an ask of a memory that does not know of the one that was granted: %+v", d)
	}
	s.ended(operation.Failed, "AGENT_STATE_ROLLED_BACK")
	if s.fence == "" {
		t.Error("no fence over a command that another copy may have begun")
	}
}

// A fence over a reboot is not lifted by the word of an agent that is still in the boot before.
func TestARefusalAfterAGrantProvesNothing(t *testing.T) {
	refuse := func(s *stored) {
		d := s.do(operation.GrantAsked{CommandID: "c-1", AgentID: hostID, StateID: "s-1", BootID: "boot-1", Seq: 2,
			Digest: s.latest().Digest, Earlier: []uint64{1}})
		if d.Grant || d.Refusal == nil {
			t.Fatalf("granted again: %+v", d)
		}
		s.do(operation.Resulted{CommandID: "c-1", AgentID: hostID, StateID: "s-1", Outcome: operation.OutcomeRefused,
			Reason: "GRANT_REFUSED", Message: d.Refusal.Reason})
	}
	doubts := map[string]func(s *stored){
		"another process has taken over": func(s *stored) { s.world.StaleEpoch = true },
		"the machine is quarantined":     func(s *stored) { s.world.Machine.NodeState = fleet.Quarantined },
	}
	for name, doubt := range doubts {
		t.Run(name, func(t *testing.T) {
			s := granted(t, reboot())
			doubt(s)
			refuse(s)
			s.ended(operation.Failed, "OUTCOME_UNKNOWN")
			if s.latest().State != operation.Unknown || s.fence != "c-1" {
				t.Fatalf("settled: %s, fence %q", s.latest().State, s.fence)
			}
			refuse(s) // it asks once more, of a command that is settled
			if s.fence != "c-1" {
				t.Fatal("a refusal lifted the fence")
			}
			s = started(t, reboot())
			doubt(s)
			refuse(s)
			if s.latest().State != operation.Done || s.fence != "" {
				t.Fatalf("never granted: %s, fence %q", s.latest().State, s.fence)
			}
		})
	}
}

func TestALateClaimOfARebootNeedsAnotherBoot(t *testing.T) {
	s := granted(t, reboot())
	s.now = s.now.Add(2 * stepTimeout)
	s.look()
	c := s.latest()
	if c.State != operation.Unknown || s.fence == "" {
		t.Fatalf("the command is %s, the fence %q", c.State, s.fence)
	}
	r := operation.Resulted{CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID,
		Outcome: operation.OutcomeSucceeded, SessionBootID: c.BootIDBefore}
	if s.do(r); s.latest().State != operation.Unknown || s.fence == "" {
		t.Error("the fence is lifted by a claim from the boot before")
	}
	r.SessionBootID = "boot-2"
	if s.do(r); s.latest().SettledBy != "late_result" || s.fence != "" {
		t.Errorf("the same from another boot: settled by %q, fence %q", s.latest().SettledBy, s.fence)
	}
}

// A success that comes late shows no less than one in time: what was to be read back.
func TestALateSuccessNeedsItsEvidence(t *testing.T) {
	s := granted(t, operation.Step{Kind: kind.Netboot})
	s.now = s.now.Add(2 * stepTimeout)
	s.look()
	c := s.latest()
	if c.State != operation.Unknown || s.fence == "" {
		t.Fatalf("the command is %s, the fence %q", c.State, s.fence)
	}
	r := operation.Resulted{CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID,
		Outcome: operation.OutcomeSucceeded}
	if s.do(r); s.latest().State != operation.Unknown || s.fence == "" {
		t.Error("the fence is lifted by a claim without evidence")
	}
	r.Evidence = map[string]string{evidence.BootNext: "pxe"}
	if s.do(r); s.latest().SettledBy != "late_result" || s.fence != "" {
		t.Errorf("the same with evidence: settled by %q, fence %q", s.latest().SettledBy, s.fence)
	}
}

// Another machine with a copy of the agent's disk has a boot of its own.
func TestTheBootOfAnotherMachineIsNoReboot(t *testing.T) {
	for name, hardware := range map[string]string{"another machine": "hw-2", "the same machine": "hw-1"} {
		s := started(t, reboot())
		h := host("s-1", true)
		h.BootID, h.Hardware = "boot-1", "hw-1"
		s.setAgents(h)
		s.ask(s.latest(), "boot-1")
		h.BootID, h.Hardware = "boot-2", hardware
		s.setAgents(h)
		s.do(operation.SessionOpened{AgentID: hostID, StateID: "s-1", BootID: "boot-2", OfTarget: true})
		s.result(s.latest(), operation.OutcomeSucceeded,
			map[string]string{"boot_id_before": "boot-1", "boot_id_after": "boot-2"})
		if want := hardware == "hw-1"; (s.op.Phase == operation.Succeeded) != want {
			t.Errorf("%s with another boot: the operation is %s", name, s.op.Phase)
		}
	}
}

// An old number of one agent says nothing about a command of another.
func TestOldNumberForAForeignCommand(t *testing.T) {
	s := granted(t, reboot())
	s.lastGrant[[2]string{siteID, "s-9"}] = 7
	d := s.do(operation.GrantAsked{CommandID: "c-1", AgentID: siteID, StateID: "s-9", Seq: 7, Digest: s.latest().Digest})
	if d.Grant || !d.FlagRollback || s.op.Phase != operation.Running {
		t.Errorf("grant %t, %s", d.Grant, s.op.Phase)
	}
}

func TestLostAnswerIsAskedForAgain(t *testing.T) {
	s := granted(t, reboot())
	deadline := s.latest().Deadline
	s.now = s.now.Add(10 * time.Second)
	if d := s.ask(s.latest(), "boot-1"); !d.Grant {
		t.Fatalf("refused: %+v", d.Refusal)
	}
	if !s.latest().Deadline.Equal(deadline) {
		t.Error("asking again moved the deadline")
	}
}

func TestQuarantine(t *testing.T) {
	q := operation.Quarantine{Reason: "CLONE_DETECTED", Message: "two of them"}
	s := granted(t, reboot())
	s.do(q)
	s.ended(operation.Failed, "CLONE_DETECTED")
	if s.fence != "c-1" {
		t.Error("no fence over a granted command")
	}

	s = started(t, reboot())
	d := s.do(q)
	s.ended(operation.Failed, "CLONE_DETECTED")
	if s.fence != "" || d.CancelOnAgent != "c-1" {
		t.Errorf("fence %q, told to cancel %q", s.fence, d.CancelOnAgent)
	}

	s = newStored(t, reboot())
	s.do(q)
	s.ended(operation.Failed, "CLONE_DETECTED")
}

func TestNoGrant(t *testing.T) {
	for reason, spoil := range map[string]func(*stored){
		"SESSION_SUPERSEDED":  func(s *stored) { s.world.StaleEpoch = true },
		"MACHINE_QUARANTINED": func(s *stored) { s.world.Machine.NodeState = fleet.Quarantined },
		"MACHINE_BLOCKED":     func(s *stored) { s.world.Machine.Conditions[fleet.RetiredFlag] = true },
		"COMMAND_EXPIRED":     func(s *stored) { s.now = s.latest().Deadline },
		"GRANT_REFUSED":       func(s *stored) { s.latest().Digest = []byte("another") },
	} {
		s := started(t, reboot())
		c := *s.latest()
		spoil(s)
		if d := s.ask(&c, "boot-1"); d.Grant || d.Refusal == nil || d.Refusal.Reason != reason {
			t.Errorf("want %s, got grant %t, %+v", reason, d.Grant, d.Refusal)
		}
	}
}

func TestSuccessWithoutAGrantIsNotBelieved(t *testing.T) {
	s := started(t, reconfig())
	s.result(s.latest(), operation.OutcomeSucceeded, map[string]string{evidence.ConfigDigest: "sha256:1"})
	s.ended(operation.Failed, "OUTCOME_UNKNOWN")
	if s.fence != "c-1" {
		t.Errorf("fence %q", s.fence)
	}
}

func TestSuccessWithoutEvidence(t *testing.T) {
	for _, k := range []kind.Kind{kind.Net, kind.Netboot, kind.Repave} {
		s := granted(t, operation.Step{Kind: k})
		s.result(s.latest(), operation.OutcomeSucceeded, map[string]string{"anything": "else"})
		s.ended(operation.Failed, "EVIDENCE_MISSING")
	}
}

func TestRepaveLeavesItsMarks(t *testing.T) {
	s := granted(t, operation.Step{Kind: kind.Repave})
	s.op.Type = fleet.Reimage
	s.raise(fleet.CauseReimage, "")
	s.conditions[fleet.InCustomerCluster] = true
	d := s.result(s.latest(), operation.OutcomeSucceeded, map[string]string{evidence.ImageDigest: "sha256:2"})
	s.ended(operation.Succeeded, "")
	if d.Machine.ImageDigest != "sha256:2" || !s.conditions[fleet.Provisioned] || s.conditions[fleet.InCustomerCluster] ||
		s.conditions[fleet.NeedsIntervention] {
		t.Errorf("image %q, conditions %v", d.Machine.ImageDigest, s.conditions)
	}
}

func TestMaintenanceMovesThePhaseAndNothingElse(t *testing.T) {
	for _, c := range []struct {
		typ  fleet.OperationType
		to   fleet.Phase
		want map[fleet.ConditionType]bool // of what was true before
	}{
		{fleet.EnterMaintenance, fleet.Maintenance, map[fleet.ConditionType]bool{fleet.InCustomerCluster: true,
			fleet.NeedsIntervention: true}},
		// What was drained for the maintenance is used again after it.
		{fleet.ExitMaintenance, fleet.Ready, map[fleet.ConditionType]bool{fleet.InCustomerCluster: true,
			fleet.NeedsIntervention: true}},
	} {
		s := newStored(t, setPhase(c.to))
		s.op.Type = c.typ
		s.raise(fleet.CauseRecord, "")
		s.conditions[fleet.InCustomerCluster], s.conditions[fleet.Reachable] = true, false
		s.conditions[fleet.OperationCanceled] = true // until the next success
		s.conditions[fleet.Drained] = c.typ == fleet.ExitMaintenance
		s.look()
		s.ended(operation.Succeeded, "")
		maps.DeleteFunc(s.conditions, func(_ fleet.ConditionType, is bool) bool { return !is })
		if s.phase != c.to || !maps.Equal(s.conditions, c.want) || len(s.commands) != 0 {
			t.Errorf("%s: phase %s, conditions %v, %d commands", c.typ, s.phase, s.conditions, len(s.commands))
		}
	}
}

func TestWaitForAgent(t *testing.T) {
	s := newStored(t, operation.Step{Kind: kind.WaitForAgent})
	s.world.TargetAgentLive = false
	s.look()
	if s.op.WaitReason != operation.WaitAgent {
		t.Fatalf("waits for %q", s.op.WaitReason)
	}
	s.world.TargetAgentLive = true
	s.do(operation.SessionOpened{AgentID: hostID, StateID: "s-1", BootID: "boot-1", OfTarget: true})
	s.ended(operation.Succeeded, "")

	s = newStored(t, operation.Step{Kind: kind.WaitForAgent})
	s.world.TargetAgentLive = false
	s.look()
	s.now = s.op.WakeAt
	s.look()
	s.ended(operation.Failed, "AGENT_UNAVAILABLE")
}

func TestNobodyThere(t *testing.T) {
	s := newStored(t, reboot())
	s.setAgents(host("s-1", false))
	s.world.TargetAgentLive = false
	for s.look(); s.op.Phase == operation.Running; s.look() {
		if s.op.WaitReason != operation.WaitAgent || s.op.WakeAt.Sub(s.now) > operation.LookAgain {
			t.Fatalf("waits for %q until %v", s.op.WaitReason, s.op.WakeAt)
		}
		s.now = s.op.WakeAt
	}
	s.ended(operation.Failed, "AGENT_UNAVAILABLE")
	if !s.now.Equal(t0.Add(stepTimeout)) || len(s.commands) != 0 {
		t.Errorf("ended at %v with %d commands", s.now, len(s.commands))
	}
}

func TestMissingCapability(t *testing.T) {
	for k, code := range map[kind.Kind]string{
		kind.Repave: "INSTALLER_MISSING", kind.Netboot: "NETBOOT_UNSUPPORTED",
		kind.Reboot: "CAPABILITY_MISSING",
	} {
		s := newStored(t, operation.Step{Kind: k})
		s.world.Candidates[0].Capabilities = nil
		s.look()
		s.ended(operation.Failed, code)
	}
}

// A machine without an agent of its own: what the site agent has read back is all the evidence there is.
func TestSiteAgentReboots(t *testing.T) {
	for evidenceOf, want := range map[string]operation.Phase{"boot-2": operation.Succeeded, "boot-1": operation.Running} {
		s := newStored(t, reboot())
		s.world.TargetAgentID, s.world.TargetBootID, s.world.TargetAgentLive = "", "", false
		s.setAgents(site("s-9"))
		s.look()
		s.ask(s.latest(), "boot-of-site")
		s.result(s.latest(), operation.OutcomeSucceeded,
			map[string]string{evidence.BootIDBefore: "boot-1", evidence.BootIDAfter: evidenceOf})
		if s.op.Phase != want {
			t.Errorf("read back %s: %s, want %s", evidenceOf, s.op.Phase, want)
		}
	}
}

// booted is a session of the machine's own system.
func booted(bootID string) operation.Booted {
	return operation.Booted{AgentID: hostID, Role: "host", BootID: bootID}
}

// TestAccountNamesSituationsAndMoves: the account of a decision for the log has each situation and the moves in it, and
// no secret of the machine's boot.
func TestAccountNamesSituationsAndMoves(t *testing.T) {
	s := newStored(t, reboot())
	snap := s.snapshot(operation.Evaluate{})
	snap.World.NewBootToken = "secret"
	account := decider.Account(snap, operation.Evaluate{}, s.now)
	for _, want := range []string{
		"operation.Evaluate; PENDING, step 0 reboot-0 WAITING", "begins{}", "noted{kind:started message:}",
		"; RUNNING, step 0 reboot-0 RUNNING", "commandMade{kind:reboot attempt:1", "waits{reason:WAITING_FOR_RESULT",
	} {
		if !strings.Contains(account, want) {
			t.Errorf("the account lacks %q:\n%s", want, account)
		}
	}
	if strings.Contains(account, "secret") {
		t.Errorf("the account has a secret:\n%s", account)
	}
}
