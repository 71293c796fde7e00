package public

import (
	"google.golang.org/grpc"

	"github.com/ingot-metal/ingot/controller/api/public/access"
	"github.com/ingot-metal/ingot/controller/api/public/admin"
	"github.com/ingot-metal/ingot/controller/api/public/authority"
	"github.com/ingot-metal/ingot/controller/api/public/catalog"
	"github.com/ingot-metal/ingot/controller/api/public/machine"
	"github.com/ingot-metal/ingot/controller/api/public/node"
	"github.com/ingot-metal/ingot/controller/api/public/operation"
	"github.com/ingot-metal/ingot/controller/api/public/rollout"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/api/public/view"
)

// Register adds all services of baremetal.v1 to a server.
func Register(r grpc.ServiceRegistrar, b *service.Base) {
	machine.Register(r, b)
	operation.Register(r, b)
	node.Register(r, b)
	rollout.Register(r, b)
	catalog.Register(r, b)
	admin.Register(r, b)
	access.Register(r, b)
	authority.Register(r, b)
	view.Register(r, b)
}
