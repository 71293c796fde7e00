package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// workflowActions say what each action brings about.
var workflowActions = map[workflow.Action]explain.Action{
	workflow.RetryStage: {Consequence: "tries the stage that failed again"},
	workflow.Resume:     {Consequence: "goes on from the last safe stage; what is under way is not started twice"},
	workflow.Rerun:      {Consequence: "begins at the top, leaving out what is proven", Destructive: true},
	workflow.RestartClean: {
		Consequence: "drops all evidence, puts the node back and begins again, erasing and installing included",
		Destructive: true},
	workflow.Cancel:     {Consequence: "stops, and undoes what can be undone", Destructive: true},
	workflow.Adopt:      {Consequence: "takes the failed stage as done, if it is observed to be", Destructive: true},
	workflow.MarkManual: {Consequence: "freezes it until an operator resolves it"},
}

// sayWorkflow: between two attempts of a longer piece of work, or after one that has failed.
func (s *scene) sayWorkflow(e *explain.Explanation) {
	w := *s.Workflow
	lost := workflow.Working(w.State)
	offer := s.Offers.Workflow
	best, advice := workflow.Recommend(w, offer)
	e.WaitsOn, e.WaitsFor, e.Since, e.OperationID = explain.OnOperator, "an action on workflow "+w.ID, s.WorkflowSince,
		w.OperationID
	head := fmt.Sprintf("%s is %s at stage %s", s.workflowName(), w.State, w.Stage)
	if w.Reason != "" {
		reason, message, late := s.ofAttempt(w)
		v := s.failure(reason, message)
		e.Cause, e.Actions = v.Cause, v.actions
		head += ": " + e.Cause.Text + inBrackets(message, e.Cause.Text)
		if late != "" {
			e.Cause.Facts = append(e.Cause.Facts, late)
			advice = "the outcome is known by now: " + strings.ToLower(string(workflow.Resume))
		}
	}
	if m, ok := s.Override(
		"WORKFLOW_"+string(workflow.MarkManual),
		func(m explain.Override) bool { return m.Data["workflow_id"] == w.ID },
	); ok && w.FailureClass == workflow.ClassMarked {
		e.Cause.Text = "it was frozen" + m.By()
		head += ": " + e.Cause.Text
	}
	if lost {
		e.Cause.Text = "no attempt of it is under way, although it is " + string(w.State)
		head = s.workflowName() + ": " + e.Cause.Text
	}
	if s.inQuarantine() {
		e.Cause.Facts = append(e.Cause.Facts, "the node is quarantined until the workflow has gone on")
	}
	if w.FailureClass != "" {
		e.Cause.Facts = append(e.Cause.Facts, "class of the failure: "+string(w.FailureClass))
	}
	if advice != "" {
		e.Cause.Facts = append(e.Cause.Facts, "what helps: "+advice)
	}
	e.Cause.Facts = append(e.Cause.Facts, fmt.Sprintf("attempt %d; stages: %s", w.Attempts, strings.Join(w.Plan, ", ")))
	e.Cause.Facts = append(e.Cause.Facts, s.stagesSoFar()...)
	e.Summary = head
	e.Actions = append(e.Actions, s.actionsOf(w, best, offer.Legal)...)
}

// ofAttempt is why the last attempt of a workflow failed, as far as it is known by now.
func (s *scene) ofAttempt(w workflow.Workflow) (reason, message, late string) {
	if s.Op == nil || s.Op.ID != w.OperationID {
		return w.Reason, w.Message, ""
	}
	return s.sinceThen(w.Reason, w.Message)
}

// stagesSoFar are the stages that the last attempt has been through, with what their checks have said.
func (s *scene) stagesSoFar() []string {
	var out []string
	if s.Op == nil || s.Op.ID != s.Workflow.OperationID {
		return nil
	}
	for _, step := range s.Op.Steps {
		if step.Message == "" || step.State == operation.StepWaiting {
			continue
		}
		stage := cmp.Or(workflow.StageOf(s.Workflow.Kind, step.Name), step.Name)
		out = append(out, "stage "+stage+": "+strings.ToLower(string(step.State))+", "+step.Message)
	}
	return out
}

func (s *scene) workflowName() string {
	text := strings.ToLower(string(s.Workflow.Kind))
	if s.Workflow.Mode != "" {
		text += " (" + strings.ToLower(string(s.Workflow.Mode)) + ")"
	}
	return text + " " + s.Workflow.ID
}

// actionsOf are the actions that are legal, with the one that helps most first.
func (s *scene) actionsOf(w workflow.Workflow, best workflow.Action, legal []workflow.Action) []explain.Action {
	all := slices.Clone(legal)
	slices.SortStableFunc(all, func(a, b workflow.Action) int { return rank(a == best) - rank(b == best) })
	out := make([]explain.Action, 0, len(all))
	for _, a := range all {
		act := workflowActions[a]
		act.Command = "ingot workflow act " + w.ID + " " + strings.ReplaceAll(strings.ToLower(string(a)), "_", "-")
		out = append(out, act)
	}
	return out
}

func rank(first bool) int {
	if first {
		return 0
	}
	return 1
}
