// Package access stores who may do what among the people who sign on: their roles, their sessions, and what the
// provider said of itself.
package access

import "github.com/ingot-metal/ingot/controller/store/pgtx"

// Store holds roles and sessions. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store { return &Store{db: db} }
