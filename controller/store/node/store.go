// Package node stores requests on nodes: moves that start work, approvals, reports of installers, retirements.
package node

import (
	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
)

// Store carries out requests on nodes. It is safe for concurrent use.
type Store struct {
	db         *pgtx.DB
	machines   *machinestore.Store
	catalog    *catalogstore.Store
	operations *operationstore.Store
	workflows  *workflowstore.Store
	budgets    *budgetstore.Store
}

// New returns a store over others. It carries out the retirements that have waited for the end of an operation.
func New(db *pgtx.DB, machines *machinestore.Store, catalog *catalogstore.Store, operations *operationstore.Store,
	workflows *workflowstore.Store, budgets *budgetstore.Store,
) *Store {
	s := &Store{db: db, machines: machines, catalog: catalog, operations: operations, workflows: workflows,
		budgets: budgets}
	operations.Retire = s.retireNow
	return s
}
