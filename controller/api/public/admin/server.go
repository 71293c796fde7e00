// Package admin serves AdminService: agents, tokens, credentials, sites, images, webhooks and the audit log.
package admin

import (
	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/store/history"
	identitystore "github.com/ingot-metal/ingot/controller/store/identity"
	"github.com/ingot-metal/ingot/controller/store/incarnation"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	timelinestore "github.com/ingot-metal/ingot/controller/store/timeline"
	webhookstore "github.com/ingot-metal/ingot/controller/store/webhook"
)

// Server implements the services of this package. The embedded interfaces make a method that is missing a compile
// error.
type Server struct {
	baremetalv1.UnsafeAdminServiceServer

	*service.Base

	stores Stores
}

// Stores are what the services of this package read and write.
type Stores struct {
	Agents           *agentstore.Store
	Catalog          *catalogstore.Store
	Credentials      *credentialstore.Store
	History          *history.Store
	Identities       *identitystore.Store
	Incarnations     *incarnation.Store
	Machines         *machinestore.Store
	OperationQueries *operationquery.Store
	Operations       *operationstore.Store
	Sessions         *sessionstore.Store
	Sites            *sitestore.Store
	Timelines        *timelinestore.Store
	Webhooks         *webhookstore.Store
}

// Register adds the services of this package to a server.
func Register(r grpc.ServiceRegistrar, b *service.Base, stores Stores) {
	s := &Server{Base: b, stores: stores}
	baremetalv1.RegisterAdminServiceServer(r, s)
}
