package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/operation"
)

// OpenCalm opens those of the sessions that are calm, as a crowded store does, and gives nil for the others.
func (s *Store) OpenCalm(ctx context.Context, now time.Time, lot ...Hello) ([]*Opened, error) {
	var at []helloAt
	for _, h := range lot {
		at = append(at, helloAt{h, now})
	}
	return s.openCalm(ctx, at)
}

// EndTogether ends sessions in one statement, as a crowded store does.
func (s *Store) EndTogether(ctx context.Context, now time.Time, lot ...Hello) error {
	var over []ending
	for _, h := range lot {
		over = append(over, ending{h.AgentID, h.SessionID, now})
	}
	_, err := s.endSessions(ctx, over)
	return err
}

// DecideIn decides in a transaction that has begun.
func (s *Store) DecideIn(ctx context.Context, tx pgx.Tx, operationID string, e operation.Event, now time.Time) (*Applied, error) {
	return s.decideIn(ctx, s.q.WithTx(&after{Tx: tx}), operationID, 0, e, now)
}
