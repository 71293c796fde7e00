package workflow_test

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
)

// TestLives makes each call of a workflow's life once for each of its statements, with that one failing: the call
// returns the error and changes nothing, and the same call brings the workflow on. And it compares the rows that each
// call writes.
func TestLives(t *testing.T) {
	for _, mode := range []workflow.Mode{workflow.SoftReset, workflow.Reimage, workflow.StorageCleanup,
		workflow.FullDecommission} {
		t.Run(string(mode), func(t *testing.T) {
			storetest.OnEach(t, func(t *testing.T, s *store.Store) {
				r := storetest.NewLifeRigOn(t, s)
				r.Start(workflow.Decommission, mode)
				r.Ended(r.Run(), mode)
			})
		})
	}
	// A stage fails, waits for an operator, and is run again.
	for _, action := range []workflow.Action{workflow.Resume, workflow.RetryStage, workflow.Cancel} {
		t.Run(string(action), func(t *testing.T) {
			storetest.OnEach(t, func(t *testing.T, s *store.Store) { failsAndGoesOn(t, s, action) })
		})
	}
	t.Run("adopted", func(t *testing.T) { storetest.OnRecorded(t, adopted) })
}

func failsAndGoesOn(t *testing.T, s *store.Store, action workflow.Action) {
	t.Helper()
	r := storetest.NewLifeRigOn(t, s)
	r.FailWith = map[string]operation.Resulted{"reboot": {Outcome: operation.OutcomeFailed,
		Reason: "EXECUTION_FAILED", Message: "no"}}
	r.Start(workflow.Decommission, workflow.SoftReset)
	w := r.Run()
	if err := storetest.Each(t, s, func() error {
		_, err := s.Workflows.ActOnWorkflow(t.Context(), workflowstore.WorkflowAct{WorkflowID: w.GetWorkflowId(),
			RequestID: "again", Action: action, Actor: "tester",
			Inputs: workflowstore.SameInputs(storetest.Inputs("img"))}, storetest.Now())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if action != workflow.Cancel {
		r.Ended(r.Run(), workflow.SoftReset)
	}
}

// adopted is a machine that has a system already, and comes into service with its token.
func adopted(t *testing.T, s *store.Store) {
	t.Helper()
	r := &storetest.LifeRig{T: t, Store: s, Boot: "boot-1"}
	storetest.Register(t, s, "m-1", storetest.LifeMAC)
	storetest.Lease(t, s)
	storetest.Token(t, s, agentstore.NewToken{TokenID: "t-0", MachineID: "m-1"})
	storetest.Maintenance(t, s, "m-1")
	r.Start(workflow.Onboarding, workflow.NoMode)
	op := r.Workflow().GetOperationId()
	r.Decide(op, operation.Evaluate{})
	r.Agent = storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"})
	for _, id := range r.Open() {
		r.Decide(id, operation.SessionOpened{AgentID: r.Agent.ID, StateID: "st-1", BootID: r.Boot, OfTarget: true})
	}
	r.Agent.Arrived(t, s, storetest.LifeMAC)
	r.Decide(op, operation.Evaluate{})
	if w := r.Workflow(); w.GetState() != baremetalv1.Workflow_COMPLETED || r.Node() != "ACTIVE" {
		t.Errorf("the node is %s, the workflow %v", r.Node(), w)
	}
}
