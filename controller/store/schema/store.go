// Package schema migrates the schema of the database, and reads its version.
package schema

import (
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store migrates the schema of the database. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store {
	return &Store{db: db}
}
