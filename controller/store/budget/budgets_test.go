package budget_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/budget"
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

// newest is the newest row of the audit log, with its data.
func newest(t *testing.T, s *store.Store) (actor, verb, target string, data map[string]string) {
	t.Helper()
	var raw []byte
	if err := s.DB.Pool().QueryRow(t.Context(), `SELECT actor, verb, target_id, event_data FROM audit_log
		ORDER BY audit_id DESC LIMIT 1`).Scan(&actor, &verb, &target, &raw); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &data); err != nil {
		t.Fatal(err)
	}
	return actor, verb, target, data
}

// Every field of a budget is stored, read back and audited; a budget that is set again is replaced.
func TestABudgetIsStoredAsItIsSet(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	room := 0
	s.Budgets.OnRoom(func() { room++ })
	at := storetest.Now()
	for i, b := range []*baremetalv1.Budget{
		{Domain: "site", Value: "east", AtOnce: 1, Percent: 2, PerHour: 3, PerDay: 4, Harm: baremetalv1.Budget_INTERRUPTS},
		{Domain: "label:row", Value: "7", AtOnce: 8, Percent: 9, PerHour: 10, PerDay: 11},
		{Domain: "fleet", AtOnce: 1, Harm: baremetalv1.Budget_DESTROYS},
	} {
		now := at.Add(time.Duration(i) * time.Second)
		b.Name = "b-1"
		want := proto.CloneOf(b)
		want.Version, want.UpdatedAt, want.Harm = int64(
			i+1,
		), timestamppb.New(
			now,
		), max(
			b.GetHarm(),
			baremetalv1.Budget_DESTROYS,
		)
		got, err := s.Budgets.SetBudget(t.Context(), b, "ann", now)
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("set: %v, %v, want %v", got, err, want)
		}
		list, err := s.Budgets.ListBudgets(t.Context(), "", 10)
		if err != nil || len(list) != 1 || !proto.Equal(list[0], want) {
			t.Errorf("read: %v, %v, want %v", list, err, want)
		}
		if room != i+1 {
			t.Errorf("room was announced %d times after %d changes", room, i+1)
		}
		actor, verb, target, data := newest(t, s)
		fields := map[string]string{"domain": b.GetDomain(), "value": b.GetValue(), "at_once": fmt.Sprint(b.GetAtOnce()),
			"percent": fmt.Sprint(b.GetPercent()), "per_hour": fmt.Sprint(b.GetPerHour()), "per_day": fmt.Sprint(b.GetPerDay()),
			"harm": want.GetHarm().String()}
		if actor != "ann" || verb != "SET_BUDGET" || target != "b-1" || !maps.Equal(data, fields) {
			t.Errorf("audited: %s %s %s %v, want %v", actor, verb, target, data, fields)
		}
	}
	last, err := s.Budgets.ListBudgets(t.Context(), "", 10)
	if err != nil || len(last) != 1 {
		t.Fatal(last, err)
	}
	gone, err := s.Budgets.DeleteBudget(t.Context(), "b-1", "ben", at.Add(time.Minute))
	if err != nil || !proto.Equal(gone, last[0]) {
		t.Errorf("deleted: %v, %v, want %v", gone, err, last[0])
	}
	if actor, verb, target, data := newest(t, s); actor != "ben" || verb != "DELETE_BUDGET" || target != "b-1" ||
		data["domain"] != "fleet" {
		t.Errorf("audited: %s %s %s %v", actor, verb, target, data)
	}
	if room != 4 {
		t.Errorf("room was announced %d times after a budget has gone", room)
	}
	if left, err := s.Budgets.ListBudgets(t.Context(), "", 10); err != nil || len(left) != 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// A write that expects another version, or no budget, changes nothing and announces no room.
func TestConditionsOfWritesOfBudgets(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	room := 0
	set := func(atOnce int32, opts ...pgtx.WriteOption) error {
		_, err := s.Budgets.SetBudget(t.Context(), &baremetalv1.Budget{Name: "b-1", Domain: "fleet", AtOnce: atOnce}, "ann",
			storetest.Now(), opts...)
		return err
	}
	remove := func(name string, opts ...pgtx.WriteOption) error {
		_, err := s.Budgets.DeleteBudget(t.Context(), name, "ann", storetest.Now(), opts...)
		return err
	}
	storetest.WantReason(t, set(1, pgtx.Expect(1)), "VERSION_CONFLICT")
	if err := set(1, pgtx.CreateOnly()); err != nil {
		t.Fatal(err)
	}
	if err := set(2, pgtx.Expect(1)); err != nil {
		t.Fatal(err)
	}
	before := storetest.Everything(t, s, "budgets", "audit_log")
	s.Budgets.OnRoom(func() { room++ })
	storetest.WantReason(t, set(3, pgtx.CreateOnly()), "RESOURCE_EXISTS")
	storetest.WantReason(t, set(3, pgtx.Expect(1)), "VERSION_CONFLICT")
	storetest.WantReason(t, remove("b-1", pgtx.Expect(1)), "VERSION_CONFLICT")
	if f := storetest.WantReason(t, remove("b-2"), "BUDGET_NOT_FOUND"); !strings.Contains(f.Message, "b-2") {
		t.Errorf("the refusal is %q", f.Message)
	}
	if after := storetest.Everything(t, s, "budgets", "audit_log"); after != before || room != 0 {
		t.Errorf("room was announced %d times, and there is\n%s\nof before\n%s", room, after, before)
	}
	if err := remove("b-1", pgtx.Expect(2)); err != nil || room != 1 {
		t.Errorf("%v, room was announced %d times", err, room)
	}
}

func TestPagesOfBudgets(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	for _, name := range []string{"c", "a", "b"} {
		storetest.SetBudget(t, s, &baremetalv1.Budget{Name: name, Domain: "fleet", AtOnce: 1})
	}
	for after, want := range map[string][]string{"": {"a", "b"}, "a": {"b", "c"}, "b": {"c"}, "c": nil} {
		page, err := s.Budgets.ListBudgets(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, b := range page {
			names = append(names, b.GetName())
		}
		if !slices.Equal(names, want) {
			t.Errorf("after %q come %v, want %v", after, names, want)
		}
	}
}

// The fleet is counted for percentages at most twice a minute, unless it is asked for by other labels, or the clock has
// gone back.
func TestTheFleetIsCountedNowAndThen(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	add := func(n int) {
		t.Helper()
		for range n {
			storetest.Register(t, s, fmt.Sprint("m-", storetest.Count(t, s, "SELECT count(*) FROM machines")))
		}
	}
	limit := func(when string, at time.Time, want int) {
		t.Helper()
		used, _, err := s.Budgets.BudgetUsage(t.Context(), at)
		if err != nil || len(used) == 0 || used[0].Limit != want {
			t.Errorf("%s: %+v, %v, want a limit of %d", when, used, err, want)
		}
	}
	at := storetest.Now()
	add(4)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "half", Domain: "fleet", Percent: 50})
	limit("at first", at, 2)
	add(4)
	limit("at once", at, 2)
	limit("before half a minute", at.Add(30*time.Second-1), 2)
	limit("after half a minute", at.Add(30*time.Second), 4)
	add(2)
	limit("counted anew a moment ago", at.Add(31*time.Second), 4)
	limit("the clock has gone back", at, 5)
	add(2)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "rows", Domain: "label:row", AtOnce: 1})
	limit("a label without a percentage", at, 5)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "rows", Domain: "label:row", Percent: 1})
	limit("a label with one", at, 6)
	add(2)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "rows-too", Domain: "label:row", Percent: 2})
	limit("the same label", at, 6)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "aisles", Domain: "label:aisle", Percent: 2})
	used, _, err := s.Budgets.BudgetUsage(t.Context(), at)
	if err != nil || len(used) != 4 || used[1].Rule != "half" || used[1].Limit != 7 {
		t.Errorf("another label: %+v, %v", used, err)
	}
}

// One controller at a time admits. Another one admits none, and changes nothing.
func TestOneControllerAdmits(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1})
	destroy(t, s, "m-1")
	tx, err := s.DB.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it has only locked
	if _, err := dbsqlc.New(tx).LockBudgets(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := storetest.Everything(t, s, "budget_slots", "operations")
	if n, busy, err := s.Budgets.AdmitDestructive(t.Context(), storetest.Now()); n != 0 || !busy || err != nil {
		t.Errorf("beside another one: %d, busy %t, %v", n, busy, err)
	}
	if after := storetest.Everything(t, s, "budget_slots", "operations"); after != before {
		t.Error("something has changed")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, busy, err := s.Budgets.AdmitDestructive(t.Context(), storetest.Now()); n != 1 || busy || err != nil {
		t.Errorf("alone: %d, busy %t, %v", n, busy, err)
	}
}

// Work of a rollout that is paused waits for no budget: where nothing else waits, no slot is asked for.
func TestAnEmptyQueue(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	now := storetest.Now()
	storetest.AdmitDestructive(t, s, 0)
	q := queue{now: now, rules: []budget.Rule{{Name: "all", Harm: kind.Destroys, Domain: "fleet", AtOnce: 1}},
		machines: []standing{{id: "m-1"}, {id: "m-2"}},
		slots:    []slot{{op: "op-ended", machine: "m-2", Slot: budget.Slot{Harm: kind.Destroys, Taken: now, Held: true}}},
		waiting:  []waiting{{op: "op-1", harms: []kind.Harm{kind.Destroys}, paused: true}}}
	q.store(t, s)
	storetest.AdmitDestructive(t, s, 0)
	for _, op := range []string{"op-1", "op-ended", "op-none"} {
		if v, err := budgetstore.BudgetVerdict(t.Context(), s.DB.Q, &s.Budgets.Counts, op, now); v != nil || err != nil {
			t.Errorf("the verdict on %s is %v, %v", op, v, err)
		}
	}
}

// Work that cannot wait is refused where there is no room, or where others wait for the room that is left.
func TestWhatCannotWaitIsRefused(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	now := func(op string) error {
		return s.DB.InTx(t.Context(), func(_ pgx.Tx, q *dbsqlc.Queries) error {
			return s.Budgets.AdmitNow(t.Context(), q, op, storetest.Now())
		})
	}
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 1})
	first, second := destroy(t, s, "m-1"), destroy(t, s, "m-2")
	if f := storetest.WantReason(t, now(second.op), "BUDGET_REQUIRED"); f.Metadata["budget"] != "all" {
		t.Errorf("the refusal names %v", f.Metadata)
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM budget_slots"); n != 0 {
		t.Errorf("%d slots after a refusal", n)
	}
	if err := now(first.op); err != nil {
		t.Fatal(err)
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM budget_slots WHERE operation_id = $1 AND machine_id = 'm-1'",
		first.op); n != 1 {
		t.Errorf("%d slots of the first", n)
	}
	storetest.WantReason(t, now(second.op), "BUDGET_REQUIRED")
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "all", Domain: "fleet", AtOnce: 2})
	if err := now(second.op); err != nil {
		t.Errorf("with room: %v", err)
	}
}

// A machine takes a slot for what follows an operation once, in the place where it stands.
func TestAMachineTakesASlotForWhatFollows(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	machine := func(id, row string) dbsqlc.Machine {
		t.Helper()
		storetest.Register(t, s, id)
		if _, err := s.Machines.Update(t.Context(), &baremetalv1.Machine{MachineId: id,
			Labels: map[string]string{"row": row}}, "ann", storetest.Now(), pgtx.Mask([]string{"labels.row"})); err != nil {
			t.Fatal(err)
		}
		m, err := s.DB.Q.GetMachine(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	live := storetest.Live(t, s, "m-work")
	ops := map[string]string{}
	for _, name := range []string{"one", "two"} {
		ops[name] = storetest.Start(t, s, operationstore.StartRequest{MachineID: live.Machine, RequestID: name,
			Type: fleet.Reboot}).GetOperationId()
		storetest.Decide(t, s, ops[name], operation.CancelAsked{Actor: "tester"})
	}
	admit := func(m dbsqlc.Machine, op string) error {
		return s.DB.InTx(t.Context(), func(_ pgx.Tx, q *dbsqlc.Queries) error {
			return s.Budgets.AdmitMachine(t.Context(), q, m, ops[op], storetest.Now())
		})
	}
	slots := func(want ...string) {
		t.Helper()
		rows, err := s.DB.Pool().Query(t.Context(), `SELECT concat_ws(' ', machine_id, operation_id, harm, labels ->> 'row')
			FROM budget_slots ORDER BY machine_id`)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("the slots are %q, %v, want %q", got, err, want)
		}
	}
	m1, m2, m3 := machine("m-1", "a"), machine("m-2", "a"), machine("m-3", "b")
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "rows", Domain: "label:row", AtOnce: 1})
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "out", Domain: "fleet", PerDay: 1,
		Harm: baremetalv1.Budget_INTERRUPTS})
	first := "m-1 " + ops["one"] + " DESTROYS a"
	for range 2 { // the second time it holds one already
		if err := admit(m1, "one"); err != nil {
			t.Fatal(err)
		}
		slots(first)
	}
	if err := admit(m1, "two"); err != nil {
		t.Fatal(err)
	}
	slots(first)
	if f := storetest.WantReason(t, admit(m2, "two"), "BUDGET_REQUIRED"); f.Metadata["budget"] != "rows" {
		t.Errorf("the refusal names %v", f.Metadata)
	}
	slots(first)
	unread := m3
	unread.Spec = []byte("x")
	if err := admit(unread, "two"); err == nil {
		t.Error("a machine whose place cannot be read is admitted")
	}
	slots(first)
	if err := admit(m3, "two"); err != nil {
		t.Fatal(err)
	}
	slots(first, "m-3 "+ops["two"]+" DESTROYS b")
}

// Slots are listed as they were taken, and one of an operation that has ended is released by a person.
func TestHeldSlots(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	at := storetest.Now()
	var all []*baremetalv1.BudgetSlot
	for i, harm := range []baremetalv1.Budget_Harm{baremetalv1.Budget_DESTROYS, baremetalv1.Budget_INTERRUPTS,
		baremetalv1.Budget_DESTROYS} {
		id := fmt.Sprint("m-", i)
		op := destroy(t, s, id).op
		taken := at.Add(time.Duration(i/2) * time.Minute) // two of them at one time
		if err := storetest.ExecSQL(t, s, `INSERT INTO budget_slots (operation_id, machine_id, site, labels, harm, taken_at)
			VALUES ($1, $2, '', '{}', $3, $4)`, op, id, harm.String(), taken); err != nil {
			t.Fatal(err)
		}
		all = append(all, &baremetalv1.BudgetSlot{OperationId: op, MachineId: id, TakenAt: timestamppb.New(taken),
			OperationPhase: "PENDING", Harm: harm})
	}
	if all[0].GetOperationId() > all[1].GetOperationId() {
		all[0], all[1] = all[1], all[0]
	}
	var after *baremetalv1.BudgetSlot
	for i, want := range append(all, nil) {
		var taken time.Time
		if after != nil {
			taken = after.GetTakenAt().AsTime()
		}
		page, err := s.Budgets.HeldSlots(t.Context(), taken, after.GetOperationId(), 1)
		if err != nil || want == nil && len(page) > 0 || want != nil && (len(page) != 1 || !proto.Equal(page[0], want)) {
			t.Fatalf("page %d: %v, %v, want %v", i, page, err, want)
		}
		after = want
	}
	release := func(machine string) (*baremetalv1.BudgetSlot, error) {
		return s.Budgets.ReleaseSlot(t.Context(), machine, "ann", "it stands", at.Add(time.Hour))
	}
	_, err := release("m-none")
	storetest.WantReason(t, err, "MACHINE_NOT_FOUND")
	_, err = release(all[2].GetMachineId())
	storetest.WantReason(t, err, "BUDGET_SLOT_IN_USE")
	room := 0
	storetest.Decide(t, s, all[2].GetOperationId(), operation.CancelAsked{Actor: "tester"})
	storetest.Exec(t, s, "UPDATE budget_slots SET released_at = NULL") // as after a command that was granted
	s.Budgets.OnRoom(func() { room++ })
	want := proto.CloneOf(all[2])
	want.OperationPhase, want.ReleasedAt = "CANCELED", timestamppb.New(at.Add(time.Hour))
	if got, err := release(all[2].GetMachineId()); err != nil || !proto.Equal(got, want) || room != 1 {
		t.Errorf("released: %v, %v, want %v; room was announced %d times", got, err, want, room)
	}
	if left, err := s.Budgets.HeldSlots(t.Context(), time.Time{}, "", 10); err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v", left, err)
	}
	_, err = release(all[2].GetMachineId())
	storetest.WantReason(t, err, "BUDGET_SLOT_NOT_FOUND")
}

// Of machines that were interrupted, those that are in service again release their slots, and no others.
func TestOnlyMachinesInServiceReleaseTheirSlots(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	storetest.SetBudget(t, s, &baremetalv1.Budget{Name: "out", Domain: "fleet", AtOnce: 2,
		Harm: baremetalv1.Budget_INTERRUPTS})
	for i := range 3 {
		id := fmt.Sprint("m-", i)
		storetest.Live(t, s, id).Arrived(t, s)
		for _, work := range []fleet.OperationType{fleet.ExitMaintenance, fleet.Reboot} {
			op := storetest.Start(t, s, operationstore.StartRequest{MachineID: id, RequestID: string(work), Type: work}).
				GetOperationId()
			if work == fleet.ExitMaintenance {
				storetest.Decide(t, s, op, operation.Evaluate{})
			}
		}
	}
	storetest.AdmitDestructive(t, s, 2)
	for _, id := range []string{"m-0", "m-1"} {
		op := storetest.Machine(t, s, id).GetStatus().GetActiveOperationId()
		if id == "m-0" {
			storetest.Decide(t, s, op, operation.CancelAsked{Actor: "tester"}) // nothing was granted
			continue
		}
		storetest.Decide(t, s, op, operation.Evaluate{})
		if _, err := s.Operations.Decide(t.Context(), op, operation.Evaluate{}, storetest.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	for id, want := range map[string]baremetalv1.MachineStatus_EffectiveState{"m-0": baremetalv1.MachineStatus_IDLE,
		"m-1": baremetalv1.MachineStatus_ATTENTION} {
		if st := storetest.Machine(t, s, id).GetStatus(); st.GetEffectiveState() != want {
			t.Fatalf("%s is %s", id, st.GetEffectiveState())
		}
	}
	storetest.AdmitDestructive(t, s, 1)
	held, err := s.Budgets.HeldSlots(t.Context(), time.Time{}, "", 10)
	var machines []string
	for _, h := range held {
		machines = append(machines, h.GetMachineId())
	}
	if slices.Sort(machines); err != nil || !slices.Equal(machines, []string{"m-1", "m-2"}) {
		t.Errorf("held are those of %v, %v", machines, err)
	}
}

func TestNamesOfHarms(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		destroys, interrupts bool
		want                 []string
	}{
		{false, false, []string{}}, {true, false, []string{"DESTROYS"}}, {false, true, []string{"INTERRUPTS"}},
		{true, true, []string{"DESTROYS", "INTERRUPTS"}},
	} {
		if got := budgetstore.HarmNames(c.destroys, c.interrupts); !slices.Equal(got, c.want) || got == nil {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
