package workflow_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
)

// TestAWorkflowShowsWhatItsProviderSays: as last observed when it began, and again with each of its decisions.
func TestAWorkflowShowsWhatItsProviderSays(t *testing.T) {
	s := newMAASRig(t).Store
	storetest.Exec(
		t,
		s,
		`INSERT INTO provider_observations (machine_id, provider, state, status, system_id, power_state, deployed, drift, reason, message, changed_at)
		VALUES ('m-1', 'maas', 'New', 'New', 'abc', 'off', '', '', '', '', now())`,
	)
	op, _, err := s.Workflows.StartWorkflow(t.Context(), workflowstore.WorkflowStart{MachineID: "m-1", RequestID: "x",
		Kind: workflow.Onboarding, Actor: "tester"}, storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	shows := func(want string) {
		t.Helper()
		all, err := s.Workflows.ListWorkflows(t.Context(), workflowstore.WorkflowFilter{MachineID: "m-1", Limit: 1})
		if err != nil || len(all) != 1 || all[0].GetObservedProviderState() != want {
			t.Errorf("%v, %v; want %s", all, err, want)
		}
	}
	shows("New")
	storetest.Exec(t, s, "UPDATE provider_observations SET state = 'Ready', status = 'Ready' WHERE machine_id = 'm-1'")
	storetest.Decide(t, s, op.GetOperationId(), operation.Evaluate{})
	shows("Ready")
}
