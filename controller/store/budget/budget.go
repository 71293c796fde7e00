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
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
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

// OnRoom sets the function that is called when a slot may be free, or when one is asked for: after the commit, and
// rather too often than too seldom.
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
		Harm: baremetalv1.Budget_Harm(baremetalv1.Budget_Harm_value[b.Harm]),
	}
}

// harmNamed returns the harm of a stored name.
func harmNamed(name string) kind.Harm {
	if name == kind.Interrupts.String() {
		return kind.Interrupts
	}
	return kind.Destroys
}

// HarmNames returns the stored names of the harms of which an operation needs slots.
func HarmNames(destroys, interrupts bool) []string {
	names := []string{}
	for _, h := range harmsOf(destroys, interrupts) {
		names = append(names, h.String())
	}
	return names
}

// harmsOf returns the harms of which an operation needs slots.
func harmsOf(destroys, interrupts bool) (harms []kind.Harm) {
	if destroys {
		harms = append(harms, kind.Destroys)
	}
	if interrupts {
		harms = append(harms, kind.Interrupts)
	}
	return harms
}

func ruleOf(b dbsqlc.Budget) budget.Rule {
	return budget.Rule{
		Name: b.Name, Domain: b.Domain, Value: b.Value, AtOnce: int(b.AtOnce), Percent: int(b.Percent),
		PerHour: int(b.PerHour), PerDay: int(b.PerDay), Harm: harmNamed(b.Harm),
	}
}

// SetBudget makes a budget or replaces it.
func (s *Store) SetBudget(
	ctx context.Context, b *baremetalv1.Budget, actor string, now time.Time, opts ...pgtx.WriteOption,
) (*baremetalv1.Budget, error) {
	var row dbsqlc.Budget
	harm := kind.Destroys
	if b.GetHarm() == baremetalv1.Budget_INTERRUPTS {
		harm = kind.Interrupts
	}
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		row, err = q.SetBudget(ctx, dbsqlc.SetBudgetParams{
			Name: b.GetName(), Domain: b.GetDomain(), Value: b.GetValue(), AtOnce: b.GetAtOnce(), Percent: b.GetPercent(),
			PerHour: b.GetPerHour(), PerDay: b.GetPerDay(), Harm: harm.String(), Now: now,
		})
		if err != nil {
			return err
		}
		if err := pgtx.ConditionsOf(opts).Replacing("budget "+row.Name, row.Version); err != nil {
			return err
		}
		pgtx.NotesOf(q).Note(SlotFreed{})
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
		"per_hour": fmt.Sprint(b.PerHour), "per_day": fmt.Sprint(b.PerDay), "harm": b.Harm,
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
		pgtx.NotesOf(q).Note(SlotFreed{})
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "DELETE_BUDGET", Target: name,
			Data: limitsOf(row)}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("delete budget: %w", err)
	}
	return budgetMessage(row), nil
}

// AdmitDestructive assigns slots to waiting operations that fit, and wakes them. It returns how many it admitted, and
// reports whether another controller was at it, so that it did nothing.
func (s *Store) AdmitDestructive(ctx context.Context, now time.Time) (admitted int, busy bool, err error) {
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		admitted = 0
		alone, err := q.LockBudgets(ctx)
		if busy = !alone; err != nil || busy {
			return err
		}
		if err := releaseReturned(ctx, q, now); err != nil {
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

// AdmitNow takes the slots of a new operation that cannot wait, because it ends in the transaction that makes it. Those
// that wait already come first. BUDGET_REQUIRED where there is no room.
func (s *Store) AdmitNow(ctx context.Context, q *dbsqlc.Queries, operationID string, now time.Time) error {
	if err := q.WaitForBudgets(ctx); err != nil {
		return fmt.Errorf("wait for the admission of others: %w", err)
	}
	no, err := BudgetVerdict(ctx, q, &s.Counts, operationID, now)
	if err != nil {
		return err
	}
	if no != nil {
		return no.Refuse()
	}
	return TakeSlots(ctx, q, []string{operationID}, now)
}

// AdmitMachine takes a slot of work that will destroy what the machine holds once an operation has ended, which holds
// the slot until then. BUDGET_REQUIRED where there is no room.
func (s *Store) AdmitMachine(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, operationID string, now time.Time,
) error {
	if err := q.WaitForBudgets(ctx); err != nil {
		return fmt.Errorf("wait for the admission of others: %w", err)
	}
	_, err := q.SlotOfMachine(ctx, dbsqlc.SlotOfMachineParams{MachineID: m.MachineID, Harm: kind.Destroys.String()})
	if !errors.Is(err, pgx.ErrNoRows) {
		return pgtx.Wrap(err, "read slot") // it holds one already
	}
	rules, groups, slots, err := BudgetWorld(ctx, q, &s.Counts, now)
	if err != nil {
		return err
	}
	place, err := PlaceOfMachine(m)
	if err != nil {
		return err
	}
	v := budget.NewRound(rules, groups, slots, now).Ask(budget.Request{OperationID: operationID,
		Harms: harmsOf(true, false), Place: place})
	if err := v.Refuse(); err != nil {
		return err
	}
	return pgtx.Wrap(q.TakeSlotOfMachine(ctx, dbsqlc.TakeSlotOfMachineParams{OperationID: operationID,
		MachineID: m.MachineID, Now: now}), "take slot")
}

// releaseReturned releases the slots of interrupted machines that are in service again: after a failed operation its
// outcome was settled, or other work has mended the machine.
func releaseReturned(ctx context.Context, q *dbsqlc.Queries, now time.Time) error {
	held, err := q.HeldInterruptions(ctx)
	if err != nil || len(held) == 0 {
		return pgtx.Wrap(err, "read slots of interruptions")
	}
	ids := make([]string, len(held))
	for i, r := range held {
		ids[i] = r.Machine.MachineID
	}
	rows, err := q.ConditionsOf(ctx, ids)
	if err != nil {
		return fmt.Errorf("read conditions: %w", err)
	}
	conditions := map[string][]dbsqlc.MachineCondition{}
	for _, c := range rows {
		conditions[c.MachineID] = append(conditions[c.MachineID], c)
	}
	back := []string{}
	for _, r := range held {
		if fleet.Effective(convert.FleetFacts(r.Machine, conditions[r.Machine.MachineID])) == fleet.StateIdle {
			back = append(back, r.Machine.MachineID)
		}
	}
	return pgtx.Wrap(q.ReleaseInterruptions(ctx, dbsqlc.ReleaseInterruptionsParams{MachineIds: back, Now: &now}),
		"give slots of interruptions back")
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
func admissible(
	ctx context.Context,
	q *dbsqlc.Queries,
	counts *MachineCounts,
	now time.Time,
) (ids []string, err error) {
	if ids, err = q.WaitingWithSlots(ctx); err != nil {
		return nil, fmt.Errorf("read who waits on a machine with a slot: %w", err)
	}
	_, err = askInOrder(ctx, q, counts, now, func(v budget.Verdict) bool {
		if v.Admitted {
			ids = append(ids, v.OperationID)
		}
		return true
	})
	return ids, err
}

// BudgetVerdict returns the verdict on a waiting operation; nil when no budget holds it.
func BudgetVerdict(
	ctx context.Context, q *dbsqlc.Queries, counts *MachineCounts, operationID string, now time.Time,
) (*budget.Verdict, error) {
	var found *budget.Verdict
	admitted := false // it may take the last slot itself
	round, err := askInOrder(ctx, q, counts, now, func(v budget.Verdict) bool {
		if v.OperationID == operationID {
			if admitted = v.Admitted; !admitted {
				found = &v
			}
		}
		return v.OperationID != operationID
	})
	if err != nil || found != nil || admitted || round == nil || !round.Full() {
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
	v := round.Ask(budget.Request{OperationID: operationID, Harms: harmsOf(place.Destroys, place.Interrupts),
		Place: placeOf(place.Site, place.Labels, place.Rack),
		Also:  requestPlace(place.RequestSite, place.RequestLabels, place.RequestRack)})
	if v.Admitted { // the budgets that are full are of another harm
		return nil, nil
	}
	return &v, nil
}

// askInOrder asks for every waiting operation whose machine holds no slot, in the order of creation. It stops when told
// returns false, or when there is no room for any. The round is nil when none waits.
func askInOrder(
	ctx context.Context, q *dbsqlc.Queries, counts *MachineCounts, now time.Time, told func(budget.Verdict) bool,
) (round *budget.Round, err error) {
	after := dbsqlc.WaitingForSlotsParams{MaxRows: queuePage}
	for range queueLimit / queuePage {
		waiting, err := q.WaitingForSlots(ctx, after)
		if err != nil {
			return nil, fmt.Errorf("read who waits for a slot: %w", err)
		}
		if len(waiting) > 0 && round == nil {
			rules, groups, slots, err := BudgetWorld(ctx, q, counts, now)
			if err != nil {
				return nil, err
			}
			round = budget.NewRound(rules, groups, slots, now)
		}
		for _, w := range waiting {
			q := budget.Request{OperationID: w.OperationID, Harms: harmsOf(w.Destroys, w.Interrupts),
				Place: placeOf(w.Site, w.Labels, w.Rack),
				Also:  requestPlace(w.RequestSite, w.RequestLabels, w.RequestRack)}
			if round.Full() || !told(round.Ask(q)) {
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

func placeOf(site string, labels []byte, rack string) budget.Place {
	return budget.Place{Site: site, Labels: convert.JSONToMap(labels), Rack: rack}
}

// PlaceOfMachine returns where a machine stands.
func PlaceOfMachine(m dbsqlc.Machine) (budget.Place, error) {
	spec, err := convert.SpecFromJSON(m.Spec)
	if err != nil {
		return budget.Place{}, err
	}
	return placeOf(m.Site, m.Labels, spec.GetRack()), nil
}

// requestPlace returns where a machine stood when its operation was asked for; none for operations of older versions.
func requestPlace(site *string, labels []byte, rack *string) []budget.Place {
	if site == nil {
		return nil
	}
	return []budget.Place{placeOf(*site, labels, pgtx.StrVal(rack))}
}

func BudgetWorld(
	ctx context.Context, q *dbsqlc.Queries, counts *MachineCounts, now time.Time,
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
		also := requestPlace(t.RequestSite, t.RequestLabels, t.RequestRack)
		if t.Held {
			also = append(also, placeOf(t.SiteNow, t.LabelsNow, t.RackNow))
		}
		slots = append(
			slots,
			budget.Slot{Place: placeOf(t.Site, t.Labels, pgtx.StrVal(t.Rack)), Also: also, Harm: harmNamed(t.Harm),
				Taken: t.TakenAt, Held: t.Held},
		)
	}
	if !percent {
		return rules, nil, slots, nil // counting the fleet is for percentages only
	}
	groups, err = counts.groups(ctx, q, keys, now)
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
		ReleasedAt: convert.TimestampPtr(r.ReleasedAt), Harm: baremetalv1.Budget_Harm(baremetalv1.Budget_Harm_value[r.Harm]),
	}
}

// ReleaseSlot releases the slot of a machine whose operation has ended.
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
		row, err = q.SlotOfMachine(ctx, dbsqlc.SlotOfMachineParams{MachineID: machineID})
		if errors.Is(err, pgx.ErrNoRows) {
			return failure.NotFound("BUDGET_SLOT_NOT_FOUND", "machine %s holds no slot", machineID).WithField("machine_id",
				"holds no slot")
		}
		if err != nil {
			return fmt.Errorf("read slot: %w", err)
		}
		if err := budget.MayRelease(row.OperationID, operation.Phase(row.Phase)); err != nil {
			return err
		}
		if err := q.ReleaseSlotsLeftBehind(ctx, dbsqlc.ReleaseSlotsLeftBehindParams{MachineID: machineID,
			Now: &now}); err != nil {
			return err
		}
		row.ReleasedAt = &now
		pgtx.NotesOf(q).Note(SlotFreed{})
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: actor, Verb: "RELEASE_BUDGET_SLOT", Target: machineID, Operation: row.OperationID, Comment: comment,
		}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("give slot back: %w", err)
	}
	return slotMessage(row), nil
}
