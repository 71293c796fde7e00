package e2e

import (
	"fmt"
	"testing"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// TestAStolenOperateTokenCannotWipeAFleet: its holder asks for everything that destroys data on every machine, and
// tries each way around the budget. The budget's machines are lost and no other; the loss is read from the machines'
// own journals.
func TestAStolenOperateTokenCannotWipeAFleet(t *testing.T) {
	t.Parallel()
	const machines, perHour = 6, 2
	c := harness.New(t, harness.Options{})
	harness.Must(t, baremetalv1.NewBudgetServiceClient(c.Conn()).SetBudget, &baremetalv1.SetBudgetRequest{
		Budget: &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: machines, PerHour: perHour},
	})
	secret, err := auth.AddToken(c.TokensFile(), "stolen", access.ScopeOperate)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Controller().Reload(); err != nil {
		t.Fatal(err)
	}
	thief := c.WithToken(secret)
	var fleet []*harness.Machine
	for range machines {
		m := c.NewMachine(t, harness.MachineOptions{})
		m.WaitConnected()
		rig.Maintenance(t, thief, m.ID)
		fleet = append(fleet, m)
	}
	wipe := func(m *harness.Machine, request string) string {
		t.Helper()
		return harness.Must(t, thief.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{
			MachineId: m.ID, RequestId: request, ImageRef: "theirs",
		}).GetOperationId()
	}
	var ops []string
	for i, m := range fleet[:machines-1] {
		ops = append(ops, wipe(m, fmt.Sprint("wipe-", i)))
	}
	// What it may not do at all.
	budgets, admin := baremetalv1.NewBudgetServiceClient(thief.Conn()), thief.Admin()
	for what, err := range map[string]error{
		"lift the budget": second(budgets.SetBudget(t.Context(),
			&baremetalv1.SetBudgetRequest{Budget: &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1000}})),
		"delete the budget": second(budgets.DeleteBudget(t.Context(), &baremetalv1.DeleteBudgetRequest{Name: "all"})),
		"free a slot": second(budgets.ReleaseBudgetSlot(t.Context(),
			&baremetalv1.ReleaseBudgetSlotRequest{MachineId: fleet[0].ID})),
		"thaw": second(admin.ThawFleet(t.Context(), &baremetalv1.ThawFleetRequest{})),
		"enrol an agent": second(admin.IssueBootstrapToken(t.Context(),
			&baremetalv1.IssueBootstrapTokenRequest{MachineId: fleet[0].ID})),
	} {
		if !harness.HasReason(err, "SCOPE_TOO_SMALL") {
			t.Errorf("%s: %v", what, err)
		}
	}
	waiting := func(id string) bool {
		op := c.Operation(id)
		return op.GetPhase() == baremetalv1.Operation_PENDING && op.GetWaitReason() == "WAITING_FOR_BUDGET"
	}
	testkit.Eventually(t, rig.Soon, func() bool {
		ended, held := 0, 0
		for _, id := range ops {
			if harness.Ended(c.Operation(id)) {
				ended++
			} else if waiting(id) {
				held++
			}
		}
		return ended == perHour && held == len(ops)-perHour
	}, "the first %d do not end, or the others do not wait", perHour)
	// Slots are free again, and the hour is not. Other ways to the same end, after giving up the first.
	last := fleet[machines-2]
	harness.Must(t, thief.Machines().CancelOperation, &baremetalv1.CancelOperationRequest{OperationId: ops[machines-2]})
	harness.Must(t, thief.Machines().UpdateMachine, &baremetalv1.UpdateMachineRequest{Machine: &baremetalv1.Machine{
		MachineId: last.ID, Labels: map[string]string{"rack": "elsewhere"}, Spec: &baremetalv1.MachineSpec{},
	}})
	other := []string{wipe(last, "again")}
	run := harness.Must(t, baremetalv1.NewRunServiceClient(thief.Conn()).StartRun, &baremetalv1.StartRunRequest{
		MachineId: fleet[machines-1].ID, RequestId: "run", PlanId: "repave", Params: map[string]string{"image_ref": "theirs"},
	})
	other = append(other, run.GetRunId())
	testkit.Eventually(t, rig.Soon, func() bool { return waiting(other[0]) && waiting(other[1]) },
		"other ways do not wait: %v", other)
	// The one who looks after the fleet stops it, and nothing moves on.
	harness.Must(t, baremetalv1.NewBudgetServiceClient(c.Conn()).FreezeFleet,
		&baremetalv1.FreezeFleetRequest{Comment: "stolen"})
	c.Stop()
	lost := 0
	for _, m := range fleet {
		for _, e := range m.Journal() {
			if e.Stage == sim.StageEffect && (e.Kind == sim.KindRepave || e.Kind == sim.KindErase) {
				lost++
			}
		}
	}
	if lost != perHour {
		t.Errorf("%d machines were wiped, want %d", lost, perHour)
	}
}

func second[T any](_ T, err error) error { return err }
