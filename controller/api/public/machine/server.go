// Package machine serves MachineService: the inventory, starts of operations, explanations and histories.
package machine

import (
	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
)

// Server implements the services of this package. The embedded interfaces make a method that is missing a compile
// error.
type Server struct {
	baremetalv1.UnsafeMachineServiceServer

	*service.Base

	normals normals
	feed    *feed
	summary *summary
	// explained are the explanations that may be given again.
	explained explanations
}

// Register adds the services of this package to a server.
func Register(r grpc.ServiceRegistrar, b *service.Base) {
	s := &Server{Base: b, feed: &feed{read: b.Store.Follow, clock: b.Clock}}
	s.summary = newSummary(s.readSummary, b.Clock)
	baremetalv1.RegisterMachineServiceServer(r, s)
}
