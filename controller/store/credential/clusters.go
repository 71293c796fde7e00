package credential

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/credential"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// SealedCluster is a cluster as it is stored: the credentials can be opened with the key.
type SealedCluster struct {
	Ref, Server string
	CAPEM       []byte
	Sealed      []byte
	Version     int64
	UpdatedAt   time.Time
}

func sealedCluster(r dbsqlc.Cluster) SealedCluster {
	return SealedCluster{Ref: r.ClusterRef, Server: r.Server, CAPEM: r.CaPem, Sealed: r.Sealed, Version: r.Version,
		UpdatedAt: r.UpdatedAt}
}

// SetCluster stores a cluster under a new version.
func (s *Store) SetCluster(
	ctx context.Context, c SealedCluster, actor string, now time.Time, opts ...pgtx.WriteOption,
) (SealedCluster, error) {
	var row dbsqlc.Cluster
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		row, err = q.PutCluster(ctx, dbsqlc.PutClusterParams{ClusterRef: c.Ref, Server: c.Server, CaPem: c.CAPEM,
			Sealed: c.Sealed, Now: now})
		if err != nil {
			return fmt.Errorf("store cluster: %w", err)
		}
		if err := pgtx.ConditionsOf(opts).Replacing("cluster "+c.Ref, row.Version); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{
			Actor: actor, Verb: "SET_CLUSTER", Target: c.Ref,
			Data: map[string]string{"version": fmt.Sprint(row.Version), "server": row.Server},
		}, now)
	})
	if err != nil {
		return SealedCluster{}, fmt.Errorf("set cluster: %w", err)
	}
	return sealedCluster(row), nil
}

// GetCluster reads a cluster.
func (s *Store) GetCluster(ctx context.Context, ref string) (SealedCluster, error) {
	row, err := s.db.Q.GetCluster(ctx, ref)
	if errors.Is(err, pgx.ErrNoRows) {
		return SealedCluster{}, credential.Cluster.NotFound(ref)
	}
	if err != nil {
		return SealedCluster{}, fmt.Errorf("read cluster: %w", err)
	}
	return sealedCluster(row), nil
}

// ListClusters reads clusters by name.
func (s *Store) ListClusters(ctx context.Context, afterRef string, limit int32) ([]SealedCluster, error) {
	rows, err := s.db.Lists(ctx).ListClusters(ctx, dbsqlc.ListClustersParams{AfterRef: afterRef, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list clusters: %w", err)
	}
	out := make([]SealedCluster, 0, len(rows))
	for _, r := range rows {
		out = append(out, sealedCluster(r))
	}
	return out, nil
}

// DeleteCluster forgets a cluster that neither a machine nor work under way names.
func (s *Store) DeleteCluster(
	ctx context.Context, ref, actor string, now time.Time, opts ...pgtx.WriteOption,
) (SealedCluster, error) {
	var row dbsqlc.Cluster
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if row, err = q.LockCluster(ctx, ref); errors.Is(err, pgx.ErrNoRows) {
			return credential.Cluster.NotFound(ref)
		}
		if err != nil {
			return fmt.Errorf("lock cluster: %w", err)
		}
		if err := pgtx.ConditionsOf(opts).Check("cluster "+ref, pgtx.ResourceExists,
			pgtx.Stored{Exists: true, Version: row.Version}); err != nil {
			return err
		}
		use, err := useOfCluster(ctx, q, ref)
		if err != nil {
			return err
		}
		if err := credential.Cluster.MayRemove(ref, use); err != nil {
			return err
		}
		if err := q.DeleteCluster(ctx, ref); err != nil {
			return fmt.Errorf("delete cluster: %w", err)
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "DELETE_CLUSTER", Target: ref}, now)
	})
	if err != nil {
		return SealedCluster{}, fmt.Errorf("delete cluster: %w", err)
	}
	return sealedCluster(row), nil
}

// useOfCluster reads which machine and which work under way name a cluster.
func useOfCluster(ctx context.Context, q *dbsqlc.Queries, ref string) (u credential.Use, err error) {
	if u.Machine, err = q.MachineWithCluster(ctx, ref); err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return u, fmt.Errorf("look for machines of the cluster: %w", err)
	}
	steps, err := q.ClusterStepsUnderWay(ctx)
	if err != nil {
		return u, fmt.Errorf("look for operations of the cluster: %w", err)
	}
	for _, row := range steps {
		var step baremetalv1.Step
		if err := proto.Unmarshal(row.Spec, &step); err != nil {
			return u, fmt.Errorf("read step of operation %s: %w", row.OperationID, err)
		}
		if kind.ClusterOf(&step) == ref {
			u.Operation = row.OperationID
			break
		}
	}
	return u, nil
}
