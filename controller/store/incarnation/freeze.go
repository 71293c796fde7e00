package incarnation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Freeze stops all that touches machines until Thaw. A fleet that is frozen stays frozen since then.
func (s *Store) Freeze(ctx context.Context, actor, comment string, now time.Time) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.Freeze(ctx, &now); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "FREEZE_FLEET", Comment: comment}, now)
	})
	if err != nil {
		return fmt.Errorf("freeze the fleet: %w", err)
	}
	return nil
}

// FreezeSince reads since when the fleet is frozen, without the cause.
func FreezeSince(ctx context.Context, q *dbsqlc.Queries) (fleet.Freeze, error) {
	since, err := q.FrozenSince(ctx)
	return fleet.Freeze{Since: pgtx.TimeVal(since)}, pgtx.Wrap(err, "read freeze")
}

// WithCause adds who froze the fleet, and why, out of the audit log. A fleet that is not frozen needs no query.
func WithCause(ctx context.Context, q *dbsqlc.Queries, f fleet.Freeze) (fleet.Freeze, error) {
	if !f.Active() {
		return f, nil
	}
	row, err := q.WhoFroze(ctx, f.Since)
	switch {
	case errors.Is(err, pgx.ErrNoRows): // Of before the restore was written to the audit log.
		f.Restored = true
		return f, nil
	case err != nil:
		return f, fmt.Errorf("read who froze the fleet: %w", err)
	}
	f.Restored, f.WentBack, f.Actor, f.Comment = row.Verb == verbRestored, row.Verb == verbWentBack, row.Actor, row.Comment
	return f, nil
}

// FreezeOf reads the freeze with its cause.
func FreezeOf(ctx context.Context, q *dbsqlc.Queries) (fleet.Freeze, error) {
	f, err := FreezeSince(ctx, q)
	if err != nil {
		return f, err
	}
	return WithCause(ctx, q, f)
}

// verbRestored marks in the audit log that the database was restored.
const verbRestored = "DATABASE_RESTORED"

// Restored begins a new incarnation of the database after a restore or a failover: cursors of before are refused,
// change ids are made anew, and the fleet is frozen until an admin lifts it.
func (s *Store) Restored(ctx context.Context, now time.Time) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		state, err := q.LockClusterState(ctx)
		if err != nil {
			return fmt.Errorf("lock the cluster's state: %w", err)
		}
		return newIncarnation(ctx, q, state, history.AuditEntry{Actor: "system", Verb: verbRestored}, now)
	})
	if err != nil {
		return fmt.Errorf("start a new incarnation: %w", err)
	}
	return nil
}

// Frozen returns since when the fleet is frozen (zero: it is not), and how many agents were not heard since. An agent
// whose session is open counts as heard, unless the database was restored after the session began.
func (s *Store) Frozen(ctx context.Context) (since time.Time, notSeen int32, err error) {
	at, err := s.db.Q.FrozenSince(ctx)
	if err != nil || at == nil {
		return time.Time{}, 0, err
	}
	n, err := s.db.Q.AgentsNotSeenSince(ctx, *at)
	return *at, int32(n), err
}

// WhyFrozen reads the freeze with its cause.
func (s *Store) WhyFrozen(ctx context.Context) (fleet.Freeze, error) { return FreezeOf(ctx, s.db.Q) }

// Thaw lifts the freeze.
func (s *Store) Thaw(ctx context.Context, actor, comment string, now time.Time) error {
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.Thaw(ctx); err != nil {
			return err
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "THAW_FLEET", Comment: comment}, now)
	})
	if err != nil {
		return fmt.Errorf("thaw the fleet: %w", err)
	}
	return nil
}

// Incarnation names this history of this cluster; it changes with a restore or a failover.
func (s *Store) Incarnation(ctx context.Context) (string, error) {
	id, err := s.db.Q.ClusterIdentity(ctx)
	if err != nil {
		return "", fmt.Errorf("read cluster identity: %w", err)
	}
	return id.SystemID + "/" + id.Timeline + "/" + id.Incarnation, nil
}
