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

// TestABudgetOfInterruptionsHolds reboots a fleet in service under a budget of two, and takes three machines into
// maintenance. Never are more than two out of service, and a machine in maintenance keeps its slot until it is back.
func TestABudgetOfInterruptionsHolds(t *testing.T) {
	t.Parallel()
	const machines, slots = 6, 2
	c := harness.New(t, harness.Options{})
	budgets := baremetalv1.NewBudgetServiceClient(c.Conn())
	var fleet []string
	for range machines {
		fleet = append(fleet, inService(t, c).ID)
	}
	preview := harness.Must(
		t,
		baremetalv1.NewRolloutServiceClient(c.Conn()).PreviewRollout,
		&baremetalv1.PreviewRolloutRequest{
			Spec: &baremetalv1.RolloutSpec{Filter: "phase=READY", Type: "REBOOT"}},
	)
	if n := preview.GetDefaultInFlight(); n != 1 {
		t.Errorf("%d of %d machines would reboot at a time without a budget", n, machines)
	}
	harness.Must(t, budgets.SetBudget, &baremetalv1.SetBudgetRequest{Budget: &baremetalv1.Budget{Name: "all",
		Domain: "fleet", AtOnce: slots, Harm: baremetalv1.Budget_INTERRUPTS}})
	held := func() int {
		return len(harness.Must(t, budgets.ListBudgetSlots, &baremetalv1.ListBudgetSlotsRequest{}).GetSlots())
	}
	var ops []string
	for i, id := range fleet {
		ops = append(ops, harness.Must(t, c.Machines().RebootMachine, &baremetalv1.RebootMachineRequest{MachineId: id,
			RequestId: fmt.Sprint("reboot-", i)}).GetOperationId())
	}
	waited := false
	testkit.Eventually(t, rig.Soon, func() bool {
		running, done := 0, 0
		for _, id := range ops {
			op := c.Operation(id)
			waited = waited || op.GetWaitReason() == "WAITING_FOR_BUDGET"
			switch {
			case op.GetPhase() == baremetalv1.Operation_RUNNING:
				running++
			case harness.Ended(op):
				rig.Ended(t, op, rig.Succeeded, "")
				done++
			}
		}
		if n := held(); running > slots || n > slots {
			t.Fatalf("%d machines reboot and %d slots are held, %d may be", running, n, slots)
		}
		return done == machines
	}, "not all reboots ended")
	if !waited {
		t.Error("no reboot has waited for another")
	}
	testkit.Eventually(t, rig.Soon, func() bool { return held() == 0 }, "machines in service hold slots")
	enter := func(i int) string {
		return harness.Must(t, c.Machines().EnterMaintenance, &baremetalv1.EnterMaintenanceRequest{MachineId: fleet[i],
			RequestId: fmt.Sprint("out-", i)}).GetOperationId()
	}
	rig.Ended(t, c.Wait(enter(0), rig.Soon), rig.Succeeded, "")
	rig.Ended(t, c.Wait(enter(1), rig.Soon), rig.Succeeded, "")
	third := enter(2)
	testkit.Eventually(t, rig.Soon, func() bool {
		return c.Operation(third).GetWaitReason() == "WAITING_FOR_BUDGET"
	}, "the third machine left service")
	if n := held(); n != slots {
		t.Errorf("%d slots are held by %d machines in maintenance", n, slots)
	}
	op := harness.Must(t, c.Machines().ExitMaintenance, &baremetalv1.ExitMaintenanceRequest{MachineId: fleet[0],
		RequestId: "return"})
	rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	rig.Ended(t, c.Wait(third, rig.Soon), rig.Succeeded, "")
}

// inService installs a machine and brings it into service.
func inService(t *testing.T, c *harness.Cluster) *harness.Machine {
	t.Helper()
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	op := harness.Must(t, c.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{MachineId: m.ID,
		RequestId: "install", ImageRef: "ubuntu-2204"})
	rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	op = harness.Must(t, c.Machines().ExitMaintenance, &baremetalv1.ExitMaintenanceRequest{MachineId: m.ID,
		RequestId: "into-service"})
	rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	testkit.Eventually(t, rig.Soon, func() bool {
		return c.Machine(m.ID).GetStatus().GetEffectiveState() == baremetalv1.MachineStatus_IDLE
	}, "the machine is not in service")
	return m
}

// TestAFailedRebootKeepsItsSlot: a machine whose reboot has an unknown outcome is out of service, and no other machine
// takes its slot. It releases the slot by being in service again, without a further operation.
func TestAFailedRebootKeepsItsSlot(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m, other := inService(t, c), inService(t, c)
	budgets := baremetalv1.NewBudgetServiceClient(c.Conn())
	harness.Must(t, budgets.SetBudget, &baremetalv1.SetBudgetRequest{Budget: &baremetalv1.Budget{Name: "all",
		Domain: "fleet", AtOnce: 1, Harm: baremetalv1.Budget_INTERRUPTS}})
	rig.IsolateAt(m, "agent.after-intent")
	op := rig.Reboot(t, c.Client, m.ID, "r", 6)
	rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Failed, "OUTCOME_UNKNOWN")
	op = rig.Reboot(t, c.Client, other.ID, "r", rig.PatientTime)
	testkit.Eventually(t, rig.Soon, func() bool {
		return c.Operation(op.GetOperationId()).GetWaitReason() == "WAITING_FOR_BUDGET"
	}, "the other machine reboots beside one that is lost")
	m.Rejoin()
	rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
}
