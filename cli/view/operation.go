package view

import (
	"cmp"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/times"
)

// Finished reports whether an operation has reached its end.
func Finished(op *pb.Operation) bool {
	switch op.GetPhase() {
	case pb.Operation_SUCCEEDED, pb.Operation_FAILED, pb.Operation_CANCELED:
		return true
	}
	return false
}

func (s Style) opPhase(p pb.Operation_Phase) string {
	name := trimEnum(p.String(), "PHASE_")
	switch p {
	case pb.Operation_SUCCEEDED:
		return s.paint(green, name)
	case pb.Operation_FAILED:
		return s.paint(red, name)
	case pb.Operation_CANCELED:
		return s.paint(yellow, name)
	case pb.Operation_RUNNING:
		return s.paint(blue, name)
	}
	return name
}

func opType(t pb.Operation_OperationType) string { return trimEnum(t.String(), "OPERATION_TYPE_") }

// Operations are the columns of `ingot ops`.
func (s Style) Operations(op *pb.Operation) (cells, wide []Cell) {
	return []Cell{
			{"OPERATION_ID", op.GetOperationId()}, {"MACHINE_ID", op.GetMachineId()}, {"TYPE", opType(op.GetType())},
			{"PHASE", s.opPhase(op.GetPhase())}, {"STAGE", op.GetCurrentStage()}, {"AGE", Age(op.GetCreatedAt(), s.Now)},
			{"DURATION", took(op, s.Now)}, {"REASON", cmp.Or(op.GetError().GetCode(), op.GetWaitReason())},
		}, []Cell{
			{"REQUEST_ID", op.GetRequestId()}, {"PLAN", op.GetPlanId()}, {"PARAMS", Pairs(op.GetParams())},
			{"MESSAGE", Clean(op.GetError().GetMessage())},
		}
}

// took is how long the operation ran, or has been running.
func took(op *pb.Operation, now time.Time) string {
	if op.GetStartedAt() == nil {
		return ""
	}
	if op.GetFinishedAt() == nil {
		return Age(op.GetStartedAt(), now)
	}
	return Between(op.GetStartedAt(), op.GetFinishedAt())
}

// OperationLine is the one line that names an operation and its phase.
func (s Style) OperationLine(op *pb.Operation) string {
	return "Operation: " + op.GetOperationId() + " (" + s.opPhase(op.GetPhase()) + ")\n"
}

// Operation is the sheet of `ingot ops get`.
func (s Style) Operation(op *pb.Operation) string {
	f := &Fields{}
	f.Add("Operation", op.GetOperationId())
	f.Add("Machine", op.GetMachineId())
	f.Add("Type", opType(op.GetType()))
	f.Add("Phase", s.opPhase(op.GetPhase()))
	f.Add("Stage", op.GetCurrentStage())
	f.Add("WaitReason", op.GetWaitReason())
	f.Add("NextLookAt", Time(op.GetNextLookAt()))
	f.Add("RequestId", op.GetRequestId())
	f.Add("Plan", op.GetPlanId())
	f.Add("Params", Pairs(op.GetParams()))
	f.Add("Created", Time(op.GetCreatedAt()))
	f.Add("Started", Time(op.GetStartedAt()))
	f.Add("Finished", Time(op.GetFinishedAt()))
	f.Add("Duration", took(op, s.Now))
	if e := op.GetError(); e != nil {
		f.Add("Error", s.Bad(Clean(e.GetMessage())+" ("+e.GetCode()+")"))
		f.Add("Retryable", yesNo(e.GetRetryable()))
		f.Add("ErrorDetails", Pairs(e.GetDetails()))
	}
	text := f.String()
	for _, line := range evidenceLines(op) {
		text += line + "\n"
	}
	return text
}

// WatchLine is one line of the fleet-wide watch.
func (s Style) WatchLine(ev *pb.OperationEvent) string {
	op := ev.GetSnapshot()
	line := "[" + times.Clock(ev.GetTs()) + "] " + pad(op.GetMachineId(), 10) + "  " + op.GetOperationId() + "  " +
		pad(opType(op.GetType()), 17) + "  " + pad(s.opPhase(op.GetPhase()), 9)
	if msg := Clean(ev.GetMessage()); msg != "" {
		line += "  " + msg
	}
	return trimRight(line) + "\n"
}
