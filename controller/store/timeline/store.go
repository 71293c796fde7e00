// Package timeline reads the history of a machine out of the logs, and verifies it.
package timeline

import (
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store reads the history of machines. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store {
	return &Store{db: db}
}
