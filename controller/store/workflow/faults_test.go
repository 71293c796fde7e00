package workflow_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
)

// A decommission of each mode, in which each statement fails once: the call says so and changes nothing, and the same
// call brings the workflow on.
func TestAFailedStatementOfADecommissionChangesNothing(t *testing.T) {
	t.Parallel()
	for _, mode := range []workflow.Mode{workflow.SoftReset, workflow.Reimage, workflow.StorageCleanup,
		workflow.FullDecommission} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := storetest.NewLifeRigOn(t, storetest.NewFaulty(t))
			r.Start(workflow.Decommission, mode)
			r.Ended(r.Run(), mode)
		})
	}
}

// A stage fails, waits for an operator, and is run again.
func TestAFailedStatementOfAnActionChangesNothing(t *testing.T) {
	t.Parallel()
	for _, action := range []workflow.Action{workflow.Resume, workflow.RetryStage, workflow.Cancel} {
		t.Run(string(action), func(t *testing.T) {
			t.Parallel()
			r := storetest.NewLifeRigOn(t, storetest.NewFaulty(t))
			r.FailWith = map[string]operation.Resulted{"reboot": {Outcome: operation.OutcomeFailed,
				Reason: "EXECUTION_FAILED", Message: "no"}}
			r.Start(workflow.Decommission, workflow.SoftReset)
			w := r.Run()
			if err := storetest.Each(t, r.Store, func() error {
				_, err := r.Store.Workflows.ActOnWorkflow(t.Context(), workflowstore.WorkflowAct{WorkflowID: w.GetWorkflowId(),
					RequestID: "again", Action: action, Actor: "tester",
					Inputs: workflowstore.SameInputs(storetest.Inputs("img"))}, storetest.Now())
				return err
			}); err != nil {
				t.Fatal(err)
			}
			if action == workflow.Cancel {
				storetest.Intact(t, r.Store, "m-1")
				return
			}
			r.Ended(r.Run(), workflow.SoftReset)
		})
	}
}
