package e2e

import (
	"fmt"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// TestABudgetHoldsAcrossAKill asks for many reimages at once under a budget of two, and kills the controller while they
// are under way. Never are more than two in flight, and all come to their end.
func TestABudgetHoldsAcrossAKill(t *testing.T) {
	t.Parallel()
	const machines, slots = 8, 2
	c := harness.New(t, harness.Options{})
	budgets := baremetalv1.NewBudgetServiceClient(c.Conn())
	harness.Must(t, budgets.SetBudget, &baremetalv1.SetBudgetRequest{
		Budget: &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: slots},
	})
	var ops []string
	for i := range machines {
		m := c.NewMachine(t, harness.MachineOptions{})
		m.WaitConnected()
		rig.Maintenance(t, c.Client, m.ID)
		ops = append(ops, harness.Must(t, c.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{
			MachineId: m.ID, RequestId: fmt.Sprint("reimage-", i), ImageRef: "ubuntu-2204",
		}).GetOperationId())
	}
	killed, most := false, 0
	testkit.Eventually(t, rig.Soon, func() bool {
		running, done := 0, 0
		for _, id := range ops {
			switch op := c.Operation(id); {
			case op.GetPhase() == baremetalv1.Operation_RUNNING:
				running++
			case harness.Ended(op):
				done++
			}
		}
		most = max(most, running)
		held := harness.Must(t, budgets.ListBudgetSlots, &baremetalv1.ListBudgetSlotsRequest{}).GetSlots()
		if running > slots || len(held) > slots {
			t.Fatalf("%d are in flight and %d slots are held, %d may be", running, len(held), slots)
		}
		if !killed && done >= 2 {
			killed = true
			c.Kill()
			c.Restart()
		}
		return done == machines
	}, "not all reimages ended")
	if !killed || most == 0 {
		t.Fatalf("killed: %t, most in flight: %d; nothing was shown", killed, most)
	}
	for _, id := range ops {
		rig.Ended(t, c.Operation(id), rig.Succeeded, "")
	}
}
