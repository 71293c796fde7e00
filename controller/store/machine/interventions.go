package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// RaiseCause adds a cause of NeedsIntervention to a machine and shows the gravest one in the condition.
func RaiseCause(
	ctx context.Context, q *dbsqlc.Queries, machineID, operationID string, r operation.RaisedCause, now time.Time,
) error {
	if err := q.RaiseCause(ctx, raiseParams(machineID, operationID, r, now)); err != nil {
		return fmt.Errorf("raise cause %s: %w", r.Cause, err)
	}
	causes, err := q.CausesOf(ctx, machineID)
	if err != nil {
		return fmt.Errorf("read causes: %w", err)
	}
	return SetCondition(ctx, q, machineID, intervention(causes, ""), now)
}

func raiseParams(machineID, operationID string, r operation.RaisedCause, now time.Time) dbsqlc.RaiseCauseParams {
	return dbsqlc.RaiseCauseParams{
		MachineID: machineID, Cause: string(r.Cause), Subject: r.Subject, Reason: r.Reason, Message: r.Message,
		OperationID: operationID, Now: now,
	}
}

// CureCauses takes the causes away that what happened cures. by is the condition's reason once none is left.
func CureCauses(
	ctx context.Context, q *dbsqlc.Queries, machineID string, h fleet.Happened, by string, now time.Time,
) error {
	causes, err := q.CausesOf(ctx, machineID)
	if err != nil {
		return fmt.Errorf("read causes: %w", err)
	}
	var left []dbsqlc.MachineCause
	for _, c := range causes {
		if !fleet.Cured(fleet.Cause(c.Cause), c.Subject, h) {
			left = append(left, c)
			continue
		}
		err := q.CureCause(ctx, dbsqlc.CureCauseParams{MachineID: machineID, Cause: c.Cause, Subject: c.Subject})
		if err != nil {
			return fmt.Errorf("cure cause %s: %w", c.Cause, err)
		}
	}
	if len(causes) > 0 && len(left) == len(causes) {
		return nil
	}
	return SetCondition(ctx, q, machineID, intervention(left, by), now)
}

// intervention returns the condition NeedsIntervention for the causes that a machine has: its reason is that of the
// gravest.
func intervention(causes []dbsqlc.MachineCause, curedBy string) operation.ConditionChange {
	if len(causes) == 0 {
		return operation.ConditionChange{Type: fleet.NeedsIntervention, Reason: curedBy}
	}
	c := slices.MinFunc(causes, func(a, b dbsqlc.MachineCause) int {
		if by := fleet.Graver(fleet.Cause(a.Cause), fleet.Cause(b.Cause)); by != 0 {
			return by
		}
		return b.Since.Compare(a.Since) // of two alike, the newer one
	})
	return operation.ConditionChange{Type: fleet.NeedsIntervention, Status: true, Reason: c.Reason, Message: c.Message}
}

// QuarantineCause is what a quarantine leaves for a person.
func QuarantineCause(reason, message string) operation.RaisedCause {
	return operation.RaisedCause{Cause: fleet.CauseQuarantine, Reason: reason, Message: message}
}

// MemoryCause is what an agent leaves that came back with an older copy of its memory.
func MemoryCause(message string) operation.RaisedCause {
	return operation.RaisedCause{Cause: fleet.CauseMemory, Reason: "AGENT_STATE_ROLLED_BACK", Message: message}
}
