// Package credential stores what opens doors elsewhere: API tokens, BMC and SSH credentials, certificates of BMCs,
// clusters and MAAS regions.
package credential

import (
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds credentials. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store {
	return &Store{db: db}
}
