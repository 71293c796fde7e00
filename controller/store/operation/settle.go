package operation

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// SettleCommand moves an unknown command to done and lifts its fence.
func SettleCommand(
	ctx context.Context, q *dbsqlc.Queries, machineID string, c *operation.Command, by string, now time.Time,
) error {
	l := &OperationContext{Snap: operation.Snapshot{Command: c}}
	settled := operation.Settle(c, by)
	w := &writes{}
	if _, err := w.command(ctx, q, l, operation.Decision{}, settled, now); err != nil {
		return err
	}
	if err := w.flush(ctx, q); err != nil {
		return err
	}
	if err := q.ClearFence(ctx, dbsqlc.ClearFenceParams{MachineID: machineID, CommandID: &c.ID}); err != nil {
		return fmt.Errorf("lift fence: %w", err)
	}
	cured := fleet.Happened{Cures: []fleet.Cure{fleet.CuredBySettlement}, Subject: c.ID}
	return machinestore.CureCauses(ctx, q, machineID, cured, "Settled", now)
}

// Quarantine takes a machine out of all work and says why.
func Quarantine(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, reason, message string, now time.Time) error {
	if _, ok := node.Find(node.Parse(m.NodeState), node.Quarantined, node.System); ok {
		err := nodestate.MoveNode(ctx, q, m.MachineID, node.Quarantined, node.System, "", "",
			map[string]string{"reason": reason}, now)
		if err != nil {
			return err
		}
	}
	if err := q.SetQuarantineReason(ctx, dbsqlc.SetQuarantineReasonParams{MachineID: m.MachineID,
		Reason: reason}); err != nil {
		return fmt.Errorf("record the reason of the quarantine: %w", err)
	}
	return machinestore.RaiseCause(ctx, q, m.MachineID, "", machinestore.QuarantineCause(reason, message), now)
}

// Quarantine takes a machine out of all work, and returns its active operation, if any, to be ended.
func (s *Store) Quarantine(
	ctx context.Context, machineID, reason, message string, now time.Time,
) (operationID string, err error) {
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := q.LockMachine(ctx, machineID)
		if err != nil {
			return fmt.Errorf("lock machine: %w", err)
		}
		operationID = pgtx.StrVal(m.CurrentOperationID)
		if err := Quarantine(ctx, q, m, reason, message, now); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: "system", Verb: "QUARANTINE", Target: machineID,
			Data: map[string]string{"reason": reason}}, now)
	})
	if err != nil {
		return "", fmt.Errorf("quarantine machine: %w", err)
	}
	return operationID, nil
}

// RecordProgress stores how far a granted command has got. Others are ignored.
func (s *Store) RecordProgress(
	ctx context.Context, agentID, commandID string, percent int32, message string, now time.Time,
) error {
	err := s.db.Q.RecordProgress(ctx, dbsqlc.RecordProgressParams{
		CommandID: commandID, ExecutorID: agentID, Percent: percent, Message: message, Now: now,
	})
	if err != nil {
		return fmt.Errorf("record progress: %w", err)
	}
	return nil
}
