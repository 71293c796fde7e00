// Package job keeps the engine's jobs moving where no living controller works on them, and removes those that are done.
// The table of jobs is River's (github.com/riverqueue/river); River's client inserts and works them.
package job

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store is the part of the database that holds jobs.
type Store struct{ db *pgtx.DB }

// New returns the store of a database.
func New(db *pgtx.DB) *Store { return &Store{db} }

// RenewJobLease records that a controller works on its jobs for this long, by the database's clock.
func (s *Store) RenewJobLease(ctx context.Context, controllerID string, length time.Duration) error {
	err := s.db.Q.RenewJobLease(ctx, dbsqlc.RenewJobLeaseParams{ControllerID: controllerID,
		Length: pgtype.Interval{Microseconds: length.Microseconds(), Valid: true}})
	if err != nil {
		return fmt.Errorf("renew the lease of jobs: %w", err)
	}
	return nil
}

// RescueJobs makes jobs available again that are marked as running although no living controller works on them. It
// returns how many.
func (s *Store) RescueJobs(ctx context.Context) (int64, error) {
	tag, err := s.db.Pool().Exec(ctx, `UPDATE river_job j SET state = 'available', scheduled_at = now()
		WHERE j.state = 'running' AND NOT EXISTS (
			SELECT 1 FROM controllers k WHERE k.controller_id = j.attempted_by[array_upper(j.attempted_by, 1)]
			AND (k.jobs_until > now() OR k.jobs_until = '-infinity' AND k.lease_until > now()))`)
	if err != nil {
		return 0, fmt.Errorf("rescue jobs: %w", err)
	}
	return tag.RowsAffected(), nil
}

// ReleaseScheduledJobs makes jobs of a kind available that have been scheduled for longer than after, by the database's
// clock. It returns how many.
func (s *Store) ReleaseScheduledJobs(ctx context.Context, kind string, after time.Duration) (int64, error) {
	tag, err := s.db.Pool().Exec(ctx, `UPDATE river_job SET state = 'available', scheduled_at = now()
		WHERE state = 'scheduled' AND kind = $1 AND scheduled_at < now() - $2::interval`, kind, after)
	if err != nil {
		return 0, fmt.Errorf("release scheduled jobs: %w", err)
	}
	return tag.RowsAffected(), nil
}

// RescueHungJobs makes jobs available again that have run for longer than the time of their kind and a grace, by the
// database's clock. It returns how many. The time of kinds without one of their own is usual.
func (s *Store) RescueHungJobs(
	ctx context.Context, times map[string]time.Duration, usual, grace time.Duration,
) (int64, error) {
	kinds, limits := make([]string, 0, len(times)), make([]time.Duration, 0, len(times))
	for kind, limit := range times {
		kinds, limits = append(kinds, kind), append(limits, limit)
	}
	tag, err := s.db.Pool().Exec(ctx, `UPDATE river_job j SET state = 'available', scheduled_at = now()
		WHERE j.state = 'running' AND j.attempted_at < now() - $3::interval - coalesce(
			(SELECT k.time FROM unnest($1::text[], $2::interval[]) AS k (kind, time) WHERE k.kind = j.kind), $4::interval)`,
		kinds, limits, grace, usual)
	if err != nil {
		return 0, fmt.Errorf("rescue jobs that hang: %w", err)
	}
	return tag.RowsAffected(), nil
}

// removeAtOnce bounds the jobs that one statement removes.
const removeAtOnce = 5000

// RemoveFinishedJobs removes the jobs that finished longer ago than keep, by the database's clock. It returns how many.
func (s *Store) RemoveFinishedJobs(ctx context.Context, keep time.Duration) (removed int64, err error) {
	for {
		tag, err := s.db.Pool().Exec(ctx, `DELETE FROM river_job WHERE id IN (
			SELECT id FROM river_job WHERE state IN ('completed', 'cancelled', 'discarded')
			AND finalized_at < now() - $1::interval LIMIT $2 FOR UPDATE SKIP LOCKED)`, keep, removeAtOnce)
		if err != nil {
			return removed, fmt.Errorf("remove finished jobs: %w", err)
		}
		removed += tag.RowsAffected()
		if tag.RowsAffected() < removeAtOnce {
			return removed, nil
		}
	}
}

// HastenJobs makes jobs of these kinds available that wait for a time further away than most. It was written by a
// machine whose clock was ahead. It returns how many.
func (s *Store) HastenJobs(ctx context.Context, kinds []string, most time.Duration) (int64, error) {
	tag, err := s.db.Pool().Exec(ctx, `UPDATE river_job SET state = 'available', scheduled_at = now()
		WHERE state IN ('available', 'retryable') AND kind = ANY($1) AND scheduled_at > now() + $2::interval`, kinds, most)
	if err != nil {
		return 0, fmt.Errorf("hasten jobs: %w", err)
	}
	return tag.RowsAffected(), nil
}

// RemoveOldJobs removes the jobs of versions that kept theirs in River's default queue, unless a controller of such a
// version lives: no other controller works on them. It returns how many.
func (s *Store) RemoveOldJobs(ctx context.Context) (int64, error) {
	tag, err := s.db.Pool().Exec(ctx, `DELETE FROM river_job WHERE queue = 'default' AND NOT EXISTS (
		SELECT 1 FROM controllers WHERE jobs_until = '-infinity' AND lease_until > now())`)
	if err != nil {
		return 0, fmt.Errorf("remove jobs of older versions: %w", err)
	}
	return tag.RowsAffected(), nil
}
