// Package rollout stores rollouts, and moves them wave by wave.
package rollout

import (
	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
)

// Store holds rollouts. It is safe for concurrent use.
type Store struct {
	db         *pgtx.DB
	machines   *machinestore.Store
	budgets    *budgetstore.Store
	operations *operationstore.Store
	workflows  *workflowstore.Store
}

// New returns a store over the stores that it needs.
func New(db *pgtx.DB, machines *machinestore.Store, budgets *budgetstore.Store,
	operations *operationstore.Store, workflows *workflowstore.Store,
) *Store {
	return &Store{db: db, machines: machines, budgets: budgets, operations: operations, workflows: workflows}
}
