// Package workflow starts workflows and acts on them: each attempt is an operation.
package workflow

import (
	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store starts workflows and acts on them. It is safe for concurrent use.
type Store struct {
	db         *pgtx.DB
	operations *operationstore.Store
	budgets    *budgetstore.Store
}

// New returns a store over the stores that it needs.
func New(db *pgtx.DB, operations *operationstore.Store, budgets *budgetstore.Store) *Store {
	return &Store{db: db, operations: operations, budgets: budgets}
}
