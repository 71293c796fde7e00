package rollout_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/internal/failure"
)

func TestBudgets(t *testing.T) {
	r := publictest.NewRig(t)
	set := func(b *pb.Budget) (*pb.Budget, error) {
		return r.Budgets.SetBudget(t.Context(), &pb.SetBudgetRequest{Budget: b})
	}
	first, err := set(&pb.Budget{Name: "racks", Domain: "label:rack", Percent: 10, PerDay: 100})
	if err != nil || first.GetPercent() != 10 || first.GetPerDay() != 100 || first.GetUpdatedAt() == nil {
		t.Fatalf("%v, %v", first, err)
	}
	if _, err := set(&pb.Budget{Name: "all", Domain: "fleet", AtOnce: 50}); err != nil {
		t.Fatal(err)
	}
	again, err := set(&pb.Budget{Name: "racks", Domain: "label:rack", Value: "r1", AtOnce: 1})
	if err != nil || again.GetPercent() != 0 || again.GetAtOnce() != 1 || again.GetValue() != "r1" {
		t.Errorf("replaced: %v, %v", again, err)
	}
	names := func() (out string) {
		t.Helper()
		all, err := r.Budgets.ListBudgets(t.Context(), &pb.ListBudgetsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range all.GetBudgets() {
			out += b.GetName() + " "
		}
		return out
	}
	if got := names(); got != "all racks " {
		t.Errorf("listed: %s", got)
	}
	gone, err := r.Budgets.DeleteBudget(t.Context(), &pb.DeleteBudgetRequest{Name: "racks"})
	if err != nil || gone.GetAtOnce() != 1 || names() != "all " {
		t.Errorf("deleted: %v, %v; left %s", gone, err, names())
	}
	_, err = r.Budgets.DeleteBudget(t.Context(), &pb.DeleteBudgetRequest{Name: "racks"})
	publictest.Wants(t, err, failure.KindNotFound, "BUDGET_NOT_FOUND", "name")
	log, err := r.Store.History.ListAudit(t.Context(), history.AuditFilter{TargetID: "racks", Limit: 10})
	if err != nil || len(log) != 3 || log[0].GetVerb() != "DELETE_BUDGET" ||
		!strings.Contains(string(log[2].GetEventData()), `"percent": "10"`) {
		t.Errorf("audit: %v, %v", log, err)
	}
}

func TestBudgetsThatAreRefused(t *testing.T) {
	r := publictest.NewRig(t)
	for field, b := range map[string]*pb.Budget{
		"budget":          nil,
		"budget.name":     {Domain: "fleet", AtOnce: 1},
		"budget.domain":   {Name: "b", Domain: "rack", AtOnce: 1},
		"budget.value":    {Name: "b", Domain: "fleet", Value: "x", AtOnce: 1},
		"budget.percent":  {Name: "b", Domain: "fleet", Percent: 101},
		"budget.per_hour": {Name: "b", Domain: "fleet", AtOnce: 1, PerHour: -1},
		"budget.per_day":  {Name: "b", Domain: "site", PerDay: -5, AtOnce: 1},
		"budget.at_once":  {Name: "b", Domain: "label:rack"},
	} {
		_, err := r.Budgets.SetBudget(t.Context(), &pb.SetBudgetRequest{Budget: b})
		publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", field)
	}
	_, err := r.Budgets.SetBudget(t.Context(),
		&pb.SetBudgetRequest{Budget: &pb.Budget{Name: "b", Domain: "label:", AtOnce: 1}})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", "budget.domain")
	_, err = r.Budgets.DeleteBudget(t.Context(), &pb.DeleteBudgetRequest{})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", "name")
	_, err = r.Budgets.ReleaseBudgetSlot(t.Context(), &pb.ReleaseBudgetSlotRequest{})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", "machine_id")
	_, err = r.Budgets.ReleaseBudgetSlot(t.Context(), &pb.ReleaseBudgetSlotRequest{MachineId: "m-no"})
	publictest.Wants(t, err, failure.KindNotFound, "MACHINE_NOT_FOUND", "")
	_, err = r.Budgets.ListBudgetSlots(t.Context(), &pb.ListBudgetSlotsRequest{PageToken: "x"})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_PAGE_TOKEN", "page_token")
}

// TestBudgetSlotsArePaged: oldest first, each once, whatever the size of a page; and what an end gives back is gone.
func TestBudgetSlotsArePaged(t *testing.T) {
	r := publictest.NewRig(t)
	const machines = 5
	if _, err := r.Budgets.SetBudget(t.Context(),
		&pb.SetBudgetRequest{Budget: &pb.Budget{Name: "all", Domain: "fleet", AtOnce: 10}}); err != nil {
		t.Fatal(err)
	}
	var ops []string
	for i := range machines {
		m := r.Register(publictest.NewMachine(i)).GetMachineId()
		r.Maintenance(m)
		op, err := r.Machines.ReimageMachine(t.Context(),
			&pb.ReimageMachineRequest{MachineId: m, RequestId: "wipe", ImageRef: "any"})
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, op.GetOperationId())
	}
	if n, _, err := r.Store.Budgets.AdmitDestructive(t.Context(), time.Now()); err != nil || n != machines {
		t.Fatalf("admitted %d, %v", n, err)
	}
	slots := func(size int32) (out []string) {
		t.Helper()
		page := ""
		for {
			got, err := r.Budgets.ListBudgetSlots(t.Context(), &pb.ListBudgetSlotsRequest{PageSize: size, PageToken: page})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range got.GetSlots() {
				out = append(out, s.GetOperationId())
			}
			if page = got.GetNextPageToken(); page == "" {
				return out
			}
		}
	}
	for _, size := range []int32{0, 1, 2, 5} {
		if got := fmt.Sprint(slots(size)); got != fmt.Sprint(ops) {
			t.Errorf("pages of %d: %s, want %v", size, got, ops)
		}
	}
	_, err := r.Budgets.ReleaseBudgetSlot(t.Context(), &pb.ReleaseBudgetSlotRequest{MachineId: "m-000"})
	publictest.Wants(t, err, failure.KindPrecondition, "BUDGET_SLOT_IN_USE", "")
	if _, err := r.Machines.CancelOperation(t.Context(), &pb.CancelOperationRequest{OperationId: ops[0]}); err != nil {
		t.Fatal(err)
	}
	_, err = r.Budgets.ReleaseBudgetSlot(t.Context(), &pb.ReleaseBudgetSlotRequest{MachineId: "m-000"})
	publictest.Wants(t, err, failure.KindNotFound, "BUDGET_SLOT_NOT_FOUND", "machine_id")
	if got := slots(0); len(got) != machines-1 || got[0] != ops[1] {
		t.Errorf("after a cancel: %v", got)
	}
}

func TestFreezeAndThawByCalls(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(publictest.NewMachine(1))
	r.Maintenance("m-001")
	info, err := r.Budgets.FreezeFleet(t.Context(), &pb.FreezeFleetRequest{Comment: "stop"})
	if err != nil || info.GetFrozenSince() == nil {
		t.Fatalf("%v, %v", info, err)
	}
	reboot := &pb.RebootMachineRequest{MachineId: "m-001", RequestId: "r"}
	_, err = r.Machines.RebootMachine(t.Context(), reboot)
	publictest.Wants(t, err, failure.KindPrecondition, "FLEET_FROZEN", "")
	if _, err := r.Admin.ThawFleet(t.Context(), &pb.ThawFleetRequest{}); err != nil {
		t.Fatal(err)
	}
	if since, _, err := r.Store.Incarnations.Frozen(t.Context()); err != nil || since != (time.Time{}) {
		t.Errorf("frozen since %v, %v", since, err)
	}
	if _, err := r.Machines.RebootMachine(t.Context(), reboot); err != nil {
		t.Errorf("after the thaw: %v", err)
	}
}
