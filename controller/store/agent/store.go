// Package agent stores agents, their bootstrap tokens and their certificates.
package agent

import (
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds agents, bootstrap tokens and certificates. It is safe for concurrent use.
type Store struct {
	db *pgtx.DB
	// certs reads certificates, many at once.
	certs pgtx.Batcher[string, *Cert]
}

// New returns a store over the database.
func New(db *pgtx.DB) *Store {
	s := &Store{db: db}
	s.certs.Batch = s.knownCerts
	return s
}
