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
	"github.com/ingot-metal/ingot/controller/store"
)

// Register adds all services of baremetal.v1 to a server. It hands each of them the parts of the store that it uses.
func Register(r grpc.ServiceRegistrar, c service.Config, s *store.Store) {
	b := service.New(c, service.Stores{
		DB: s.DB, Machines: s.Machines, Operations: s.Operations, Credentials: s.Credentials, Incarnations: s.Incarnations,
		Schema: s.Schema,
	})
	machine.Register(r, b, machine.Stores{
		Explain:          s.Explain,
		MachineFeed:      s.MachineFeed,
		Machines:         s.Machines,
		Maps:             s.Maps,
		Nodes:            s.Nodes,
		OperationQueries: s.OperationQueries,
		Past:             s.Past,
		Sites:            s.Sites,
		Timelines:        s.Timelines,
	})
	operation.Register(r, b, operation.Stores{
		Logs: s.Logs, Machines: s.Machines, OperationQueries: s.OperationQueries, Timelines: s.Timelines,
	})
	node.Register(r, b, node.Stores{
		Machines: s.Machines, Nodes: s.Nodes, OperationQueries: s.OperationQueries, Workflows: s.Workflows,
	})
	rollout.Register(r, b, rollout.Stores{
		Approvals: s.Approvals, Budgets: s.Budgets, Incarnations: s.Incarnations, Rollouts: s.Rollouts,
	})
	catalog.Register(r, b, catalog.Stores{
		Catalog: s.Catalog, Credentials: s.Credentials,
	})
	admin.Register(r, b, admin.Stores{
		Agents:           s.Agents,
		Catalog:          s.Catalog,
		Credentials:      s.Credentials,
		History:          s.History,
		Identities:       s.Identities,
		Incarnations:     s.Incarnations,
		Machines:         s.Machines,
		OperationQueries: s.OperationQueries,
		Operations:       s.Operations,
		Sessions:         s.Sessions,
		Sites:            s.Sites,
		Timelines:        s.Timelines,
		Webhooks:         s.Webhooks,
	})
	access.Register(r, b, access.Stores{
		Access: s.Access,
	})
	authority.Register(r, b, authority.Stores{
		Authorities: s.Authorities,
	})
	view.Register(r, b, view.Stores{
		Views: s.Views,
	})
}
