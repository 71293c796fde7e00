// Package incarnation stores what the database's history is: its incarnation, the beats of controllers, and the freeze.
//
// A database that has gone back begins another incarnation, and the fleet is frozen until an admin lifts that.
package incarnation

import (
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds the incarnation and the freeze. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
	// grants looks for grants that the database lacks, many at once.
	grants pgtx.Batcher[grantSeen, bool]
	place  place
}

// New returns a store over the database, and identifies the server of each new connection.
func New(db *pgtx.DB) *Store {
	s := &Store{db: db}
	s.grants.Batch = s.lostGrants
	db.Connected = s.met
	return s
}
