// Package machine serves MachineService: the inventory, starts of operations, explanations and histories.
package machine

import (
	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	explainstore "github.com/ingot-metal/ingot/controller/store/explain"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/machinemap"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	paststore "github.com/ingot-metal/ingot/controller/store/past"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	timelinestore "github.com/ingot-metal/ingot/controller/store/timeline"
)

// Server implements the services of this package. The embedded interfaces make a method that is missing a compile
// error.
type Server struct {
	baremetalv1.UnsafeMachineServiceServer

	*service.Base

	stores Stores

	normals normals
	feed    *feed
	summary *summary
	// explained are the explanations that may be given again.
	explained explanations
}

// Stores are what the services of this package read and write.
type Stores struct {
	Explain          *explainstore.Store
	MachineFeed      *machinestore.Feed
	Machines         *machinestore.Store
	Maps             *machinemap.Store
	Nodes            *nodestore.Store
	OperationQueries *operationquery.Store
	Past             *paststore.Store
	Sites            *sitestore.Store
	Timelines        *timelinestore.Store
}

// Register adds the services of this package to a server.
func Register(r grpc.ServiceRegistrar, b *service.Base, stores Stores) {
	s := &Server{Base: b, stores: stores, feed: &feed{read: stores.MachineFeed.Follow, clock: b.Clock}}
	s.summary = newSummary(s.readSummary, b.Clock)
	baremetalv1.RegisterMachineServiceServer(r, s)
}
