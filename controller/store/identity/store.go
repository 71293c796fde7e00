// Package identity stores which machine an installer may speak for, and the proofs of that.
package identity

import (
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds the identities of machines. It is safe for concurrent use.
type Store struct {
	db       *pgtx.DB
	machines *machinestore.Store
}

// New returns a store over the stores that it needs.
func New(db *pgtx.DB, machines *machinestore.Store) *Store {
	return &Store{db: db, machines: machines}
}
