// Package rollout serves RolloutService and BudgetService: work on many machines, and how many at a time.
package rollout

import (
	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	approvalstore "github.com/ingot-metal/ingot/controller/store/approval"
	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	"github.com/ingot-metal/ingot/controller/store/incarnation"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
)

// Server implements the services of this package. The embedded interfaces make a method that is missing a compile
// error.
type Server struct {
	baremetalv1.UnsafeRolloutServiceServer
	baremetalv1.UnsafeBudgetServiceServer

	*service.Base

	stores Stores
}

// Stores are what the services of this package read and write.
type Stores struct {
	Approvals    *approvalstore.Store
	Budgets      *budgetstore.Store
	Incarnations *incarnation.Store
	Rollouts     *rolloutstore.Store
}

// Register adds the services of this package to a server.
func Register(r grpc.ServiceRegistrar, b *service.Base, stores Stores) {
	s := &Server{Base: b, stores: stores}
	baremetalv1.RegisterRolloutServiceServer(r, s)
	baremetalv1.RegisterBudgetServiceServer(r, s)
}
