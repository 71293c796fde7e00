package credential

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/credential"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
)

// ClusterKnown reports whether the cluster which a machine names is stored.
func ClusterKnown(ctx context.Context, q *dbsqlc.Queries, ref string) (bool, error) {
	if ref == "" {
		return false, nil
	}
	_, err := q.GetCluster(ctx, ref)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read cluster: %w", err)
	}
	return true, nil
}

// ClusterAccess is a cluster for one command, and what names the token of its join.
type ClusterAccess struct {
	SealedCluster
	// Join is what the token of a join is named by: the command that makes it. Empty where the command is part of none.
	Join string
}

// ClusterFor reads what an agent needs for a command of its own that is under way: a site agent to speak to the
// cluster, a host agent to join it once that was granted. The audit log has who got what.
func (s *Store) ClusterFor(ctx context.Context, agentID, commandID string, now time.Time) (ClusterAccess, error) {
	var out ClusterAccess
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		c, err := q.GetCommand(ctx, commandID)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("read command: %w", err)
		}
		command := credential.Command{ID: commandID, ExecutorID: c.ExecutorID, State: operation.CommandState(c.State)}
		if err := command.OpensCluster(agentID); err != nil {
			return err
		}
		var spec fleetv1.CommandSpec
		if err := proto.Unmarshal(c.Spec, &spec); err != nil {
			return fmt.Errorf("parse stored command: %w", err)
		}
		ref, join := clusterOfCommand(&spec)
		row, err := q.GetCluster(ctx, ref)
		if errors.Is(err, pgx.ErrNoRows) {
			return credential.Cluster.NotFound(ref)
		}
		if err != nil {
			return fmt.Errorf("read cluster: %w", err)
		}
		out.SealedCluster = sealedCluster(row)
		out.Join = join
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: agentID, Verb: "GET_CLUSTER_ACCESS", Target: c.TargetID, Operation: c.OperationID,
			Data: map[string]string{"cluster_ref": ref, "version": fmt.Sprint(row.Version), "command_id": commandID},
		}, now)
	})
	if err != nil {
		return out, fmt.Errorf("give out a cluster: %w", err)
	}
	return out, nil
}

// clusterOfCommand names the cluster of a command, and what its token is made of where it is part of a join.
func clusterOfCommand(spec *fleetv1.CommandSpec) (ref, join string) {
	if j := spec.GetJoin(); j != nil {
		return j.GetClusterRef(), j.GetTokenCommandId()
	}
	if spec.GetCluster().GetAct() == kind.Of(kind.JoinToken).ClusterAct {
		join = spec.GetCommandId()
	}
	return spec.GetCluster().GetClusterRef(), join
}
