package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// slot reports whether an operation that needs slots holds them. Where no budget limits it, it takes them here and now,
// so that a budget that is set later counts it.
func (l *OperationContext) slot(ctx context.Context, q *dbsqlc.Queries, now time.Time) (held bool, err error) {
	if !l.Snap.Op.NeedsSlot() || operation.IsTerminal(operation.Phase(l.Row.Phase)) {
		return false, nil
	}
	r, err := q.SlotOf(ctx, dbsqlc.SlotOfParams{OperationID: l.Row.OperationID, MachineID: l.Row.TargetID,
		Harms: budgetstore.HarmNames(l.Row.Destructive, l.Row.Interrupts)})
	if err != nil {
		return false, fmt.Errorf("read slot: %w", err)
	}
	if r.Held || l.Row.Phase != string(operation.Pending) || r.Limited {
		if !r.Held {
			pgtx.NotesOf(q).Note(budgetstore.SlotFreed{}) // it asks
		}
		return r.Held, nil
	}
	return true, budgetstore.TakeSlots(ctx, q, []string{l.Row.OperationID}, now)
}

// freesSlot reports whether the operation's end may give slots back.
func (l *OperationContext) freesSlot(d operation.Decision) bool {
	return operation.IsTerminal(d.Op.Phase) && !operation.IsTerminal(operation.Phase(l.Row.Phase)) &&
		(d.Op.NeedsSlot() || d.Op.Type == fleet.ExitMaintenance)
}

// freeSlot gives slots back when the operation's end allows it: a success proves that the machine is well, and an
// operation that was never granted a command destroyed nothing. Any other waits for a success, or for a person. An
// interruption's slot is given back by the next admission once the machine is in service again, however its work ended.
func (l *OperationContext) freeSlot(ctx context.Context, q *dbsqlc.Queries, d operation.Decision, now time.Time) error {
	pgtx.NotesOf(q).Note(budgetstore.SlotFreed{})
	if d.Op.Phase != operation.Succeeded {
		return pgtx.Wrap(q.ReleaseSlotIfUntouched(ctx, dbsqlc.ReleaseSlotIfUntouchedParams{OperationID: d.Op.ID, Now: &now}),
			"give slot back")
	}
	if !d.Op.Destructive {
		return nil
	}
	_, err := q.ReleaseSlotOfMachine(ctx, dbsqlc.ReleaseSlotOfMachineParams{MachineID: d.Op.MachineID, Now: &now,
		Harms: budgetstore.HarmNames(true, false)})
	return pgtx.Wrap(err, "give slot back")
}
