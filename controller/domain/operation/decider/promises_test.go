package decider_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// TestFailuresSayWhatAndWhere: a code, words, whether another try may succeed, and which step, command and executor it
// was.
func TestFailuresSayWhatAndWhere(t *testing.T) {
	for _, retryable := range []bool{false, true} {
		s := granted(t, operation.Step{Kind: kind.Net, Name: "apply"})
		s.do(operation.Resulted{
			CommandID: "c-1", AgentID: hostID, Outcome: operation.OutcomeFailed, Reason: "EXECUTION_FAILED",
			Message:   "SSH connection refused",
			Retryable: retryable,
		})
		s.ended(operation.Failed, "EXECUTION_FAILED")
		e := s.op.Error
		if e.Message != "SSH connection refused" || e.Retryable != retryable {
			t.Errorf("error %+v, want retryable %t", e, retryable)
		}
		for key, want := range map[string]string{"step": "apply", "machine_id": "m-1", "command_id": "c-1",
			"executor": hostID} {
			if e.Details[key] != want {
				t.Errorf("details %v, want %s %s", e.Details, key, want)
			}
		}
	}
}

// TestCancelMarksTheMachineUntilTheNextSuccess: a cancel is shown on the machine and asks nobody to intervene; work
// that succeeds afterwards clears it.
func TestCancelMarksTheMachineUntilTheNextSuccess(t *testing.T) {
	s := started(t, reboot())
	phase := s.phase
	s.do(operation.CancelAsked{Actor: "x"})
	s.ended(operation.Canceled, "CANCELED_BY_REQUEST")
	if !s.conditions[fleet.OperationCanceled] || s.conditions[fleet.NeedsIntervention] || s.phase != phase {
		t.Fatalf("conditions %v, phase %s", s.conditions, s.phase)
	}
	next := granted(t, reconfig())
	next.conditions = s.conditions
	next.result(next.latest(), operation.OutcomeSucceeded, map[string]string{evidence.ConfigDigest: "sha256:1"})
	next.ended(operation.Succeeded, "")
	if next.conditions[fleet.OperationCanceled] {
		t.Error("still shown after a success")
	}
}

// TestASuccessWithoutAGrantIsNone: it ends unknown, and nothing of what its executor shows is kept, whoever settles it
// later.
func TestASuccessWithoutAGrantIsNone(t *testing.T) {
	s := started(t, reboot())
	s.result(s.latest(), operation.OutcomeSucceeded, map[string]string{evidence.BootIDBefore: "boot-1",
		evidence.BootIDAfter: "boot-2"})
	s.ended(operation.Failed, "OUTCOME_UNKNOWN")
	c := operation.Settle(s.latest(), "operator:did_not_happen")
	if c.Outcome != operation.OutcomeUnknown || len(c.Evidence) != 0 || c.Reason != "OUTCOME_UNKNOWN" {
		t.Errorf("settled as %s %q with %v", c.Outcome, c.Reason, c.Evidence)
	}
	if s.fence != c.ID {
		t.Errorf("fence %q", s.fence)
	}
}

// TestNothingIsGrantedAgainInAnotherBoot: a memory that was copied right after its ask, and put back after the reboot,
// asks again.
func TestNothingIsGrantedAgainInAnotherBoot(t *testing.T) {
	again := func(s *stored, boot string) operation.Decision {
		c := s.latest()
		return s.do(operation.GrantAsked{
			CommandID: c.ID, AgentID: c.ExecutorID, StateID: c.ExecutorStateID, BootID: boot, SessionBootID: boot,
			Seq:    c.GrantSeq + 1,
			Digest: c.Digest, Earlier: []uint64{c.GrantSeq},
		})
	}
	t.Run("the same boot", func(t *testing.T) {
		s := granted(t, reboot())
		if d := again(s, s.latest().BootIDBefore); !d.Grant {
			t.Errorf("an agent that was restarted is refused: %+v", d.Refusal)
		}
	})
	t.Run("a reboot", func(t *testing.T) {
		s := granted(t, reboot())
		if d := again(s, "boot-2"); d.Grant {
			t.Error("granted again")
		}
		s.ended(operation.Succeeded, "")
	})
	t.Run("a change", func(t *testing.T) {
		s := granted(t, operation.Step{Kind: kind.Net})
		if d := again(s, "boot-2"); d.Grant {
			t.Error("granted again")
		}
		s.ended(operation.Failed, "OUTCOME_UNKNOWN")
	})
}
