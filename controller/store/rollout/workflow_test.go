package rollout_test

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// inService is a rig whose machine has left maintenance.
func inService(t *testing.T) *storetest.LifeRig {
	t.Helper()
	life := storetest.NewLifeRig(t)
	op, _, err := life.Store.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "exit",
		Type: fleet.ExitMaintenance, Actor: "tester"}, storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	life.Decide(op.GetOperationId(), operation.Evaluate{})
	return life
}

func decommissioning(t *testing.T, mode baremetalv1.Workflow_Mode, enter bool) rolloutstore.RolloutRequest {
	t.Helper()
	r := rolloutRequest(&baremetalv1.RolloutSpec{Action: baremetalv1.RolloutSpec_DECOMMISSION, Mode: mode,
		EnterMaintenance: enter, Params: map[string]string{"image_ref": "img"}})
	w, ok, err := rolloutstore.WorkflowOf(r.Spec)
	if err != nil || !ok {
		t.Fatalf("no workflow: %v", err)
	}
	r.Work = w.Request()
	return r
}

// TestARolloutDecommissions machines in service: each is brought into maintenance, and its workflow runs once, also
// when the controller dies while it starts.
func TestARolloutDecommissions(t *testing.T) {
	for _, mode := range workflow.Modes(workflow.Decommission) {
		for _, crash := range []string{"", "rollout.before-start-commit", "rollout.started"} {
			t.Run(string(mode)+",crash="+crash, func(t *testing.T) {
				t.Parallel()
				life := inService(t)
				mode := baremetalv1.Workflow_Mode(baremetalv1.Workflow_Mode_value[string(mode)])
				p := preview(t, life.Store, decommissioning(t, mode, true))
				if lost := mode != baremetalv1.Workflow_SOFT_RESET; p.GetDestructive() != lost || p.GetInService() != 1 {
					t.Errorf("the preview says %v", p)
				}
				r := begin(t, life.Store, decommissioning(t, mode, true))
				if n := storetest.Count(t, r.s, "SELECT count(*) FROM rollouts WHERE wake_at IS NOT NULL"); n > 0 {
					t.Error("an older version of the controller would look at the rollout")
				}
				r.advance()
				claimed := r.advance().Starting
				if crash != "" {
					scope := failpoint.NewScope()
					scope.Set(crash, failpoint.Error().At(1))
					if _, err := r.s.Rollouts.StartRolloutMachine(failpoint.With(t.Context(), scope), r.id, claimed[0],
						storetest.Now()); err == nil {
						t.Fatalf("no crash at %s", crash)
					}
				}
				r.start(claimed[0])
				w := life.Run()
				r.until(rollout.Succeeded, false)
				r.wants("m-1:1:SUCCEEDED")
				life.Ended(w, workflow.Mode(mode.String()))
				if n := storetest.Count(t, r.s, "SELECT count(*) FROM workflows"); n != 1 {
					t.Errorf("%d workflows", n)
				}
			})
		}
	}
}

// TestADecommissionThatFailsInARollout is the rollout's failure, and its workflow can be resumed.
func TestADecommissionThatFailsInARollout(t *testing.T) {
	t.Parallel()
	life := inService(t)
	life.FailWith = map[string]operation.Resulted{"erase": {Outcome: operation.OutcomeFailed, Reason: "EXECUTION_FAILED",
		Message: "the disk said no"}}
	r := begin(t, life.Store, decommissioning(t, baremetalv1.Workflow_FULL_DECOMMISSION, true))
	r.step()
	r.step()
	life.Run()
	r.until(rollout.Failed, false)
	r.wants("m-1:1:FAILED:EXECUTION_FAILED")
	life.MustAct(workflow.Resume, "again")
	if w := life.Run(); w.GetState() != baremetalv1.Workflow_COMPLETED || life.Node() != "DELETED" {
		t.Errorf("%v, the node is %s", w, life.Node())
	}
}

// TestMachinesInServiceAreLeftOut of a decommission that does not bring them into maintenance.
func TestMachinesInServiceAreLeftOut(t *testing.T) {
	t.Parallel()
	life := inService(t)
	p := preview(t, life.Store, decommissioning(t, baremetalv1.Workflow_FULL_DECOMMISSION, false))
	if len(p.GetWaves()) != 0 || p.GetMachines()[0].GetReason() != "WRONG_PHASE" {
		t.Errorf("%v", p)
	}
}
