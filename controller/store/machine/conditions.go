package machine

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// SetCondition writes a condition. One that was never true is not written as false: its absence means the same.
func SetCondition(
	ctx context.Context, q *dbsqlc.Queries, machineID string, c operation.ConditionChange, now time.Time,
) error {
	return q.Send(ctx, dbsqlc.Writes{Conditions: []dbsqlc.SetConditionParams{ConditionRow(machineID, c, now)}})
}

// ConditionRow returns the row that SetCondition writes.
func ConditionRow(machineID string, c operation.ConditionChange, now time.Time) dbsqlc.SetConditionParams {
	return dbsqlc.SetConditionParams{MachineID: machineID, Type: string(c.Type), Status: c.Status, Reason: c.Reason,
		Message: c.Message, Now: now}
}
