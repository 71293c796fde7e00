// Package nodestate stores the state of nodes: their moves, health, drift from their providers, and liveness.
//
// It knows nothing of operations and workflows. What starts work on a node is in package node, above them.
package nodestate

import (
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds the states of nodes. It is safe for concurrent use.
type Store struct {
	db       *pgtx.DB
	machines *machinestore.Store
	// reach is the part of the fleet whose reachability is evaluated next.
	reach fleetSlices
}

// New returns a store over the database and the machines.
func New(db *pgtx.DB, machines *machinestore.Store) *Store {
	return &Store{db: db, machines: machines}
}
