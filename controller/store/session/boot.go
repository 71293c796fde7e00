package session

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/internal/ids"
)

// installerSeen records the boot of a RAM system. One that was only to be booted once has been.
func installerSeen(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, h Hello, now time.Time) error {
	if err := q.SetMachineBoot(ctx, dbsqlc.SetMachineBootParams{MachineID: m.MachineID, BootID: h.BootID}); err != nil {
		return fmt.Errorf("record the machine's boot: %w", err)
	}
	if err := settleByProof(ctx, q, m, h, "installer", now); err != nil {
		return err
	}
	if m.BootMode != operation.BootRescue {
		return nil
	}
	return operationstore.Assign(ctx, q, m, operation.Assignment{Mode: operation.BootDisk,
		Token: ids.Secret(operationstore.BootTokenBytes)}, now)
}
