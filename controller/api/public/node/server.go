// Package node serves NodeService and WorkflowService: the states of nodes, and the work that moves them.
package node

import (
	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
)

// Server implements the services of this package. The embedded interfaces make a method that is missing a compile
// error.
type Server struct {
	baremetalv1.UnsafeNodeServiceServer
	baremetalv1.UnsafeWorkflowServiceServer

	*service.Base

	stores Stores
}

// Stores are what the services of this package read and write.
type Stores struct {
	Machines         *machinestore.Store
	Nodes            *nodestore.Store
	OperationQueries *operationquery.Store
	Workflows        *workflowstore.Store
}

// Register adds the services of this package to a server.
func Register(r grpc.ServiceRegistrar, b *service.Base, stores Stores) {
	s := &Server{Base: b, stores: stores}
	baremetalv1.RegisterNodeServiceServer(r, s)
	baremetalv1.RegisterWorkflowServiceServer(r, s)
}
