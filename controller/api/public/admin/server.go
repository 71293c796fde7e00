// Package admin serves AdminService: agents, tokens, credentials, sites, images, webhooks and the audit log.
package admin

import (
	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
)

// Server implements the services of this package. The embedded interfaces make a method that is missing a compile
// error.
type Server struct {
	baremetalv1.UnsafeAdminServiceServer

	*service.Base
}

// Register adds the services of this package to a server.
func Register(r grpc.ServiceRegistrar, b *service.Base) {
	s := &Server{Base: b}
	baremetalv1.RegisterAdminServiceServer(r, s)
}
