package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// slot says whether a destructive operation may act. Where no budget limits it, it takes its slot here and now, so that
// a budget that is set later counts it.
func (l *OperationContext) slot(ctx context.Context, q *dbsqlc.Queries, now time.Time) (held bool, err error) {
	if !l.Row.Destructive || operation.IsTerminal(operation.Phase(l.Row.Phase)) {
		return false, nil
	}
	r, err := q.SlotOf(ctx, dbsqlc.SlotOfParams{OperationID: l.Row.OperationID, MachineID: l.Row.TargetID})
	if err != nil {
		return false, fmt.Errorf("read slot: %w", err)
	}
	if r.Held || l.Row.Phase != string(operation.Pending) || r.Limited {
		if !r.Held {
			pgtx.PostcommitOf(q).Note(budgetstore.SlotFreed{}) // it asks
		}
		return r.Held, nil
	}
	return true, budgetstore.TakeSlots(ctx, q, []string{l.Row.OperationID}, now)
}

// freeSlot gives a slot back when the operation's end allows it: a success proves that the machine is well, and one
// that was never granted a command did nothing. Any other waits for a success, or for a person.
func (l *OperationContext) freeSlot(ctx context.Context, q *dbsqlc.Queries, d operation.Decision, now time.Time) error {
	if !l.Row.Destructive || !operation.IsTerminal(d.Op.Phase) || operation.IsTerminal(operation.Phase(l.Row.Phase)) {
		return nil
	}
	pgtx.PostcommitOf(q).Note(budgetstore.SlotFreed{})
	if d.Op.Phase != operation.Succeeded {
		err := q.ReleaseSlotIfUntouched(ctx, dbsqlc.ReleaseSlotIfUntouchedParams{OperationID: d.Op.ID, Now: &now})
		if err != nil {
			return fmt.Errorf("give slot back: %w", err)
		}
		return nil
	}
	if _, err := q.ReleaseSlotOfMachine(ctx, dbsqlc.ReleaseSlotOfMachineParams{MachineID: d.Op.MachineID,
		Now: &now}); err != nil {
		return fmt.Errorf("give slot back: %w", err)
	}
	return nil
}
