package session

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/internal/failure"
)

// roleInstaller is the role of agents that were certified for one operation.
const roleInstaller = "installer"

// checkInstaller refuses an installer that has no longer what it was certified for. The machine is locked, so that its
// operation cannot end meanwhile.
func checkInstaller(ctx context.Context, q *dbsqlc.Queries, agentID string) error {
	stands, err := q.InstallerStands(ctx, agentID)
	if err != nil {
		return fmt.Errorf("read the installer's operation: %w", err)
	}
	if !stands {
		return failure.Unauthenticated("CERTIFICATE_REVOKED", "the operation that this installer was certified for has ended")
	}
	return nil
}

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
