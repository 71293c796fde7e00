package workflow_test

import (
	"slices"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// A machine with an accelerator is not handed on before its memory was cleared: modes that hand the machine on with its
// system, or remove it, reset the accelerator after the disks. An attempt whose reset has failed goes no further.
func TestAcceleratorsAreResetBeforeAMachineLeaves(t *testing.T) {
	for _, mode := range []workflow.Mode{workflow.SoftReset, workflow.FullDecommission} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := storetest.NewLifeRig(t)
			r.WithAccelerator()
			r.FailWith = map[string]operation.Resulted{
				"resetdevices": {Outcome: operation.OutcomeFailed, Reason: "DEVICE_RESET_FAILED",
					Message: "accelerator 0000:17:00.0: it does not answer"},
			}
			w := r.Start(workflow.Decommission, mode)
			if !slices.Contains(w.GetStages(), workflow.ScrubGPU) {
				t.Fatalf("its stages are %v", w.GetStages())
			}
			w = r.Run()
			if !failedWorkflow(w) || w.GetCurrentStage() != workflow.ScrubGPU || w.GetReason() != "DEVICE_RESET_FAILED" ||
				r.Node() == "DELETED" {
				t.Fatalf("after a reset that failed the node is %s, the workflow %v", r.Node(), w)
			}
			r.MustAct(workflow.Resume, "again")
			w = r.Run()
			if w.GetState() != baremetalv1.Workflow_COMPLETED || r.Resets(w) != 1 {
				t.Fatalf("%d resets, the workflow %v", r.Resets(w), w)
			}
			if n := storetest.Count(t, r.Store, `SELECT count(*) FROM workflows WHERE evidence ->> $1 LIKE '0000:17:00.0%'`,
				evidence.DevicesReset); n != 1 {
				t.Error("the workflow keeps no evidence of the reset")
			}
		})
	}
}

// Without an accelerator there is nothing to reset: a display chip is none.
func TestAMachineWithoutAcceleratorsResetsNothing(t *testing.T) {
	r := storetest.NewLifeRig(t)
	r.Start(workflow.Decommission, workflow.SoftReset)
	if w := r.Run(); w.GetState() != baremetalv1.Workflow_COMPLETED || r.Resets(w) != 0 {
		t.Errorf("%d resets, the workflow %v", r.Resets(w), w)
	}
}

func failedWorkflow(w *baremetalv1.Workflow) bool {
	return w.GetState() == baremetalv1.Workflow_FAILED_RETRYABLE ||
		w.GetState() == baremetalv1.Workflow_FAILED_MANUAL_INTERVENTION
}
