package public_test

import (
	"context"
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
)

// TestFiltersReadEnumsAsJSONDoes: each list takes the full name of an enum's value, the name without its prefix, and
// both in lower case.
func TestFiltersReadEnumsAsJSONDoes(t *testing.T) {
	r := publictest.NewRig(t)
	if _, err := r.Machines.RegisterMachine(t.Context(),
		&pb.RegisterMachineRequest{Machine: publictest.NewMachine(1)}); err != nil {
		t.Fatal(err)
	}
	calls := map[string]func(context.Context, string) (int, error){
		"agents": func(ctx context.Context, f string) (int, error) {
			a, err := r.Admin.ListAgents(ctx, &pb.ListAgentsRequest{Filter: f})
			return len(a.GetAgents()), err
		},
		"machines": func(ctx context.Context, f string) (int, error) {
			a, err := r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{Filter: f})
			return len(a.GetMachines()), err
		},
		"operations": func(ctx context.Context, f string) (int, error) {
			a, err := r.Operations.ListOperations(ctx, &pb.ListOperationsRequest{Filter: f})
			return len(a.GetOperations()), err
		},
		"runs": func(ctx context.Context, f string) (int, error) {
			a, err := r.Runs.ListRuns(ctx, &pb.ListRunsRequest{Filter: f})
			return len(a.GetRuns()), err
		},
		"workflows": func(ctx context.Context, f string) (int, error) {
			a, err := r.Workflows.ListWorkflows(ctx, &pb.ListWorkflowsRequest{Filter: f})
			return len(a.GetWorkflows()), err
		},
		"rollouts": func(ctx context.Context, f string) (int, error) {
			a, err := r.Rollouts.ListRollouts(ctx, &pb.ListRolloutsRequest{Filter: f})
			return len(a.GetRollouts()), err
		},
		"images": func(ctx context.Context, f string) (int, error) {
			a, err := r.Admin.ListImages(ctx, &pb.ListImagesRequest{Filter: f})
			return len(a.GetImages()), err
		},
	}
	for _, c := range []struct {
		list, term string
		found      int
	}{
		{"agents", "role=AGENT_ROLE_SITE", 0}, {"agents", "role=SITE", 0}, {"machines", "state=NEW", 1},
		{"machines", "node_state=NODE_STATE_DISCOVERED", 1}, {"machines", "node_state=DISCOVERED", 1},
		{"machines", "phase=MAINTENANCE", 0}, {"operations", "phase=FAILED", 0}, {"operations", "type=REBOOT", 0},
		{"runs", "phase=FAILED", 0}, {"runs", "type=REPAVE", 0}, {"workflows", "state=RUNNING", 0},
		{"workflows", "kind=ONBOARDING", 0}, {"rollouts", "state=COMPLETED_WITH_FAILURES", 0}, {"images", "kind=OS", 0},
	} {
		key, value, _ := strings.Cut(c.term, "=")
		for _, v := range []string{value, strings.ToLower(value)} {
			n, err := calls[c.list](t.Context(), key+"="+v)
			if err != nil || n != c.found {
				t.Errorf("%s with %s=%s: %d rows, want %d; %v", c.list, key, v, n, c.found, err)
			}
		}
	}
}
