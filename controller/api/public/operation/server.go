// Package operation serves OperationService and RunService: the work as it is and was, its events and its logs.
package operation

import (
	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
)

// Server implements the services of this package. The embedded interfaces make a method that is missing a compile
// error.
type Server struct {
	baremetalv1.UnsafeOperationServiceServer
	baremetalv1.UnsafeRunServiceServer

	*service.Base
}

// Register adds the services of this package to a server.
func Register(r grpc.ServiceRegistrar, b *service.Base) {
	s := &Server{Base: b}
	baremetalv1.RegisterOperationServiceServer(r, s)
	baremetalv1.RegisterRunServiceServer(r, s)
}
