// Package catalog serves PlanService, ScriptService, ClusterService and MAASService: what operations refer to by name.
package catalog

import (
	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
)

// Server implements the services of this package. The embedded interfaces make a method that is missing a compile
// error.
type Server struct {
	baremetalv1.UnsafePlanServiceServer
	baremetalv1.UnsafeScriptServiceServer
	baremetalv1.UnsafeClusterServiceServer
	baremetalv1.UnsafeMAASServiceServer

	*service.Base

	stores Stores
}

// Stores are what the services of this package read and write.
type Stores struct {
	Catalog     *catalogstore.Store
	Credentials *credentialstore.Store
}

// Register adds the services of this package to a server.
func Register(r grpc.ServiceRegistrar, b *service.Base, stores Stores) {
	s := &Server{Base: b, stores: stores}
	baremetalv1.RegisterPlanServiceServer(r, s)
	baremetalv1.RegisterScriptServiceServer(r, s)
	baremetalv1.RegisterClusterServiceServer(r, s)
	baremetalv1.RegisterMAASServiceServer(r, s)
}
