package budget

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/budget"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	// queueLimit bounds how many waiting operations one round looks at. Those behind are looked at when there are fewer.
	queueLimit = 50_000
	// queuePage is how many are read at a time. Where a budget of the fleet is full, one page is all that is read.
	queuePage = 200
)

// OnRoom sets the function that is told when a slot may be free, or when one is asked for: after the commit, and rather
// too often than too seldom.
func (s *Store) OnRoom(tell func()) { s.room = tell }

// SlotFreed is noted by a transaction after which a slot may be free, or that asks for one.
type SlotFreed struct{}

func (s *Store) TellRoom() {
	if s.room != nil {
		s.room()
	}
}

func budgetMessage(b dbsqlc.Budget) *baremetalv1.Budget {
	return &baremetalv1.Budget{
		Name: b.Name, Domain: b.Domain, Value: b.Value, AtOnce: b.AtOnce, Percent: b.Percent, PerHour: b.PerHour,
		PerDay: b.PerDay, UpdatedAt: convert.Timestamp(b.UpdatedAt), Version: b.Version,
	}
}

func ruleOf(b dbsqlc.Budget) budget.Rule {
	return budget.Rule{
		Name: b.Name, Domain: b.Domain, Value: b.Value, AtOnce: int(b.AtOnce), Percent: int(b.Percent),
		PerHour: int(b.PerHour), PerDay: int(b.PerDay),
	}
}

// SetBudget makes a budget or replaces it.
func (s *Store) SetBudget(
	ctx context.Context, b *baremetalv1.Budget, actor string, now time.Time, opts ...pgtx.WriteOption,
) (*baremetalv1.Budget, error) {
	var row dbsqlc.Budget
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		row, err = q.SetBudget(ctx, dbsqlc.SetBudgetParams{
			Name: b.GetName(), Domain: b.GetDomain(), Value: b.GetValue(), AtOnce: b.GetAtOnce(), Percent: b.GetPercent(),
			PerHour: b.GetPerHour(), PerDay: b.GetPerDay(), Now: now,
		})
		if err != nil {
			return err
		}
		if err := pgtx.ConditionsOf(opts).Replacing("budget "+row.Name, row.Version); err != nil {
			return err
		}
		pgtx.PostcommitOf(q).Note(SlotFreed{})
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "SET_BUDGET", Target: row.Name,
			Data: limitsOf(row)}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("set budget: %w", err)
	}
	return budgetMessage(row), nil
}

// limitsOf is a budget as the audit log has it.
func limitsOf(b dbsqlc.Budget) map[string]string {
	return map[string]string{
		"domain": b.Domain, "value": b.Value, "at_once": fmt.Sprint(b.AtOnce), "percent": fmt.Sprint(b.Percent),
		"per_hour": fmt.Sprint(b.PerHour), "per_day": fmt.Sprint(b.PerDay),
	}
}

// ListBudgets reads budgets by name, from a name on.
func (s *Store) ListBudgets(ctx context.Context, after string, limit int32) ([]*baremetalv1.Budget, error) {
	rows, err := s.db.Lists(ctx).BudgetsAfter(ctx, dbsqlc.BudgetsAfterParams{AfterName: after, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list budgets: %w", err)
	}
	out := make([]*baremetalv1.Budget, 0, len(rows))
	for _, r := range rows {
		out = append(out, budgetMessage(r))
	}
	return out, nil
}

// DeleteBudget removes a budget; BUDGET_NOT_FOUND where there is none.
func (s *Store) DeleteBudget(
	ctx context.Context, name, actor string, now time.Time, opts ...pgtx.WriteOption,
) (*baremetalv1.Budget, error) {
	var row dbsqlc.Budget
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		row, err = q.DeleteBudget(ctx, name)
		if errors.Is(err, pgx.ErrNoRows) {
			return failure.NotFound("BUDGET_NOT_FOUND", "there is no budget %q", name).WithField("name", "unknown")
		}
		if err != nil {
			return err
		}
		if err := pgtx.ConditionsOf(opts).Check("budget "+name, pgtx.ResourceExists,
			pgtx.Stored{Exists: true, Version: row.Version}); err != nil {
			return err
		}
		pgtx.PostcommitOf(q).Note(SlotFreed{})
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "DELETE_BUDGET", Target: name,
			Data: limitsOf(row)}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("delete budget: %w", err)
	}
	return budgetMessage(row), nil
}

// AdmitDestructive gives slots to those who wait for one and fit, and wakes their operations. It says how many it
// admitted, and whether another controller was at it, so that it did nothing.
func (s *Store) AdmitDestructive(ctx context.Context, now time.Time) (admitted int, busy bool, err error) {
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		admitted = 0
		alone, err := q.LockBudgets(ctx)
		if busy = !alone; err != nil || busy {
			return err
		}
		ids, err := admissible(ctx, q, &s.Counts, now)
		if err != nil || len(ids) == 0 {
			return err
		}
		if ids, err = q.LockWaiting(ctx, ids); err != nil {
			return fmt.Errorf("lock waiting operations: %w", err)
		}
		if admitted = len(ids); admitted == 0 {
			return nil
		}
		if err := TakeSlots(ctx, q, ids, now); err != nil {
			return err
		}
		return q.WakeAdmitted(ctx, dbsqlc.WakeAdmittedParams{OperationIds: ids, Now: &now})
	})
	if err != nil {
		return 0, false, fmt.Errorf("admit destructive operations: %w", err)
	}
	return admitted, busy, nil
}

func TakeSlots(ctx context.Context, q *dbsqlc.Queries, ids []string, now time.Time) error {
	if err := q.TakeOverSlots(ctx, ids); err != nil {
		return fmt.Errorf("take over slots: %w", err)
	}
	if err := q.TakeSlots(ctx, dbsqlc.TakeSlotsParams{OperationIds: ids, Now: now}); err != nil {
		return fmt.Errorf("take slots: %w", err)
	}
	return nil
}

// admissible are those who wait and fit. Whose machine holds a slot already needs no other.
func admissible(ctx context.Context, q *dbsqlc.Queries, fleet *MachineCounts, now time.Time) (ids []string, err error) {
	if ids, err = q.WaitingWithSlots(ctx); err != nil {
		return nil, fmt.Errorf("read who waits on a machine with a slot: %w", err)
	}
	_, err = askInOrder(ctx, q, fleet, now, func(v budget.Verdict) bool {
		if v.Admitted {
			ids = append(ids, v.OperationID)
		}
		return true
	})
	return ids, err
}

// BudgetVerdict says what stands in the way of an operation that waits; nil when nothing does.
func BudgetVerdict(
	ctx context.Context, q *dbsqlc.Queries, fleet *MachineCounts, operationID string, now time.Time,
) (*budget.Verdict, error) {
	var found *budget.Verdict
	round, err := askInOrder(ctx, q, fleet, now, func(v budget.Verdict) bool {
		if v.OperationID == operationID && !v.Admitted {
			found = &v
		}
		return v.OperationID != operationID
	})
	if err != nil || found != nil || round == nil || !round.Full() {
		return found, err
	}
	// It was not come to, because there is no room for anybody.
	place, err := q.PlaceOfWaiting(ctx, operationID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the place of a waiting operation: %w", err)
	}
	v := round.Ask(budget.Request{OperationID: operationID, Place: PlaceOf(place.Site, place.Labels)})
	return &v, nil
}

// askInOrder asks for everyone who waits and whose machine holds no slot, in the order of creation, until told says no,
// or until there is no room for anybody. The round is nil when nobody waits.
func askInOrder(
	ctx context.Context, q *dbsqlc.Queries, fleet *MachineCounts, now time.Time, told func(budget.Verdict) bool,
) (round *budget.Round, err error) {
	after := dbsqlc.WaitingForSlotsParams{MaxRows: queuePage}
	for range queueLimit / queuePage {
		waiting, err := q.WaitingForSlots(ctx, after)
		if err != nil {
			return nil, fmt.Errorf("read who waits for a slot: %w", err)
		}
		if len(waiting) > 0 && round == nil {
			rules, groups, slots, err := BudgetWorld(ctx, q, fleet, now)
			if err != nil {
				return nil, err
			}
			round = budget.NewRound(rules, groups, slots, now)
		}
		for _, w := range waiting {
			if round.Full() || !told(round.Ask(budget.Request{OperationID: w.OperationID, Place: PlaceOf(w.Site, w.Labels)})) {
				return round, nil
			}
			after.AfterCreated, after.AfterID = w.CreatedAt, w.OperationID
		}
		if len(waiting) < queuePage {
			break
		}
	}
	return round, nil
}

func PlaceOf(site string, labels []byte) budget.Place {
	return budget.Place{Site: site, Labels: convert.JSONToMap(labels)}
}

func BudgetWorld(
	ctx context.Context, q *dbsqlc.Queries, fleet *MachineCounts, now time.Time,
) (rules []budget.Rule, groups []budget.Group, slots []budget.Slot, err error) {
	limits, err := q.ListBudgets(ctx)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read budgets: %w", err)
	}
	percent, keys := false, []string{}
	for _, b := range limits {
		rules = append(rules, ruleOf(b))
		percent = percent || b.Percent > 0
		if key, ok := strings.CutPrefix(b.Domain, budget.LabelPrefix); ok && b.Percent > 0 && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	taken, err := q.SlotsThatCount(ctx, budget.Since(rules, now))
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read slots: %w", err)
	}
	for _, t := range taken {
		slots = append(slots, budget.Slot{Place: PlaceOf(t.Site, t.Labels), Taken: t.TakenAt, Held: t.Held})
	}
	if !percent {
		return rules, nil, slots, nil // counting the fleet is for percentages only
	}
	groups, err = fleet.groups(ctx, q, keys, now)
	return rules, groups, slots, err
}

// HeldSlots reads slots that are held, oldest first, after a place in that order.
func (s *Store) HeldSlots(
	ctx context.Context, afterTaken time.Time, afterID string, limit int32,
) ([]*baremetalv1.BudgetSlot, error) {
	rows, err := s.db.Lists(ctx).ListSlots(ctx, dbsqlc.ListSlotsParams{AfterTaken: afterTaken, AfterID: afterID,
		PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list slots: %w", err)
	}
	out := make([]*baremetalv1.BudgetSlot, 0, len(rows))
	for _, r := range rows {
		out = append(out, slotMessage(dbsqlc.SlotOfMachineRow(r)))
	}
	return out, nil
}

func slotMessage(r dbsqlc.SlotOfMachineRow) *baremetalv1.BudgetSlot {
	return &baremetalv1.BudgetSlot{
		OperationId: r.OperationID, MachineId: r.MachineID, TakenAt: convert.Timestamp(r.TakenAt), OperationPhase: r.Phase,
		ReleasedAt: convert.TimestampPtr(r.ReleasedAt),
	}
}

// ReleaseSlot gives back what a machine holds whose operation has ended.
func (s *Store) ReleaseSlot(
	ctx context.Context, machineID, actor, comment string, now time.Time,
) (*baremetalv1.BudgetSlot, error) {
	var row dbsqlc.SlotOfMachineRow
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if _, err := q.LockMachine(ctx, machineID); errors.Is(err, pgx.ErrNoRows) {
			return convert.MachineNotFound(machineID)
		} else if err != nil {
			return fmt.Errorf("lock machine: %w", err)
		}
		var err error
		row, err = q.SlotOfMachine(ctx, machineID)
		if errors.Is(err, pgx.ErrNoRows) {
			return failure.NotFound("BUDGET_SLOT_NOT_FOUND", "machine %s holds no slot", machineID).WithField("machine_id",
				"holds no slot")
		}
		if err != nil {
			return fmt.Errorf("read slot: %w", err)
		}
		if !operation.IsTerminal(operation.Phase(row.Phase)) {
			return failure.Precondition("BUDGET_SLOT_IN_USE",
				"operation %s is %s and holds the slot; wait for its end or cancel it",
				row.OperationID, row.Phase).WithMeta("operation_id", row.OperationID)
		}
		if _, err := q.ReleaseSlotOfMachine(ctx, dbsqlc.ReleaseSlotOfMachineParams{MachineID: machineID,
			Now: &now}); err != nil {
			return err
		}
		row.ReleasedAt = &now
		pgtx.PostcommitOf(q).Note(SlotFreed{})
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: actor, Verb: "RELEASE_BUDGET_SLOT", Target: machineID, Operation: row.OperationID, Comment: comment,
		}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("give slot back: %w", err)
	}
	return slotMessage(row), nil
}
