// Package machine stores machines: their records, conditions and interventions, and the cursor by which clients
// follow them.
package machine

import (
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store holds machines. It is safe for concurrent use.
type Store struct {
	db         *pgtx.DB
	fileTokens func() []access.FileToken
}

// New returns a store over the database. fileTokens returns the tokens of the controller's token file, whose selections
// depend on fields of machines; nil for none.
func New(db *pgtx.DB, fileTokens func() []access.FileToken) *Store {
	return &Store{db: db, fileTokens: fileTokens}
}

// FileTokens returns the tokens of the controller's token file, and reports whether there is such a file.
func (s *Store) FileTokens() ([]access.FileToken, bool) {
	if s.fileTokens == nil {
		return nil, false
	}
	return s.fileTokens(), true
}
