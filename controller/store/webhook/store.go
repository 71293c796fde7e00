// Package webhook stores webhooks and the deliveries of events to them.
package webhook

import (
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds webhooks and deliveries. It is safe for concurrent use.
type Store struct {
	db       *pgtx.DB
	machines *machinestore.Store
	// deliver schedules new deliveries in their transaction; nil where the sweep finds them.
	deliver EnqueueDeliveries
}

// New returns a store over the database and the machines.
func New(db *pgtx.DB, machines *machinestore.Store) *Store {
	return &Store{db: db, machines: machines}
}
