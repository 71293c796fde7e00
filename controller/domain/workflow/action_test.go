package workflow_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// What the requirements say of actions: the states in which each is legal. "stalled" is running whose task is stalled
// or lost.
var legal = map[workflow.Action]string{
	workflow.RetryStage:   "FAILED_RETRYABLE FAILED_MANUAL_INTERVENTION",
	workflow.Adopt:        "FAILED_RETRYABLE FAILED_MANUAL_INTERVENTION",
	workflow.Resume:       "FAILED_RETRYABLE FAILED_MANUAL_INTERVENTION stalled",
	workflow.Rerun:        "FAILED_RETRYABLE FAILED_MANUAL_INTERVENTION CANCELLED",
	workflow.RestartClean: "FAILED_RETRYABLE FAILED_MANUAL_INTERVENTION CANCELLED",
	workflow.Cancel:       "PENDING RUNNING FAILED_RETRYABLE FAILED_MANUAL_INTERVENTION",
	workflow.MarkManual:   "PENDING RUNNING FAILED_RETRYABLE FAILED_MANUAL_INTERVENTION COMPENSATING",
}

func wanted(s workflow.State, stalled bool, a workflow.Action) bool {
	in := strings.Fields(legal[a])
	return slices.Contains(in, string(s)) || stalled && working(s) && slices.Contains(in, "stalled")
}

// TestEveryStateAndAction: an allowed action has an effect within the transitions; a repeat has none; all others are
// refused with the allowed ones.
func TestEveryStateAndAction(t *testing.T) {
	for _, s := range workflow.States() {
		for _, stalled := range []bool{false, true} {
			for _, active := range []bool{false, true} {
				for _, a := range workflow.Actions() {
					name := fmt.Sprintf("%s stalled=%v active=%v %s", s, stalled, active, a)
					w := sample(s)
					if got := slices.Contains(workflow.Legal(s, stalled), a); got != wanted(s, stalled, a) {
						t.Errorf("%s: legal %v", name, got)
					}
					e, refusal := workflow.Act(w, a, drainedFacts(stalled, active))
					switch {
					case e.Nothing:
						repeatIsFine(t, name, s, a, stalled, e)
					case wanted(s, stalled, a):
						if refusal != nil || e.Text == "" {
							t.Errorf("%s: %+v %v", name, e, refusal)
						}
						effectIsFine(t, name, s, a, active, e)
					case refusal == nil || refusal.Reason != "WORKFLOW_ACTION_ILLEGAL" || refusal.Message == "":
						t.Errorf("%s: not refused: %+v %v", name, e, refusal)
					}
				}
			}
		}
	}
}

// repeatIsFine: success without an effect is for actions that are under way or done.
func repeatIsFine(t *testing.T, name string, s workflow.State, a workflow.Action, stalled bool, e workflow.Effect) {
	t.Helper()
	ok := a == workflow.Cancel && (s == workflow.Compensating || s == workflow.Cancelled) || a == workflow.MarkManual &&
		s == workflow.FailedManual ||
		a == workflow.Resume && !stalled && (s == workflow.Pending || s == workflow.Running)
	if !ok || e.Attempt || e.CancelOperation || e.Requeue || e.Workflow.State != s {
		t.Errorf("%s: %+v", name, e)
	}
}

func effectIsFine(t *testing.T, name string, from workflow.State, a workflow.Action, active bool, e workflow.Effect) {
	t.Helper()
	to := e.Workflow.State
	switch a {
	case workflow.Cancel:
		want := workflow.Cancelled
		if active {
			want = workflow.Compensating
		}
		if to != want || e.CancelOperation != active || e.Release == active {
			t.Errorf("%s: %+v", name, e)
		}
	case workflow.MarkManual:
		if to != workflow.FailedManual || e.CancelOperation != active || e.Workflow.FailureClass != workflow.ClassMarked {
			t.Errorf("%s: %+v", name, e)
		}
	default:
		if a == workflow.Resume && active {
			if !e.Requeue || e.Attempt || to != from {
				t.Errorf("%s: %+v", name, e)
			}
			return
		}
		if to != workflow.Pending || !e.Attempt || e.Workflow.Attempts != 2 || e.Workflow.LastAction != a {
			t.Errorf("%s: %+v", name, e)
		}
		// Pressed again, it does nothing.
		again, refusal := workflow.Act(e.Workflow, a, drainedFacts(false, true))
		if refusal != nil || !again.Nothing {
			t.Errorf("%s, again: %+v %v", name, again, refusal)
		}
	}
}

// TestActionsDoWhatTheySay, beyond their states.
func TestActionsDoWhatTheySay(t *testing.T) {
	w := sample(workflow.FailedRetryable)
	w.Stage, w.StageIdx = workflow.ValidateClean, slices.Index(w.Plan, workflow.ValidateClean)
	act := func(a workflow.Action) workflow.Effect {
		t.Helper()
		e, refusal := workflow.Act(w, a, drainedFacts(false, false))
		if refusal != nil {
			t.Fatal(refusal)
		}
		return e
	}
	if e := act(workflow.RetryStage); e.Workflow.Stage != workflow.ValidateClean {
		t.Errorf("retry goes to %s", e.Workflow.Stage)
	}
	if e := act(workflow.Resume); e.Workflow.Stage != workflow.CleanupStorage {
		t.Errorf("without evidence of an erasure, resume goes to %s", e.Workflow.Stage)
	}
	w.Evidence = map[string]string{evidence.EraseMethod: "ata"}
	if e := act(workflow.Resume); e.Workflow.Stage != workflow.ValidateClean {
		t.Errorf("with it, resume goes to %s", e.Workflow.Stage)
	}
	if e := act(workflow.Rerun); e.Workflow.Stage != w.Plan[0] || !e.Skip ||
		e.Workflow.Evidence[evidence.EraseMethod] == "" {
		t.Errorf("rerun: %+v", e)
	}
	if e := act(workflow.RestartClean); e.Workflow.Stage != w.Plan[0] || e.Skip || len(e.Workflow.Evidence) != 0 ||
		!e.Reset {
		t.Errorf("restart_clean: %+v", e)
	}
	if _, refusal := workflow.Act(w, workflow.Adopt, drainedFacts(false, false)); refusal == nil ||
		refusal.Reason != "STAGE_CHECK_FAILED" {
		t.Errorf("a check that nothing shows was adopted: %v", refusal)
	}
	w.Stage, w.StageIdx = workflow.PowerOffNode, slices.Index(w.Plan, workflow.PowerOffNode)
	if _, refusal := workflow.Act(w, workflow.Adopt, drainedFacts(false, false)); refusal == nil {
		t.Error("a machine that is on was adopted as off")
	}
	f := drainedFacts(false, false)
	f.Stage.PowerOff, f.Stage.PowerSeenAt = true, "then"
	e, refusal := workflow.Act(w, workflow.Adopt, f)
	if refusal != nil || e.Workflow.Stage != workflow.RetireNode || !e.Workflow.Adopted ||
		e.Workflow.Evidence[evidence.PowerOffSeenAt] != "then" {
		t.Errorf("adopt: %+v %v", e, refusal)
	}
	done := workflow.Follow(e.Workflow, workflow.Attempt{Phase: "RUNNING"})
	if done = workflow.Follow(done, workflow.Attempt{Phase: "SUCCEEDED"}); done.State != workflow.Reconciled {
		t.Errorf("what was adopted ends %s", done.State)
	}
}
