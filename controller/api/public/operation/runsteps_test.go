package operation

import (
	"fmt"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/store/operationlog"
)

func TestReplayedEventsShowTheStepsOfTheirTime(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 21, 13, 45, 0, 0, time.UTC)
	now := []*pb.StepStatus{
		{Name: "a", State: pb.StepStatus_SUCCEEDED, RetryCount: 1, Evidence: map[string]string{"boot_id_after": "b"},
			StartedAt: service.Stamp(at), FinishedAt: service.Stamp(at)},
		{
			Name:       "b",
			State:      pb.StepStatus_FAILED,
			Message:    "canceled by tester",
			StartedAt:  service.Stamp(at),
			FinishedAt: service.Stamp(at),
		},
		{Name: "c", State: pb.StepStatus_WAITING},
	}
	events := []operationlog.Event{
		{Kind: "created"}, {Kind: "started"}, {Kind: "step_started", Step: "a"}, {Kind: "step_retrying", Step: "a"},
		{Kind: "step_succeeded", Step: "a"},
		{Kind: "step_started", Step: "b"}, {Kind: "cancel_requested", Step: "b"},
		{Kind: "canceled", Step: "b", Message: "canceled by tester"},
	}
	want := []string{"WAITING WAITING", "WAITING WAITING", "RUNNING WAITING", "RUNNING WAITING", "SUCCEEDED WAITING",
		"SUCCEEDED RUNNING", "SUCCEEDED RUNNING", "SUCCEEDED FAILED"}
	for i := range events {
		events[i].TS = at.Add(time.Duration(i) * time.Second)
		got := stepsAt(now, events[:i+1])
		if states := fmt.Sprint(got[0].GetState(), " ", got[1].GetState()); states != want[i] ||
			got[2].GetState() != pb.StepStatus_WAITING {
			t.Errorf("after %s the steps are %s, not %s", events[i].Kind, states, want[i])
		}
		if ended := got[0].GetFinishedAt() != nil; ended != (i >= 4) || (got[0].GetEvidence() != nil) != (i >= 4) {
			t.Errorf("after %s step a is %v", events[i].Kind, got[0])
		}
	}
	if len(now[0].GetEvidence()) == 0 || now[1].GetState() != pb.StepStatus_FAILED {
		t.Errorf("the run was changed: %v", now)
	}
}
