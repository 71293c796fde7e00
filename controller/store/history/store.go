// Package history stores the audit log.
package history

import (
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds the audit log. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store {
	return &Store{db: db}
}
