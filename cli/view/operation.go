package view

import (
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/times"
)

// Finished says whether an operation has reached its end.
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

// Operations is the table of `ingot ops`.
func (s Style) Operations(ops []*pb.Operation, wide bool, now time.Time) *Table {
	t := &Table{Header: []string{"OPERATION_ID", "MACHINE_ID", "TYPE", "PHASE", "STAGE", "AGE", "DURATION"}}
	if wide {
		t.Header = append(t.Header, "WAIT_REASON", "REQUEST_ID", "PLAN", "PARAMS", "ERROR")
	}
	for _, op := range ops {
		row := []string{
			op.GetOperationId(), op.GetMachineId(), opType(op.GetType()), s.opPhase(op.GetPhase()),
			op.GetCurrentStage(), Age(op.GetCreatedAt(), now), took(op, now),
		}
		if wide {
			row = append(row, op.GetWaitReason(), op.GetRequestId(), op.GetPlanId(), Pairs(op.GetParams()),
				op.GetError().GetCode())
		}
		t.Add(row...)
	}
	return t
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
func (s Style) Operation(op *pb.Operation, now time.Time) string {
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
	f.Add("Duration", took(op, now))
	f.Add("Evidence", Pairs(op.GetEvidence()))
	if e := op.GetError(); e != nil {
		f.Add("Error", s.Bad(Clean(e.GetMessage())+" ("+e.GetCode()+")"))
		f.Add("Retryable", yesNo(e.GetRetryable()))
		f.Add("ErrorDetails", Pairs(e.GetDetails()))
	}
	return f.String()
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
