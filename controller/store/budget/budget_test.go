package budget_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// destroyer is a machine with an operation that counts as destructive. A reboot does all that matters here.
type destroyer struct {
	storetest.Enrolled
	op string
}

func destroy(t *testing.T, s *store.Store, machineID string) destroyer {
	t.Helper()
	d := destroyer{Enrolled: storetest.Live(t, s, machineID)}
	d.again(t, s, "destroy")
	return d
}

func (d *destroyer) again(t *testing.T, s *store.Store, request string) {
	t.Helper()
	d.op = storetest.Start(t, s, operationstore.StartRequest{MachineID: d.Machine, RequestID: request,
		Type: fleet.Reboot}).GetOperationId()
	if err := storetest.ExecSQL(t, s, `UPDATE operations o SET destructive = true, request_site = m.site,
		request_labels = m.labels, request_rack = m.spec ->> 'rack' FROM machines m WHERE m.machine_id = o.target_id AND operation_id = $1`,
		d.op); err != nil {
		t.Fatal(err)
	}
}

func TestBudgetKeepsWorkPendingInOrder(t *testing.T) {
	s := storetest.New(t)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 2})
	var ds []destroyer
	for i := range 4 {
		ds = append(ds, destroy(t, s, fmt.Sprintf("m-%d", i)))
		a := storetest.Decide(t, s, ds[i].op, operation.Evaluate{})
		if a.Phase != operation.Pending || a.Decision.Op.WaitReason != operation.WaitBudget {
			t.Fatalf("without a slot: %s, waiting for %s", a.Phase, a.Decision.Op.WaitReason)
		}
	}
	storetest.AdmitDestructive(t, s, 2)
	storetest.AdmitDestructive(t, s, 0)
	want := []operation.Phase{operation.Running, operation.Running, operation.Pending, operation.Pending}
	for i, d := range ds {
		if a := storetest.Decide(t, s, d.op, operation.Evaluate{}); a.Phase != want[i] {
			t.Errorf("operation %d is %s, want %s", i, a.Phase, want[i])
		}
	}
	// One that is cancelled before it was granted anything has done nothing.
	storetest.Decide(t, s, ds[0].op, operation.CancelAsked{Actor: "tester"})
	storetest.AdmitDestructive(t, s, 1)
	if a := storetest.Decide(t, s, ds[2].op, operation.Evaluate{}); a.Phase != operation.Running {
		t.Errorf("the next in order is %s", a.Phase)
	}
}

func TestSlotIsHeldUntilSomebodyLooked(t *testing.T) {
	s := storetest.New(t)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1})
	first, second := destroy(t, s, "m-1"), destroy(t, s, "m-2")
	storetest.AdmitDestructive(t, s, 1)
	c := storetest.Decide(t, s, first.op, operation.Evaluate{}).Command
	if _, err := s.Budgets.ReleaseSlot(t.Context(), "m-1", "admin", "", storetest.Now()); err == nil {
		t.Error("the slot of an operation under way was given back")
	} else {
		storetest.WantReason(t, err, "BUDGET_SLOT_IN_USE")
	}
	if a := storetest.Decide(t, s, first.op, storetest.Ask(first.Enrolled, c, 1, 1)); !a.Decision.Grant {
		t.Fatalf("not granted: %+v", a.Decision.Refusal)
	}
	failed := operation.Resulted{CommandID: c.ID, AgentID: first.ID, StateID: "st-1", Outcome: operation.OutcomeFailed,
		Reason: "DISK_ERROR", Message: "x"}
	if a := storetest.Decide(t, s, first.op, failed); a.Phase != operation.Failed {
		t.Fatalf("after the failure: %s", a.Phase)
	}
	storetest.AdmitDestructive(t, s, 0)
	// The same machine may be tried again: it is counted already.
	first.again(t, s, "again")
	if a := storetest.Decide(t, s, first.op, operation.Evaluate{}); a.Phase != operation.Running {
		t.Fatalf("a further try on the machine is %s, waiting for %s", a.Phase, a.Decision.Op.WaitReason)
	}
	storetest.Decide(t, s, first.op, operation.CancelAsked{Actor: "tester"})
	if n := storetest.Count(t, s, "SELECT count(*) FROM budget_slots WHERE released_at IS NULL"); n != 1 {
		t.Errorf("%d slots are held after a further try that did nothing: what the first one did is not known to be well", n)
	}
	storetest.AdmitDestructive(t, s, 0)
	_ = second
	if _, err := s.Budgets.ReleaseSlot(t.Context(), "m-1", "admin", "", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	storetest.AdmitDestructive(t, s, 1)
	_, err := s.Budgets.ReleaseSlot(t.Context(), "m-1", "admin", "", storetest.Now())
	storetest.WantReason(t, err, "BUDGET_SLOT_NOT_FOUND")
}

// Work counts in the rack of the request and in the rack where its machine stands now, while it waits and while it runs.
func TestAMoveEscapesNoBudget(t *testing.T) {
	for name, in := range map[string]func(rack string) *baremetalv1.Machine{
		"by a label": func(rack string) *baremetalv1.Machine {
			return &baremetalv1.Machine{Labels: map[string]string{"rack": rack}}
		},
		"by the field": func(rack string) *baremetalv1.Machine {
			return &baremetalv1.Machine{Spec: &baremetalv1.MachineSpec{Rack: rack}}
		},
		"by a label, against the field": func(rack string) *baremetalv1.Machine {
			return &baremetalv1.Machine{Labels: map[string]string{"rack": rack}, Spec: &baremetalv1.MachineSpec{Rack: "of " + rack}}
		},
	} {
		t.Run(name, func(t *testing.T) { moves(t, in) })
	}
}

// moves tries to escape a budget of racks with machines that stand in a rack as named by there.
func moves(t *testing.T, there func(rack string) *baremetalv1.Machine) {
	s := storetest.New(t)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "racks", Domain: "label:rack", AtOnce: 1})
	move := func(id, rack string) {
		t.Helper()
		m := there(rack)
		m.MachineId = id
		if _, err := s.Machines.Update(t.Context(), m, "admin", time.Now(), pgtx.Mask([]string{"labels.rack",
			"spec.rack"})); err != nil {
			t.Fatal(err)
		}
	}
	in := func(id, rack string) destroyer {
		t.Helper()
		storetest.Register(t, s, id)
		move(id, rack)
		return destroy(t, s, id)
	}
	in("m-a", "a")
	waiting := in("m-waiting", "a")
	storetest.AdmitDestructive(t, s, 1)
	move("m-waiting", "free")
	storetest.AdmitDestructive(t, s, 0)
	v, err := budgetstore.BudgetVerdict(t.Context(), s.DB.Q, &s.Budgets.Counts, waiting.op, time.Now())
	if err != nil || v == nil || v.Value != "a" {
		t.Errorf("what has left rack a waits for %v, %v", v, err)
	}
	in("m-free", "free")
	storetest.AdmitDestructive(t, s, 1)
	move("m-a", "b")
	for _, rack := range []string{"a", "b"} {
		in("m-next-"+rack, rack)
	}
	storetest.AdmitDestructive(t, s, 0)
	in("m-c", "c")
	storetest.AdmitDestructive(t, s, 1)
}

// TestAPercentageOfARack: the machines of a rack are those that it is named by, be it by the label or by the field, and
// a machine that names two is one.
func TestAPercentageOfARack(t *testing.T) {
	s := storetest.New(t)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "racks", Domain: "label:rack", Percent: 50})
	for i, m := range []*baremetalv1.Machine{
		{Spec: &baremetalv1.MachineSpec{Rack: "a"}},
		{Spec: &baremetalv1.MachineSpec{Rack: "a"}, Labels: map[string]string{"rack": "a"}},
		{Labels: map[string]string{"rack": "a"}},
		{Spec: &baremetalv1.MachineSpec{Rack: "a"}, Labels: map[string]string{"rack": "b"}},
		{Spec: &baremetalv1.MachineSpec{Rack: "b"}},
	} {
		m.MachineId = fmt.Sprint("m-", i)
		storetest.Register(t, s, m.GetMachineId())
		if _, err := s.Machines.Update(t.Context(), m, "admin", time.Now(), pgtx.Mask([]string{"labels.rack",
			"spec.rack"})); err != nil {
			t.Fatal(err)
		}
		destroy(t, s, m.GetMachineId())
	}
	// Two of the four of rack a, and the one of rack b.
	storetest.AdmitDestructive(t, s, 3)
	storetest.AdmitDestructive(t, s, 0)
}

// TestAnInterruptionIsCountedUntilTheMachineIsBack: a reboot ends without a command that was granted, and its machine
// needs a person. It is out of service, and counts until it is back.
func TestAnInterruptionIsCountedUntilTheMachineIsBack(t *testing.T) {
	s := storetest.New(t)
	storetest.SetBudget(
		t,
		s,
		&baremetalv1.Budget{Name: "out", Domain: "fleet", AtOnce: 1, Harm: baremetalv1.Budget_INTERRUPTS},
	)
	reboot := func(id string) string {
		storetest.Live(t, s, id).Arrived(t, s)
		start := func(kind fleet.OperationType) string {
			return storetest.Start(t, s, operationstore.StartRequest{MachineID: id, RequestID: string(kind), Type: kind}).
				GetOperationId()
		}
		storetest.Decide(t, s, start(fleet.ExitMaintenance), operation.Evaluate{})
		if st := storetest.Machine(t, s, id).GetStatus(); st.GetEffectiveState() != baremetalv1.MachineStatus_IDLE {
			t.Fatalf("%s is %s: %s", id, st.GetEffectiveState(), st.GetAttentionMessage())
		}
		return start(fleet.Reboot)
	}
	first, second := reboot("m-1"), reboot("m-2")
	storetest.AdmitDestructive(t, s, 1)
	if a := storetest.Decide(t, s, first, operation.Evaluate{}); a.Phase != operation.Running {
		t.Fatalf("the first is %s", a.Phase)
	}
	a, err := s.Operations.Decide(t.Context(), first, operation.Evaluate{}, storetest.Now().Add(time.Hour))
	if err != nil || a.Phase != operation.Failed {
		t.Fatalf("the first is %s after its deadline: %v", a.Phase, err)
	}
	if m := storetest.Machine(t, s, "m-1").GetStatus(); m.GetEffectiveState() != baremetalv1.MachineStatus_ATTENTION {
		t.Fatalf("the machine is %s", m.GetEffectiveState())
	}
	storetest.AdmitDestructive(t, s, 0)
	if _, err := s.Operations.ClearIntervention(t.Context(), "m-1", "admin", "", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	storetest.AdmitDestructive(t, s, 1)
	if a := storetest.Decide(t, s, second, operation.Evaluate{}); a.Phase != operation.Running {
		t.Errorf("the second is %s", a.Phase)
	}
}

func TestAdminGivesASlotBack(t *testing.T) {
	s := storetest.New(t)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1})
	first := destroy(t, s, "m-1")
	destroy(t, s, "m-2")
	storetest.AdmitDestructive(t, s, 1)
	c := storetest.Decide(t, s, first.op, operation.Evaluate{}).Command
	storetest.Decide(t, s, first.op, storetest.Ask(first.Enrolled, c, 1, 1))
	storetest.Decide(t, s, first.op, operation.Resulted{CommandID: c.ID, AgentID: first.ID, StateID: "st-1",
		Outcome: operation.OutcomeFailed, Reason: "DISK_ERROR"})
	storetest.AdmitDestructive(t, s, 0)
	held, err := s.Budgets.HeldSlots(t.Context(), time.Time{}, "", 10)
	if err != nil || len(held) != 1 || held[0].GetMachineId() != "m-1" || held[0].GetOperationPhase() != "FAILED" {
		t.Fatalf("held: %v, %v", held, err)
	}
	if _, err := s.Budgets.ReleaseSlot(t.Context(), "m-1", "admin", "looked at it", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	storetest.AdmitDestructive(t, s, 1)
	if n := storetest.Count(
		t,
		s,
		"SELECT count(*) FROM audit_log WHERE verb = 'RELEASE_BUDGET_SLOT' AND event_data->>'comment' = 'looked at it'",
	); n != 1 {
		t.Errorf("%d audit rows", n)
	}
}

func TestWithoutBudgetsSlotsAreTakenAllTheSame(t *testing.T) {
	s := storetest.New(t)
	first, second := destroy(t, s, "m-1"), destroy(t, s, "m-2")
	if a := storetest.Decide(t, s, first.op, operation.Evaluate{}); a.Phase != operation.Running {
		t.Fatalf("without a budget: %s", a.Phase)
	}
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1})
	storetest.AdmitDestructive(t, s, 0) // the first is counted
	if _, err := s.Budgets.DeleteBudget(t.Context(), "all", "tester", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if a := storetest.Decide(t, s, second.op, operation.Evaluate{}); a.Phase != operation.Running {
		t.Errorf("with the budget gone: %s", a.Phase)
	}
}

func TestNoGrantWithoutASlot(t *testing.T) {
	s := storetest.New(t)
	d := destroy(t, s, "m-1")
	c := storetest.Decide(t, s, d.op, operation.Evaluate{}).Command
	if err := storetest.ExecSQL(t, s, "DELETE FROM budget_slots"); err != nil {
		t.Fatal(err)
	}
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1})
	a := storetest.Decide(t, s, d.op, storetest.Ask(d.Enrolled, c, 1, 1))
	if a.Decision.Grant || a.Decision.Refusal.Reason != "BUDGET_REQUIRED" {
		t.Errorf("granted: %t, refusal %+v", a.Decision.Grant, a.Decision.Refusal)
	}
}

// TestManyControllersAdmitNoMoreThanTheBudget lets eight at it at once, again and again, while slots come free.
func TestManyControllersAdmitNoMoreThanTheBudget(t *testing.T) {
	s := storetest.New(t)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 3})
	const machines = 12
	for i := range machines {
		destroy(t, s, fmt.Sprintf("m-%d", i))
	}
	for done := 0; done < machines; {
		for _, err := range storetest.Together(t, 8, func(ctx context.Context, _ int) error {
			_, _, err := s.Budgets.AdmitDestructive(ctx, storetest.Now())
			return err
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		held := storetest.Count(t, s, "SELECT count(*) FROM budget_slots WHERE released_at IS NULL")
		if held == 0 || held > 3 {
			t.Fatalf("%d slots are held", held)
		}
		if err := storetest.ExecSQL(t, s,
			"UPDATE budget_slots SET released_at = now() WHERE released_at IS NULL"); err != nil {
			t.Fatal(err)
		}
		done += held
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM budget_slots"); n != machines {
		t.Errorf("%d slots for %d operations", n, machines)
	}
}

func TestWhatLosesDataIsDestructive(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	storetest.Simulated(t, s, "m-1")
	storetest.Maintenance(t, s, "m-1")
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage,
		Inputs: kind.Inputs{ImageRef: "any"}})
	storetest.Live(t, s, "m-2")
	storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-2", RequestID: "r", Type: fleet.Reboot})
	if n := storetest.Count(t, s, "SELECT count(*) FROM operations WHERE destructive AND operation_id = $1",
		op.GetOperationId()); n != 1 {
		t.Error("a reimage is not")
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM operations WHERE destructive"); n != 1 {
		t.Errorf("%d are", n)
	}
}

func TestFreezeAndThaw(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	if err := s.Incarnations.Freeze(t.Context(), "admin", "stop", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "r",
		Type: fleet.Reboot, Actor: "x"}, storetest.Now())
	storetest.WantReason(t, err, "FLEET_FROZEN")
	since, _, err := s.Incarnations.Frozen(t.Context())
	if err != nil || since.IsZero() {
		t.Fatalf("frozen since %v, %v", since, err)
	}
	if err := s.Incarnations.Freeze(t.Context(), "admin", "again", storetest.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if still, _, err := s.Incarnations.Frozen(t.Context()); err != nil || !still.Equal(since) {
		t.Errorf("frozen since %v then, %v now, %v", since, still, err)
	}
	if err := s.Incarnations.Thaw(t.Context(), "admin", "", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot})
}

// TestTheLastSlotIsGivenAtOnce to work that cannot wait: it does not stand in its own way.
func TestTheLastSlotIsGivenAtOnce(t *testing.T) {
	s := storetest.New(t)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1})
	d := destroy(t, s, "m-1")
	if err := s.DB.InTx(t.Context(), func(_ pgx.Tx, q *dbsqlc.Queries) error {
		return s.Budgets.AdmitNow(t.Context(), q, d.op, storetest.Now())
	}); err != nil {
		t.Fatal(err)
	}
	if a := storetest.Decide(t, s, d.op, operation.Evaluate{}); a.Phase != operation.Running {
		t.Errorf("it is %s", a.Phase)
	}
}
