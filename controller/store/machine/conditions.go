package machine

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// SetCondition writes a condition. One that was never true is not written as false: absence means the same.
func SetCondition(
	ctx context.Context, q *dbsqlc.Queries, machineID string, c operation.ConditionChange, now time.Time,
) error {
	var err error
	if c.Status {
		err = q.SetCondition(ctx, dbsqlc.SetConditionParams{
			MachineID: machineID, Type: string(c.Type), Status: true, Reason: c.Reason, Message: c.Message, Now: now,
		})
	} else {
		err = q.ClearConditionIfSet(ctx, dbsqlc.ClearConditionIfSetParams{
			MachineID: machineID, Type: string(c.Type), Reason: c.Reason, Now: now,
		})
	}
	if err != nil {
		return fmt.Errorf("set condition %s: %w", c.Type, err)
	}
	return nil
}
