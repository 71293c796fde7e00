// Package machine stores machines: their records, conditions and interventions, and the cursor by which clients
// follow them.
package machine

import (
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds machines. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store {
	return &Store{db: db}
}
