// Package session stores the sessions of agents, the events that come in them, and the controllers that hold them.
package session

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds sessions and controllers. It is safe for concurrent use.
type Store struct {
	db      *pgtx.DB
	batches *sessionBatches
	decide  func(ctx context.Context, q *dbsqlc.Queries, operationID string, e operation.Event, now time.Time) error
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store {
	s := &Store{db: db}
	s.batches = newSessionBatches(s)
	return s
}

// DecideOpened sets the function that brings a new session to its machine's current operation, in the session's own
// transaction. Without it that operation is among Opened.Operations.
func (s *Store) DecideOpened(
	decide func(ctx context.Context, q *dbsqlc.Queries, operationID string, e operation.Event, now time.Time) error,
) {
	s.decide = decide
}
