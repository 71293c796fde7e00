// Package session stores the sessions of agents, the events that come in them, and the controllers that hold them.
package session

import (
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds sessions and controllers. It is safe for concurrent use.
type Store struct {
	db      *pgtx.DB
	batches *sessionBatches
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store {
	s := &Store{db: db}
	s.batches = newSessionBatches(s)
	return s
}
