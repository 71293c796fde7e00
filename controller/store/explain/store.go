// Package explain reads what the explanation of a machine's or an operation's state is made of.
package explain

import (
	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
)

// Store reads what explanations are made of. It is safe for concurrent use.
type Store struct {
	db         *pgtx.DB
	budgets    *budgetstore.Store
	operations *operationstore.Store
	workflows  *workflowstore.Store
	nodes      *nodestore.Store
}

// New returns a store over the stores that it needs.
func New(db *pgtx.DB, budgets *budgetstore.Store, operations *operationstore.Store,
	workflows *workflowstore.Store, nodes *nodestore.Store,
) *Store {
	return &Store{db: db, budgets: budgets, operations: operations, workflows: workflows, nodes: nodes}
}
