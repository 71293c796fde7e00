package rollout_test

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// TestAPreviewCountsWhatTakesASlot: three machines are IDLE, one is in maintenance, and one is in service and needs
// attention. A budget of interruptions is asked for three slots, by the preview as by the work.
func TestAPreviewCountsWhatTakesASlot(t *testing.T) {
	s := storetest.New(t)
	storetest.SetBudget(t, s,
		&baremetalv1.Budget{Name: "out", Domain: "fleet", AtOnce: 2, Harm: baremetalv1.Budget_INTERRUPTS})
	start := func(id string, kind fleet.OperationType) string {
		return storetest.Start(t, s, operationstore.StartRequest{MachineID: id, RequestID: string(kind), Type: kind}).
			GetOperationId()
	}
	ids := []string{"m-1", "m-2", "m-3", "m-4", "m-5"}
	for i, id := range ids {
		storetest.Register(t, s, id)
		storetest.Simulated(t, s, id)
		storetest.Maintenance(t, s, id)
		if i != 3 {
			storetest.Decide(t, s, start(id, fleet.ExitMaintenance), operation.Evaluate{})
		}
	}
	storetest.Exec(t, s, "UPDATE machine_conditions SET status = false WHERE machine_id = 'm-5' AND type = 'Provisioned'")
	for id, want := range map[string]baremetalv1.MachineStatus_EffectiveState{"m-1": baremetalv1.MachineStatus_IDLE,
		"m-4": baremetalv1.MachineStatus_MAINTENANCE_IDLE, "m-5": baremetalv1.MachineStatus_ATTENTION} {
		if st := storetest.Machine(t, s, id).GetStatus(); st.GetEffectiveState() != want {
			t.Fatalf("%s is %s: %s", id, st.GetEffectiveState(), st.GetAttentionMessage())
		}
	}
	enters := rolloutRequest(&baremetalv1.RolloutSpec{MaxInFlight: 5})
	reboots := rolloutRequest(&baremetalv1.RolloutSpec{MaxInFlight: 5})
	reboots.Work.Type = fleet.Reboot
	for name, r := range map[string]rolloutstore.RolloutRequest{
		"enter maintenance": enters, "reboot": reboots, "provision": provisioning(&baremetalv1.RolloutSpec{MaxInFlight: 5}),
		"decommission": decommissioning(t, baremetalv1.Workflow_SOFT_RESET, true),
	} {
		p := preview(t, s, r)
		if len(p.GetBudgets()) != 1 || p.GetBudgets()[0].GetLimit() != 2 || p.GetBudgets()[0].GetWanted() != 3 {
			t.Errorf("%s: budgets %v of %v", name, p.GetBudgets(), p.GetMachines())
		}
	}
	for _, id := range ids {
		start(id, fleet.Reboot)
	}
	storetest.AdmitDestructive(t, s, 2)
}
