package budget_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
)

// A statement that fails is an error of the call, which changes nothing then.
func TestAFailedStatementChangesNoBudget(t *testing.T) {
	t.Parallel()
	s := storetest.NewFaulty(t)
	ctx, at, b := t.Context(), storetest.Now(), s.Budgets
	first, second := destroy(t, s, "m-1"), destroy(t, s, "m-2")
	storetest.Register(t, s, "m-3")
	m3, err := s.DB.Q.GetMachine(ctx, "m-3")
	if err != nil {
		t.Fatal(err)
	}
	var other string // an operation that holds no slot
	if err := s.DB.Pool().QueryRow(ctx, "SELECT operation_id FROM operations WHERE NOT destructive LIMIT 1").
		Scan(&other); err != nil {
		t.Fatal(err)
	}
	in := func(fn func(q *dbsqlc.Queries) error) error {
		return s.DB.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error { return fn(q) })
	}
	set := func(name string, percent int32) func() error {
		return func() error {
			_, err := b.SetBudget(ctx, &baremetalv1.Budget{Name: name, Domain: "fleet", Percent: percent}, "ann", at)
			return err
		}
	}
	admits := func(want int) func() error {
		return func() error {
			n, busy, err := b.AdmitDestructive(ctx, at)
			if err == nil && (n != want || busy) {
				t.Errorf("admitted %d, busy %t", n, busy)
			}
			if err != nil && (n != 0 || busy) {
				t.Errorf("with an error it admits %d, busy %t", n, busy)
			}
			return err
		}
	}
	verdict := func(op string) func() error {
		return func() error {
			_, err := budgetstore.BudgetVerdict(ctx, s.DB.Q, &b.Counts, op, at)
			return err
		}
	}
	storetest.Calls(
		t,
		s,
		storetest.Call{Name: "set", Do: set("all", 100)},
		storetest.Call{Name: "set another", Do: set("more", 1)},
		storetest.Call{Name: "list", Do: func() error { _, err := b.ListBudgets(ctx, "", 9); return err }},
		storetest.Call{Name: "usage", Do: func() error { _, _, err := b.BudgetUsage(ctx, at.Add(time.Hour)); return err }},
		storetest.Call{Name: "verdict", Do: verdict(second.op)},
		storetest.Call{Name: "admit", Do: admits(1)},
		storetest.Call{Name: "verdict of a full fleet", Do: verdict(second.op)},
		storetest.Call{Name: "at once, of a full fleet", Do: func() error {
			err := in(func(q *dbsqlc.Queries) error { return b.AdmitNow(ctx, q, second.op, at) })
			if failure.ReasonOf(err) == "BUDGET_REQUIRED" {
				return nil
			}
			return err
		}},
		storetest.Call{Name: "delete", Do: func() error { _, err := b.DeleteBudget(ctx, "more", "ann", at); return err }},
		storetest.Call{Name: "at once", Do: func() error {
			return in(func(q *dbsqlc.Queries) error { return b.AdmitNow(ctx, q, second.op, at) })
		}},
		storetest.Call{Name: "of a machine", Do: func() error {
			return in(func(q *dbsqlc.Queries) error { return b.AdmitMachine(ctx, q, m3, other, at) })
		}},
		storetest.Call{Name: "of a machine again", Do: func() error { return b.AdmitMachine(ctx, s.DB.Q, m3, first.op, at) }},
		storetest.Call{Name: "held", Do: func() error { _, err := b.HeldSlots(ctx, time.Time{}, "", 9); return err }},
		storetest.Call{Name: "release", Before: func() {
			storetest.Decide(t, s, first.op, operation.CancelAsked{Actor: "tester"})
			storetest.Exec(t, s, "UPDATE budget_slots SET released_at = NULL WHERE machine_id = 'm-1'")
		}, Do: func() error { _, err := b.ReleaseSlot(ctx, "m-1", "ann", "", at); return err }},
		storetest.Call{
			Name: "admit none",
			Before: func() { // of a machine in service, the slot of an interruption that has ended
				storetest.Exec(t, s, `UPDATE machines SET phase = 'READY', node_state = 'active' WHERE machine_id = 'm-3'`)
				storetest.Exec(t, s, `INSERT INTO machine_conditions (machine_id, type, status, reason, last_transition)
				SELECT 'm-3', unnest('{Reachable,Provisioned}'::text[]), true, '', now()`)
				if err := storetest.ExecSQL(t, s, `INSERT INTO budget_slots (operation_id, machine_id, site, labels, harm, taken_at)
				VALUES ($1, 'm-3', '', '{}', 'INTERRUPTS', now())`, first.op); err != nil {
					t.Fatal(err)
				}
			},
			Do: admits(0),
		},
	)
}
