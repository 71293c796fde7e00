package workflow

import (
	"maps"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// Action is what an operator may do with a workflow, as in the API without its prefix.
type Action string

// The actions.
const (
	RetryStage   Action = "RETRY_STAGE"
	Resume       Action = "RESUME"
	Rerun        Action = "RERUN"
	RestartClean Action = "RESTART_CLEAN"
	Cancel       Action = "CANCEL"
	Adopt        Action = "ADOPT_OBSERVED_STATE"
	MarkManual   Action = "MARK_MANUAL_INTERVENTION_REQUIRED"
)

// Actions lists every action.
func Actions() []Action {
	return []Action{RetryStage, Resume, Rerun, RestartClean, Cancel, Adopt, MarkManual}
}

// legal has the states in which an action may be taken; Resume also in Running when its task is stalled or lost.
var legal = map[Action][]State{
	RetryStage:   {FailedRetryable, FailedManual},
	Adopt:        {FailedRetryable, FailedManual},
	Resume:       {FailedRetryable, FailedManual},
	Rerun:        {FailedRetryable, FailedManual, Cancelled},
	RestartClean: {FailedRetryable, FailedManual, Cancelled},
	Cancel:       {Pending, Running, FailedRetryable, FailedManual},
	MarkManual:   {Pending, Running, FailedRetryable, FailedManual, Compensating},
}

// Legal lists the actions that may be taken. stalled is set when the task of a running workflow is lost, or was not
// evaluated for long.
func Legal(s State, stalled bool) []Action {
	var out []Action
	for _, a := range Actions() {
		if slices.Contains(legal[a], s) || a == Resume && stalled && Working(s) {
			out = append(out, a)
		}
	}
	return out
}

// Facts is what of the world an action looks at.
type Facts struct {
	// Stalled as in Legal. OperationActive is set while the attempt's operation has not ended.
	Stalled, OperationActive bool
	// Stage is what a stage's check may know; it is read for ADOPT_OBSERVED_STATE.
	Stage StageFacts
	// Contested reports whether the node is quarantined because two machines answer in its name.
	Contested bool
}

// Effect is what an action does, all in one transaction.
type Effect struct {
	// Workflow as it is afterwards. Where Attempt is true an operation of the stages from Workflow.Stage on is made.
	Workflow Workflow
	Attempt  bool
	// Skip leaves out of the attempt the stages whose evidence is held.
	Skip bool
	// CancelOperation stops the attempt that is under way; Requeue lets it be looked at again.
	CancelOperation, Requeue bool
	// Reset moves the node back to the state of a clean start; Release to a state without work.
	Reset, Release bool
	// Nothing is set when the action was taken before: success, without a second effect.
	Nothing bool
	// Text describes it for people.
	Text string
}

// Act decides what an action does. It never changes w.
func Act(w Workflow, a Action, f Facts) (Effect, *fleet.Refusal) {
	switch {
	case repeated(w, a, f):
		return Effect{Workflow: w, Nothing: true, Text: "nothing: " + strings.ToLower(string(a)) + " has been done already"},
			nil
	case !slices.Contains(Legal(w.State, f.Stalled), a):
		return Effect{}, illegal(w, a, f)
	}
	if r := Continuable(w, f.Stage.Machine.NodeState, f.Contested); r != nil && a != Cancel && a != MarkManual &&
		!f.OperationActive {
		return Effect{}, r
	}
	switch a {
	case Cancel:
		return cancel(w, f), nil
	case MarkManual:
		return freeze(w, f), nil
	case Adopt:
		return adopt(w, f)
	case RestartClean:
		return restart(w), nil
	case Rerun:
		return rerun(w), nil
	case Resume:
		return resume(w, f), nil
	default:
		stage := retryStage(w)
		return again(w, a, stage, "stage "+stage+" is tried again"), nil
	}
}

// repeated reports whether what the action asks for is under way, or done.
func repeated(w Workflow, a Action, f Facts) bool {
	switch a {
	case Cancel:
		return w.State == Compensating || w.State == Cancelled
	case MarkManual:
		return w.State == FailedManual
	case Resume:
		return (w.State == Pending || w.State == Running) && !f.Stalled
	default:
		return (w.State == Pending || w.State == Running) && w.LastAction == a
	}
}

func illegal(w Workflow, a Action, f Facts) *fleet.Refusal {
	names := []string{}
	for _, l := range Legal(w.State, f.Stalled) {
		names = append(names, strings.ToLower(string(l)))
	}
	may := "it has ended and takes no action"
	if len(names) > 0 {
		may = "it allows " + strings.Join(names, ", ")
	}
	return &fleet.Refusal{Reason: "WORKFLOW_ACTION_ILLEGAL",
		Message: "a workflow that is " + strings.ToLower(string(w.State)) + " does not allow " + strings.ToLower(string(a)) +
			"; " + may}
}

// again begins another attempt at a stage.
func again(w Workflow, a Action, stage, text string) Effect {
	w.begin(a, stage)
	return Effect{Workflow: w, Attempt: true, Text: text}
}

func (w *Workflow) begin(a Action, stage string) {
	if w.State != Pending {
		w.move(Pending)
	}
	w.LastAction, w.Attempts = a, w.Attempts+1
	w.Reason, w.Message, w.FailureClass = "", "", ""
	w.at(stage)
}

func (w *Workflow) at(stage string) {
	if i := slices.Index(w.Plan, stage); i >= 0 {
		w.Stage, w.StageIdx = stage, i
	}
}

// resume goes on from the last safe stage; where the task is alive and merely late, it is looked at again.
func resume(w Workflow, f Facts) Effect {
	if f.OperationActive {
		return Effect{Workflow: w, Requeue: true, Text: "the attempt that is late is looked at again"}
	}
	if Working(w.State) {
		// Its task is lost: what it would have gone to had it failed.
		w.move(FailedRetryableOf(w.State))
	}
	stage := SafeStage(w, w.Stage)
	return again(w, Resume, stage, "it goes on from stage "+stage)
}

// FailedRetryableOf is the failed state that a workflow whose task is lost stands in.
func FailedRetryableOf(s State) State {
	if s == Compensating {
		return FailedManual
	}
	return FailedRetryable
}

// retryStage is the stage that a retry tries again. A stage of a provider that only waits for an earlier one, or judges
// it, fails for that one's sake: looking again changes nothing.
func retryStage(w Workflow) string {
	if s, ok := FindFor(w.Kind, w.Stage, w.Provider); ok && s.Provider == ProviderMAAS && s.ResumeAt != "" &&
		slices.Contains(w.Plan, s.ResumeAt) {
		return s.ResumeAt
	}
	return w.Stage
}

// rerun enters from the top, and takes proven stages as done, but not the one that failed.
func rerun(w Workflow) Effect {
	w.Failures = nil
	if failed, ok := FindFor(w.Kind, retryStage(w), w.Provider); ok && failed.Gives != "" {
		w.Evidence = maps.Clone(w.Evidence)
		delete(w.Evidence, failed.Gives)
	}
	e := again(w, Rerun, w.Plan[0], "it begins again at "+w.Plan[0]+" and leaves out the stages whose evidence is held")
	e.Skip = true
	return e
}

// restart forgets everything and begins again, after what the provider did for the stages so far is undone.
func restart(w Workflow) Effect {
	w.move(Compensating)
	undo := undoing(w)
	w.Evidence, w.Adopted, w.Failures = nil, false, nil
	text := "the node is put back, all evidence is dropped, and it begins again at " + w.Plan[0]
	if len(undo) > 0 {
		w.Evidence = map[string]string{undoDue: strings.Join(undo, ",")}
		text += ", after the provider's work is undone (" + strings.Join(undo, ", ") + ")"
	}
	e := again(w, RestartClean, w.Plan[0], text)
	e.Reset = true
	return e
}

func cancel(w Workflow, f Facts) Effect {
	w.move(Compensating)
	w.LastAction = Cancel
	if f.OperationActive {
		return Effect{Workflow: w, CancelOperation: true,
			Text: "the attempt is stopped at the next point where it can be, then what can be undone is undone"}
	}
	w.move(Cancelled)
	return Effect{Workflow: w, Release: true, Text: "what can be undone is undone; the workflow is cancelled"}
}

func freeze(w Workflow, f Facts) Effect {
	w.move(FailedManual)
	w.LastAction, w.FailureClass, w.Reason, w.Message = MarkManual, ClassMarked, "", "marked by an operator"
	return Effect{Workflow: w, CancelOperation: f.OperationActive, Release: !f.OperationActive,
		Text: "it is frozen until an operator resolves it; an attempt under way is stopped"}
}

// adopt takes the failed stage as done when the observations show that, and goes on with the next one.
func adopt(w Workflow, f Facts) (Effect, *fleet.Refusal) {
	s, ok := FindFor(w.Kind, w.Stage, w.Provider)
	next := w.StageIdx + 1
	if !ok || !s.Adoptable || next >= len(w.Plan) {
		return Effect{}, &fleet.Refusal{Reason: "STAGE_CHECK_FAILED",
			Message: "nothing that can be observed proves that stage " + w.Stage + " is done; retry it"}
	}
	v := Observed(s, f.Stage)
	if !v.Pass {
		return Effect{}, &fleet.Refusal{Reason: "STAGE_CHECK_FAILED", Message: "stage " + w.Stage + " is not done: " +
			v.Message}
	}
	w.Evidence = merged(w.Evidence, v.Evidence)
	if s.Provider == ProviderMAAS && s.Gives != "" && w.Evidence[s.Gives] == "" {
		w.Evidence[s.Gives] = "observed" // else a resume would go back to the stage
	}
	w.Adopted = true
	w.Failures = maps.Clone(w.Failures)
	delete(w.Failures, w.Stage)
	return again(w, Adopt, w.Plan[next], "stage "+w.Stage+" is taken as done; it goes on with "+w.Plan[next]), nil
}
