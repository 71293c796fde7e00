// Package operationlog stores what operations tell while they run: their events and their logs.
package operationlog

import (
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds logs and events. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store {
	return &Store{db: db}
}
