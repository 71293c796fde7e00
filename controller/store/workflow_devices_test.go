package store_test

import (
	"slices"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// withAccelerator lets the machine's agent report an inventory with an accelerator beside a server's display chip.
func (r *lifeRig) withAccelerator() {
	r.Helper()
	doc := `{"system": {"serial": "sn-1"}, "nics": [{"name": "eth0", "mac": "` + lifeMAC + `"}], "pci": [` +
		`{"address": "0000:03:00.0", "class": "030000", "vendor": "1a03"}, {"address": "0000:17:00.0", "class": "030200", "vendor": "10de"}]}`
	k := store.EventKey{AgentID: r.agent.id, StateID: "st-1", Seq: 1 << 62}
	if err := r.s.InventoryEvent(r.Context(), k, "m-1", "with an accelerator", []byte(doc), false, now()); err != nil {
		r.Fatal(err)
	}
}

// resets are the commands by which the workflow's attempt resets accelerators.
func (r *lifeRig) resets(w *baremetalv1.Workflow) int {
	r.Helper()
	list, err := r.s.ListCommands(r.Context(), store.CommandFilter{OperationID: w.GetOperationId(), Limit: 100})
	if err != nil {
		r.Fatal(err)
	}
	n := 0
	for _, c := range list {
		if c.GetKind() == string(operation.KindReset) {
			n++
		}
	}
	return n
}

// A machine with an accelerator is not handed on before its memory was cleared: modes that hand the machine on as it is, or take it
// away, reset it after the disks, and an attempt whose reset has failed goes no further.
func TestAcceleratorsAreResetBeforeAMachineLeaves(t *testing.T) {
	for _, mode := range []workflow.Mode{workflow.SoftReset, workflow.FullDecommission} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := newLifeRig(t)
			r.withAccelerator()
			r.fail = map[string]operation.Resulted{
				"resetdevices": {Outcome: operation.OutcomeFailed, Reason: "DEVICE_RESET_FAILED", Message: "accelerator 0000:17:00.0: it does not answer"},
			}
			w := r.start(workflow.Decommission, mode)
			if !slices.Contains(w.GetStages(), workflow.ScrubGPU) {
				t.Fatalf("its stages are %v", w.GetStages())
			}
			w = r.run()
			if !failedWorkflow(w) || w.GetCurrentStage() != workflow.ScrubGPU || w.GetReason() != "DEVICE_RESET_FAILED" || r.node() == "DELETED" {
				t.Fatalf("after a reset that failed the node is %s, the workflow %v", r.node(), w)
			}
			r.mustAct(workflow.Resume, "again")
			w = r.run()
			if w.GetState() != baremetalv1.Workflow_COMPLETED || r.resets(w) != 1 {
				t.Fatalf("%d resets, the workflow %v", r.resets(w), w)
			}
			if n := count(t, r.s, `SELECT count(*) FROM workflows WHERE evidence ->> $1 LIKE '0000:17:00.0%'`, evidence.DevicesReset); n != 1 {
				t.Error("the workflow keeps no evidence of the reset")
			}
		})
	}
}

// Without an accelerator there is nothing to reset: a display chip is none.
func TestAMachineWithoutAcceleratorsResetsNothing(t *testing.T) {
	r := newLifeRig(t)
	r.start(workflow.Decommission, workflow.SoftReset)
	if w := r.run(); w.GetState() != baremetalv1.Workflow_COMPLETED || r.resets(w) != 0 {
		t.Errorf("%d resets, the workflow %v", r.resets(w), w)
	}
}

func failedWorkflow(w *baremetalv1.Workflow) bool {
	return w.GetState() == baremetalv1.Workflow_FAILED_RETRYABLE || w.GetState() == baremetalv1.Workflow_FAILED_MANUAL_INTERVENTION
}
