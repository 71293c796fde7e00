package view

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func moment(second int) *timestamppb.Timestamp {
	return timestamppb.New(time.Date(2026, 3, 1, 12, 0, second, 0, time.UTC))
}

// One transaction is several lines with one number.
func TestTimelineOfAWorkflow(t *testing.T) {
	got := TableOf(Style{}, false, Style.Timeline, []*pb.TimelineEntry{
		{Seq: 7, Change: 1, Ts: moment(2), Kind: "workflow", Actor: "system", OperationId: "op-1",
			Summary: "DECOMMISSION (SOFT_RESET) RUNNING at stage drain_node"},
		{Seq: 7, Change: 0, Ts: moment(2), Kind: "step", Actor: "system", OperationId: "op-1",
			Summary: "step disable-node SUCCEEDED: the phase is MAINTENANCE"},
		{Seq: 6, Ts: moment(1), Kind: "audit", Actor: "team", OperationId: "op-1", Summary: "DECOMMISSION"},
	}...).String()
	want := `SEQ  TIME                  KIND      ACTOR   OPERATION_ID  SUMMARY
7    2026-03-01T12:00:02Z  workflow  system  op-1          DECOMMISSION (SOFT_RESET) RUNNING at stage drain_node
7    2026-03-01T12:00:02Z  step      system  op-1          step disable-node SUCCEEDED: the phase is MAINTENANCE
6    2026-03-01T12:00:01Z  audit     team    op-1          DECOMMISSION
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestStateThenWithAWorkflow(t *testing.T) {
	got := Style{}.StateThen("m-1", moment(3), &pb.TimelineState{
		Seq: 7, Ts: moment(2),
		Status: &pb.MachineStatus{Phase: pb.MachineStatus_MAINTENANCE, EffectiveState: pb.MachineStatus_BUSY,
			NodeState: pb.NodeState_NODE_STATE_DRAINING},
		OperationId: "op-1", OperationType: "DECOMMISSION", OperationPhase: "RUNNING", OperationStage: "drain-node",
		StepStates:   map[string]string{"disable-node": "SUCCEEDED", "drain-node": "RUNNING"},
		StepMessages: map[string]string{"disable-node": "the phase is MAINTENANCE"},
		WorkflowId:   "wf-1", WorkflowKind: "DECOMMISSION", WorkflowMode: "SOFT_RESET", WorkflowState: "RUNNING",
		WorkflowStage: "drain_node",
	})
	want := `Machine:     m-1
At:          2026-03-01T12:00:03Z
LastChange:  2026-03-01T12:00:02Z (entry 7)
Phase:       MAINTENANCE
State:       BUSY
NodeState:   draining
Operation:   op-1, DECOMMISSION RUNNING, drain-node
Workflow:    wf-1, DECOMMISSION SOFT_RESET, RUNNING, stage drain_node
Step:        disable-node SUCCEEDED, the phase is MAINTENANCE
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
