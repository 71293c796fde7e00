package incarnation

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// ExtendListening records that a controller listens to agents now, by the database's clock, and returns since when this
// fleet's controllers have listened. A gap without any of them over maxGap begins it anew. Then agents have
// reconnectTime to come back before the silence of any of them counts.
func (s *Store) ExtendListening(
	ctx context.Context, controllerID string, maxGap, reconnectTime time.Duration,
) (since time.Time, err error) {
	since, err = s.db.Q.ExtendListening(ctx, dbsqlc.ExtendListeningParams{ControllerID: controllerID,
		MaxGap: interval(maxGap), ReconnectTime: interval(reconnectTime)})
	if err != nil {
		return time.Time{}, fmt.Errorf("record that the controller listens: %w", err)
	}
	return since, nil
}

// Listening returns the last time in which no controller listened.
func (s *Store) Listening(ctx context.Context) (fleet.Listening, error) {
	return ListeningOf(ctx, s.db.Q)
}

// ListeningOf is Listening within a transaction.
func ListeningOf(ctx context.Context, q *dbsqlc.Queries) (fleet.Listening, error) {
	r, err := q.Listening(ctx)
	if err != nil {
		return fleet.Listening{}, fmt.Errorf("read when controllers listened: %w", err)
	}
	return fleet.Listening{AwaySince: notEpoch(r.AwaySince), CaughtUpAt: notEpoch(r.CaughtUpAt)}, nil
}

// AgentsAwaited returns how many agents were heard within a time before the last gap began, and not since it ended.
func (s *Store) AgentsAwaited(ctx context.Context, within time.Duration) (int32, error) {
	n, err := s.db.Q.AgentsAwaited(ctx, interval(within))
	if err != nil {
		return 0, fmt.Errorf("count agents that have not come back: %w", err)
	}
	return int32(n), nil
}

func interval(d time.Duration) pgtype.Interval {
	return pgtype.Interval{Microseconds: d.Microseconds(), Valid: true}
}

func notEpoch(t time.Time) time.Time {
	if t.Unix() == 0 {
		return time.Time{}
	}
	return t
}
