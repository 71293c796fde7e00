package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/plan"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// destroyer is a machine with an operation that counts as destructive. A reboot does all that matters here.
type destroyer struct {
	enrolled
	op string
}

func destroy(t *testing.T, s *store.Store, machineID string) destroyer {
	t.Helper()
	d := destroyer{enrolled: live(t, s, machineID)}
	d.again(t, s, "destroy")
	return d
}

func (d *destroyer) again(t *testing.T, s *store.Store, request string) {
	t.Helper()
	d.op = start(t, s, store.StartRequest{MachineID: d.machine, RequestID: request, Type: fleet.Reboot}).GetOperationId()
	if err := execSQL(t, s, "UPDATE operations SET destructive = true WHERE operation_id = $1", d.op); err != nil {
		t.Fatal(err)
	}
}

func setBudget(t *testing.T, s *store.Store, b *baremetalv1.Budget) {
	t.Helper()
	if _, err := s.SetBudget(t.Context(), b, "tester", now()); err != nil {
		t.Fatal(err)
	}
}

func admitDestructive(t *testing.T, s *store.Store, want int) {
	t.Helper()
	n, _, err := s.AdmitDestructive(t.Context(), now())
	if err != nil || n != want {
		t.Fatalf("admitted %d, %v; want %d", n, err, want)
	}
}

func TestBudgetKeepsWorkPendingInOrder(t *testing.T) {
	s := storetest.New(t)
	setBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 2})
	var ds []destroyer
	for i := range 4 {
		ds = append(ds, destroy(t, s, fmt.Sprintf("m-%d", i)))
		a := decide(t, s, ds[i].op, operation.Look{})
		if a.Phase != operation.Pending || a.Decision.Op.WaitReason != operation.WaitBudget {
			t.Fatalf("without a slot: %s, waiting for %s", a.Phase, a.Decision.Op.WaitReason)
		}
	}
	admitDestructive(t, s, 2)
	admitDestructive(t, s, 0)
	want := []operation.Phase{operation.Running, operation.Running, operation.Pending, operation.Pending}
	for i, d := range ds {
		if a := decide(t, s, d.op, operation.Look{}); a.Phase != want[i] {
			t.Errorf("operation %d is %s, want %s", i, a.Phase, want[i])
		}
	}
	// One that is cancelled before it was granted anything has done nothing.
	decide(t, s, ds[0].op, operation.CancelAsked{Actor: "tester"})
	admitDestructive(t, s, 1)
	if a := decide(t, s, ds[2].op, operation.Look{}); a.Phase != operation.Running {
		t.Errorf("the next in order is %s", a.Phase)
	}
}

func TestSlotIsHeldUntilSomebodyLooked(t *testing.T) {
	s := storetest.New(t)
	setBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1})
	first, second := destroy(t, s, "m-1"), destroy(t, s, "m-2")
	admitDestructive(t, s, 1)
	c := decide(t, s, first.op, operation.Look{}).Command
	if _, err := s.ReleaseSlot(t.Context(), "m-1", "admin", "", now()); err == nil {
		t.Error("the slot of an operation under way was given back")
	} else {
		wantReason(t, err, "BUDGET_SLOT_IN_USE")
	}
	if a := decide(t, s, first.op, ask(first.enrolled, c, 1, 1)); !a.Decision.Grant {
		t.Fatalf("not granted: %+v", a.Decision.Refusal)
	}
	failed := operation.Resulted{CommandID: c.ID, AgentID: first.id, StateID: "st-1", Outcome: operation.OutcomeFailed, Reason: "DISK_ERROR", Message: "x"}
	if a := decide(t, s, first.op, failed); a.Phase != operation.Failed {
		t.Fatalf("after the failure: %s", a.Phase)
	}
	admitDestructive(t, s, 0)
	// The same machine may be tried again: it is counted already.
	first.again(t, s, "again")
	if a := decide(t, s, first.op, operation.Look{}); a.Phase != operation.Running {
		t.Fatalf("a further try on the machine is %s, waiting for %s", a.Phase, a.Decision.Op.WaitReason)
	}
	decide(t, s, first.op, operation.CancelAsked{Actor: "tester"})
	if n := count(t, s, "SELECT count(*) FROM budget_slots WHERE released_at IS NULL"); n != 0 {
		t.Errorf("%d slots are held after a try that did nothing", n)
	}
	admitDestructive(t, s, 1)
	_ = second
	_, err := s.ReleaseSlot(t.Context(), "m-1", "admin", "", now())
	wantReason(t, err, "BUDGET_SLOT_NOT_FOUND")
}

func TestAdminGivesASlotBack(t *testing.T) {
	s := storetest.New(t)
	setBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1})
	first := destroy(t, s, "m-1")
	destroy(t, s, "m-2")
	admitDestructive(t, s, 1)
	c := decide(t, s, first.op, operation.Look{}).Command
	decide(t, s, first.op, ask(first.enrolled, c, 1, 1))
	decide(t, s, first.op, operation.Resulted{CommandID: c.ID, AgentID: first.id, StateID: "st-1", Outcome: operation.OutcomeFailed, Reason: "DISK_ERROR"})
	admitDestructive(t, s, 0)
	held, err := s.HeldSlots(t.Context(), time.Time{}, "", 10)
	if err != nil || len(held) != 1 || held[0].GetMachineId() != "m-1" || held[0].GetOperationPhase() != "FAILED" {
		t.Fatalf("held: %v, %v", held, err)
	}
	if _, err := s.ReleaseSlot(t.Context(), "m-1", "admin", "looked at it", now()); err != nil {
		t.Fatal(err)
	}
	admitDestructive(t, s, 1)
	if n := count(t, s, "SELECT count(*) FROM audit_log WHERE verb = 'RELEASE_BUDGET_SLOT' AND event_data->>'comment' = 'looked at it'"); n != 1 {
		t.Errorf("%d audit rows", n)
	}
}

func TestWithoutBudgetsSlotsAreTakenAllTheSame(t *testing.T) {
	s := storetest.New(t)
	first, second := destroy(t, s, "m-1"), destroy(t, s, "m-2")
	if a := decide(t, s, first.op, operation.Look{}); a.Phase != operation.Running {
		t.Fatalf("without a budget: %s", a.Phase)
	}
	setBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1})
	admitDestructive(t, s, 0) // the first is counted
	if _, err := s.DeleteBudget(t.Context(), "all", "tester", now()); err != nil {
		t.Fatal(err)
	}
	if a := decide(t, s, second.op, operation.Look{}); a.Phase != operation.Running {
		t.Errorf("with the budget gone: %s", a.Phase)
	}
}

func TestNoGrantWithoutASlot(t *testing.T) {
	s := storetest.New(t)
	d := destroy(t, s, "m-1")
	c := decide(t, s, d.op, operation.Look{}).Command
	if err := execSQL(t, s, "DELETE FROM budget_slots"); err != nil {
		t.Fatal(err)
	}
	setBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1})
	a := decide(t, s, d.op, ask(d.enrolled, c, 1, 1))
	if a.Decision.Grant || a.Decision.Refusal.Reason != "BUDGET_REQUIRED" {
		t.Errorf("granted: %t, refusal %+v", a.Decision.Grant, a.Decision.Refusal)
	}
}

// TestManyControllersAdmitNoMoreThanTheBudget lets eight at it at once, again and again, while slots come free.
func TestManyControllersAdmitNoMoreThanTheBudget(t *testing.T) {
	s := storetest.New(t)
	setBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 3})
	const machines = 12
	for i := range machines {
		destroy(t, s, fmt.Sprintf("m-%d", i))
	}
	for done := 0; done < machines; {
		for _, err := range together(t, 8, func(ctx context.Context, _ int) error {
			_, _, err := s.AdmitDestructive(ctx, now())
			return err
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		held := count(t, s, "SELECT count(*) FROM budget_slots WHERE released_at IS NULL")
		if held == 0 || held > 3 {
			t.Fatalf("%d slots are held", held)
		}
		if err := execSQL(t, s, "UPDATE budget_slots SET released_at = now() WHERE released_at IS NULL"); err != nil {
			t.Fatal(err)
		}
		done += held
	}
	if n := count(t, s, "SELECT count(*) FROM budget_slots"); n != machines {
		t.Errorf("%d slots for %d operations", n, machines)
	}
}

func TestWhatLosesDataIsDestructive(t *testing.T) {
	s := storetest.New(t)
	live(t, s, "m-1")
	op := start(t, s, store.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage, Inputs: plan.Inputs{ImageRef: "any"}})
	live(t, s, "m-2")
	start(t, s, store.StartRequest{MachineID: "m-2", RequestID: "r", Type: fleet.Reboot})
	if n := count(t, s, "SELECT count(*) FROM operations WHERE destructive AND operation_id = $1", op.GetOperationId()); n != 1 {
		t.Error("a reimage is not")
	}
	if n := count(t, s, "SELECT count(*) FROM operations WHERE destructive"); n != 1 {
		t.Errorf("%d are", n)
	}
}

func TestFreezeAndThaw(t *testing.T) {
	s := storetest.New(t)
	live(t, s, "m-1")
	if err := s.Freeze(t.Context(), "admin", "stop", now()); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Start(t.Context(), store.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot, Actor: "x"}, now())
	wantReason(t, err, "FLEET_FROZEN")
	since, _, err := s.Frozen(t.Context())
	if err != nil || since.IsZero() {
		t.Fatalf("frozen since %v, %v", since, err)
	}
	if err := s.Freeze(t.Context(), "admin", "again", now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if still, _, err := s.Frozen(t.Context()); err != nil || !still.Equal(since) {
		t.Errorf("frozen since %v then, %v now, %v", since, still, err)
	}
	if err := s.Thaw(t.Context(), "admin", "", now()); err != nil {
		t.Fatal(err)
	}
	start(t, s, store.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot})
}
