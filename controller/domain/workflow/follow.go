package workflow

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// Attempt is what of an attempt's operation the workflow follows.
type Attempt struct {
	// Phase as operations have it: PENDING, RUNNING, SUCCEEDED, FAILED, CANCELED.
	Phase string
	// Step is the current one's name.
	Step            string
	Reason, Message string
	Evidence        map[string]string
	// Granted reports whether the decision lets an agent begin what the step does.
	Granted bool
}

// Follow is the workflow after a decision on its attempt. What an operator has frozen stays so.
func Follow(w Workflow, a Attempt) Workflow {
	if !Working(w.State) {
		return w
	}
	stage := StageOf(w.Kind, a.Step)
	if !opensBefore(w, stage) {
		w.at(stage)
		w.forgetPassed()
	}
	if s, _ := FindFor(w.Kind, stage, w.Provider); s.Touches && a.Granted {
		w.Unclean = true
	}
	w.Evidence = merged(w.Evidence, a.Evidence)
	if slices.Index(w.Plan, stage) > 0 {
		delete(w.Evidence, undoDue) // the steps that undo come before
	}
	switch a.Phase {
	case "RUNNING":
		if w.State == Pending {
			w.move(Running)
		}
	case "SUCCEEDED":
		w.succeed()
	case "FAILED":
		w.fail(a)
	case "CANCELED":
		if w.State != Compensating {
			w.move(Compensating)
		}
		w.move(Cancelled)
	}
	return w
}

// forgetPassed drops the failures of the stages that the workflow has gone past.
func (w *Workflow) forgetPassed() {
	w.Failures = maps.Clone(w.Failures)
	for _, passed := range w.Plan[:min(w.StageIdx, len(w.Plan))] {
		delete(w.Failures, passed)
	}
}

// opensBefore reports whether the stage only resets the node's state to work in progress, before the attempt goes on
// from a later stage. It is no step back.
func opensBefore(w Workflow, stage string) bool {
	s, _ := FindFor(w.Kind, stage, w.Provider)
	return s.Opens && slices.Index(w.Plan, stage) < w.StageIdx
}

func (w *Workflow) succeed() {
	if w.State == Pending {
		w.move(Running)
	}
	w.Failures, w.Reason, w.Message, w.FailureClass = nil, "", "", ""
	switch {
	case w.State == Compensating:
		w.move(FailedManual)
		w.FailureClass, w.Message = ClassDisagree, "every stage was done before the cancel took hold"
	case w.Adopted:
		w.move(Reconciled)
	default:
		w.move(Completed)
	}
	w.Unclean = w.Unclean && !Terminal(w.State)
}

func (w *Workflow) fail(a Attempt) {
	to := w.failAs(a.Reason, a.Message)
	if w.State == Compensating {
		to = FailedManual
	}
	w.move(to)
}

// Next returns the next action, and a text on it; both are empty for none.
func Next(w Workflow, stalled bool) (Action, string) {
	switch {
	case Working(w.State) && stalled:
		return Resume, "nothing has looked at it for long: resume"
	case w.State == Pending || w.State == Running:
		return "", "wait: it is at stage " + w.Stage
	case w.State == Compensating:
		return "", "wait: it is being cancelled"
	case w.State == Cancelled:
		return Rerun, "rerun it, or start another"
	case w.State == FailedRetryable:
		return Resume, "resume: " + cmp.Or(w.Message, "another try may succeed")
	case w.State == FailedManual:
		return nextManual(w)
	}
	return "", ""
}

// nextManual names what to mend first, by class.
func nextManual(w Workflow) (Action, string) {
	what := map[Class]string{
		ClassConflict: "find out which machine is the right one, clear its quarantine, then restart_clean",
		ClassDisk:     "set spec.install_disk so that it fits one disk, then retry_stage",
		ClassPXE: "give the machine a way to boot from the network (a BMC, an agent, a provisioning network), then " +
			"retry_stage",
		ClassGone:     "the machine is gone: cancel",
		ClassUnknown:  "settle the command whose outcome is unknown, then resume",
		ClassNotWired: "do by hand what the stage would do, then adopt_observed_state; or cancel",
		ClassMarked:   "the operator who froze it resolves it, then resume",
		ClassRefused:  "correct what the message names, then retry_stage",
	}
	text := cmp.Or(what[w.FailureClass], "look at the cause, then retry_stage")
	// The first action that the words name; every text names one.
	action, first := RetryStage, len(text)
	for _, a := range Actions() {
		if i := strings.Index(text, strings.ToLower(string(a))); i >= 0 && i < first {
			action, first = a, i
		}
	}
	return action, text
}

// Offer is what may be done with a workflow now.
type Offer struct {
	// Stalled as in Legal.
	Stalled bool
	// Legal are the actions that would be taken; Refused are those that the state allows and the machine does not.
	Legal   []Action
	Refused map[Action]*fleet.Refusal
}

// Recommend is Next, as far as the action that helps would be taken now. Otherwise the words name what stands in its
// way.
func Recommend(w Workflow, o Offer) (Action, string) {
	a, text := Next(w, o.Stalled)
	if w.State == FailedManual && w.Reason == "MAAS_STATUS_CONFLICT" && slices.Contains(o.Legal, Adopt) {
		// Trying again changes nothing: the provider shows that the stage is done, and for this machine.
		return Adopt, "the provider shows what the stage is for: adopt_observed_state, or restart_clean to do it anew"
	}
	r := o.Refused[a]
	if r == nil {
		return a, text
	}
	return "", r.Message + ", then " + strings.ToLower(string(a))
}
