// Package site stores sites, what their agents report, and the documents that they serve.
package site

import (
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds sites. It is safe for concurrent use.
type Store struct {
	db      *pgtx.DB
	catalog *catalogstore.Store
}

// New returns a store over the stores that it needs.
func New(db *pgtx.DB, catalog *catalogstore.Store) *Store {
	return &Store{db: db, catalog: catalog}
}
