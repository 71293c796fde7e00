package session

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// installerSeen records the boot of a RAM system. It ends no assignment: where nothing but its place on the network
// proves it, the machine itself may still come and contest it.
func installerSeen(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, h Hello, out *Opened, now time.Time,
) error {
	if err := q.SetMachineBoot(ctx, dbsqlc.SetMachineBootParams{MachineID: m.MachineID, BootID: h.BootID}); err != nil {
		return fmt.Errorf("record the machine's boot: %w", err)
	}
	return settleByProof(ctx, q, m, h, out, now)
}
