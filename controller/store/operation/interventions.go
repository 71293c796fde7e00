package operation

import (
	"context"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Settle lifts a fence on an operator's word. The command must be the machine's unresolved one.
func (s *Store) Settle(
	ctx context.Context, machineID, commandID, verdict, actor, comment string, now time.Time,
) (*baremetalv1.Machine, error) {
	return s.machines.WithMachine(ctx, machineID, func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
		if err := operation.MaySettle(machineID, pgtx.StrVal(m.UnresolvedCommandID), commandID); err != nil {
			return err
		}
		row, err := q.GetCommand(ctx, commandID)
		if err != nil {
			return fmt.Errorf("read command: %w", err)
		}
		if err := SettleCommand(ctx, q, machineID, convert.CommandFromRow(&row), "operator:"+verdict, now); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: actor, Verb: "SETTLE", Target: machineID, Operation: row.OperationID, Comment: comment,
			Data: map[string]string{"command_id": commandID, "verdict": verdict},
		}, now)
	})
}

// ClearIntervention clears NeedsIntervention and takes the machine out of quarantine, back to the state that it came
// from. One that was in a state of work is not fit for use by an admin's word alone.
func (s *Store) ClearIntervention(
	ctx context.Context, machineID, actor, comment string, now time.Time,
) (*baremetalv1.Machine, error) {
	return s.machines.WithMachine(ctx, machineID, func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
		if err := MayClear(m); err != nil {
			return err
		}
		if err := machinestore.CureCauses(ctx, q, machineID, fleet.Happened{Cures: []fleet.Cure{fleet.CuredByAdmin}},
			"ClearedByAdmin", now); err != nil {
			return err
		}
		if node.Parse(m.NodeState) == node.Quarantined {
			if err := nodestate.MoveNode(ctx, q, machineID, node.Parse(m.QuarantinedFrom), node.Admin, actor, comment, nil,
				now); err != nil {
				return err
			}
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "CLEAR_INTERVENTION", Target: machineID,
			Comment: comment}, now)
	})
}

// MayClear returns why a machine would not be cleared; nil if it would be.
func MayClear(m dbsqlc.Machine) error {
	r := node.MayClear(node.Parse(m.NodeState), node.Parse(m.QuarantinedFrom), m.QuarantineReason)
	if r == nil {
		return nil
	}
	return r.Failure().WithMeta("machine_id", m.MachineID)
}

// SetFlag sets or clears RMA or Retired. What is under way on a machine that is flagged is cancelled.
func (s *Store) SetFlag(
	ctx context.Context, machineID, flag string, value bool, actor, comment string, now time.Time,
	opts ...pgtx.WriteOption,
) (*baremetalv1.Machine, error) {
	return s.machines.WithMachine(ctx, machineID, func(q *dbsqlc.Queries, m dbsqlc.Machine) error {
		if err := pgtx.ConditionsOf(opts).Check("machine "+machineID, machinestore.MachineExists,
			pgtx.Stored{Exists: true, Version: m.Version}); err != nil {
			return err
		}
		change := operation.ConditionChange{Type: fleet.ConditionType(flag), Status: value, Reason: "SetByAdmin"}
		if err := machinestore.SetCondition(ctx, q, machineID, change, now); err != nil {
			return err
		}
		if value {
			if _, err := s.StopWork(ctx, q, m, actor, "the machine is flagged "+flag, now); err != nil {
				return err
			}
		}
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: actor, Verb: "SET_FLAG", Target: machineID, Comment: comment,
			Data: map[string]string{"flag": flag, "value": fmt.Sprint(value)},
		}, now)
	})
}

// causes stores what a decision raises and cures. A machine that needs nobody has no causes to read.
func (l *OperationContext) causes(
	ctx context.Context, q *dbsqlc.Queries, m operation.MachineChange, now time.Time,
) error {
	needed := l.Snap.World.Machine.Conditions[fleet.NeedsIntervention]
	if len(m.Happened.Cures) > 0 && needed {
		if err := machinestore.CureCauses(ctx, q, l.Row.TargetID, m.Happened, "OperationSucceeded", now); err != nil {
			return err
		}
	}
	if m.Raise == nil {
		return nil
	}
	return machinestore.RaiseCause(ctx, q, l.Row.TargetID, l.Row.OperationID, *m.Raise, now)
}

// changesCauses reports whether a decision raises a cause, or cures one of a machine that has some.
func (l *OperationContext) changesCauses(m operation.MachineChange) bool {
	return m.Raise != nil || len(m.Happened.Cures) > 0 && l.Snap.World.Machine.Conditions[fleet.NeedsIntervention]
}

// A machine that is blocked or retired runs nothing. The operation under way is cancelled in the transaction that
// blocks it: what was never granted never starts, queued or sent; what was granted is told to stop, and the operation
// ends with its answer, or after the patience of any cancel. From the block on nothing new is made or granted.

// StopWork cancels what is under way on a machine, in the caller's transaction. ended says that nothing is any more.
func (s *Store) StopWork(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, actor, why string, now time.Time,
) (ended bool, err error) {
	if m.CurrentOperationID == nil {
		return true, nil
	}
	a, err := s.DecideIn(ctx, q, *m.CurrentOperationID, operation.CancelAsked{Actor: actor, Why: why}, now)
	if err != nil {
		return false, fmt.Errorf("cancel operation %s: %w", *m.CurrentOperationID, err)
	}
	pgtx.NotesOf(q).Note(a)
	return operation.IsTerminal(a.Phase), nil
}
