// Package budget stores the budgets of destructive work and the slots that operations hold.
package budget

import (
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds budgets and slots. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
	// room is called when a slot may be free, or when one is asked for.
	room func()
	// Counts caches the number of machines in each budget domain.
	Counts MachineCounts
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store { return &Store{db: db} }
