package view

import (
	"strconv"
	"strings"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// WorkflowKind is what a workflow is for, in one word: its mode, or "onboarding".
func WorkflowKind(w *pb.Workflow) string {
	if w.GetKind() == pb.Workflow_ONBOARDING {
		return "onboarding"
	}
	return strings.ToLower(w.GetMode().String())
}

func (s Style) workflowState(state pb.Workflow_State) string {
	name := state.String()
	switch state {
	case pb.Workflow_COMPLETED, pb.Workflow_RECONCILED:
		return s.paint(green, name)
	case pb.Workflow_FAILED_RETRYABLE, pb.Workflow_FAILED_MANUAL_INTERVENTION:
		return s.paint(red, name)
	case pb.Workflow_CANCELLED, pb.Workflow_COMPENSATING:
		return s.paint(yellow, name)
	case pb.Workflow_RUNNING:
		return s.paint(blue, name)
	}
	return name
}

// Workflows are the columns of `ingot workflow list`.
func (s Style) Workflows(w *pb.Workflow) (cells, wide []Cell) {
	return []Cell{
			{"WORKFLOW_ID", w.GetWorkflowId()}, {"MACHINE_ID", w.GetMachineId()}, {"MODE", WorkflowKind(w)},
			{"STATE", s.workflowState(w.GetState())}, {"STAGE", w.GetCurrentStage()},
			{"ATTEMPTS", strconv.Itoa(int(w.GetAttemptCount()))}, {"AGE", Age(w.GetCreatedAt(), s.Now)},
		}, []Cell{
			{"FAILURE_CLASS", w.GetFailureClass()}, {"REASON", w.GetReason()}, {"OPERATION_ID", w.GetOperationId()},
			{"NEXT", Clean(w.GetRecommendedAction())},
		}
}

// ActionName is an action as the command line takes it.
func ActionName(a pb.WorkflowAction) string {
	return strings.ReplaceAll(strings.ToLower(trimEnum(a.String(), "WORKFLOW_ACTION_")), "_", "-")
}

// Workflow is the sheet of `ingot workflow get`.
func (s Style) Workflow(w *pb.Workflow) string {
	f := &Fields{}
	f.Add("Workflow", w.GetWorkflowId())
	f.Add("Machine", w.GetMachineId())
	f.Add("Mode", WorkflowKind(w))
	f.Add("State", s.workflowState(w.GetState()))
	f.Add("Stage", w.GetCurrentStage())
	f.Add("Stages", strings.Join(w.GetStages(), " → "))
	f.Add("Attempts", strconv.Itoa(int(w.GetAttemptCount())))
	f.Add("FailureClass", w.GetFailureClass())
	f.Add("Reason", w.GetReason())
	f.Add("Message", Clean(w.GetMessage()))
	f.Add("Observed", w.GetObservedProviderState())
	f.Add("Operation", w.GetOperationId())
	f.Add("Next", Clean(w.GetRecommendedAction()))
	names := make([]string, 0, len(w.GetLegalActions()))
	for _, a := range w.GetLegalActions() {
		names = append(names, ActionName(a))
	}
	f.Add("Actions", strings.Join(names, ", "))
	f.Add("Age", Age(w.GetCreatedAt(), s.Now))
	return f.String()
}

// Foretold returns the answer of a dry run. begin is the command that does it; "" leaves it out.
func Foretold(op *pb.Operation, begin string) string {
	f := &Fields{}
	f.Add("Machine", op.GetMachineId())
	f.Add("Would", Clean(op.GetParams()["would"]))
	f.Add("Stages", strings.ReplaceAll(op.GetParams()["stages"], ",", " → "))
	for sentence := range strings.SplitSeq(op.GetParams()["not_asked"], "\n") {
		f.Add("Not known", Clean(sentence))
	}
	f.Add("To begin", Clean(begin))
	return f.String()
}
