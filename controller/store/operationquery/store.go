// Package operationquery reads operations, their runs and their commands, for those who show them.
package operationquery

import "github.com/ingot-metal/ingot/controller/store/pgtx"

// Store reads operations. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store { return &Store{db: db} }
