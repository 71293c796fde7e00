package nodestate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// GroupOf reads the policy of a machine's group; that of an unset group is the default.
func GroupOf(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine) (dbsqlc.NodeGroup, error) {
	spec, err := convert.SpecFromJSON(m.Spec)
	if err != nil || spec.GetGroup() == "" {
		return dbsqlc.NodeGroup{HealthChecks: node.Checks()}, err
	}
	g, err := q.GetNodeGroup(ctx, spec.GetGroup())
	if errors.Is(err, pgx.ErrNoRows) {
		return dbsqlc.NodeGroup{NodeGroup: spec.GetGroup(), HealthChecks: node.Checks()}, nil
	}
	return g, pgtx.Wrap(err, "read node group")
}

// InstallFailed counts a failed attempt. After the last one the node leaves installing.
func InstallFailed(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, v Move, why, planID string, now time.Time,
) error {
	next := node.FailedAttempt(node.Install{State: node.Installing, Attempts: int(m.InstallAttempts)}, why)
	if err := SetInstall(ctx, q, m, next, planID); err != nil || next.State == node.Installing {
		return err
	}
	v.To = next.State
	if v.Metadata == nil {
		v.Metadata = map[string]string{}
	}
	v.Metadata["error"], v.Metadata["attempt"] = why, fmt.Sprint(next.Attempts)
	return MoveTo(ctx, q, m.MachineID, v, now)
}

// SetInstall stores how an installation stands, besides the state.
func SetInstall(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, i node.Install, planID string) error {
	err := q.SetInstall(ctx, dbsqlc.SetInstallParams{
		MachineID: m.MachineID, InstallAttempts: int32(i.Attempts), LastInstallError: i.LastError, FailedPlanID: planID,
		NodePlan: InstallPlan(m),
	})
	if err != nil {
		return fmt.Errorf("record installation: %w", err)
	}
	return nil
}
