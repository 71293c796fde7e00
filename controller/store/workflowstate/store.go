// Package workflowstate stores the state of workflows, and what follows from it for nodes, below operations.
package workflowstate

import (
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds the states of workflows. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store {
	return &Store{db: db}
}
