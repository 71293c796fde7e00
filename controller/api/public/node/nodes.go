package node

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/node"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	defaultHistory = 50
	maxHistory     = 1000
)

// ListNodes implements NodeService. Its filter is that of ListMachines.
func (s *Server) ListNodes(
	ctx context.Context, r *baremetalv1.ListNodesRequest,
) (*baremetalv1.ListNodesResponse, error) {
	terms, err := query.Machines.Parse(r.GetFilter())
	if err != nil {
		return nil, err
	}
	walk, err := s.Walk(ctx, "nodes", r.GetFilter(), terms, service.WalkStart{}, false)
	if err != nil {
		return nil, err
	}
	places := map[string]validate.Page{}
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Node]{
		Name: walk.Name, Filter: walk.Filter, Uncounted: walk.Uncounted,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Node, error) {
			machines, err := walk.Read(ctx, after, limit)
			if err != nil {
				return nil, err
			}
			for _, m := range machines {
				places[m.GetMachineId()] = walk.Place(m)
			}
			return s.stores.Nodes.Nodes(ctx, machines)
		},
		Place: func(n *baremetalv1.Node) validate.Page { return places[n.GetNodeId()] },
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListNodesResponse{Nodes: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// GetNode implements NodeService.
func (s *Server) GetNode(ctx context.Context, r *baremetalv1.GetNodeRequest) (*baremetalv1.Node, error) {
	if err := validate.Key("node_id", r.GetNodeId()); err != nil {
		return nil, err
	}
	return s.stores.Nodes.GetNode(ctx, r.GetNodeId())
}

// GetNodeHistory implements NodeService.
func (s *Server) GetNodeHistory(
	ctx context.Context, r *baremetalv1.GetNodeHistoryRequest,
) (*baremetalv1.GetNodeHistoryResponse, error) {
	if err := validate.Key("node_id", r.GetNodeId()); err != nil {
		return nil, err
	}
	if r.GetLimit() < 0 {
		return nil, validate.Fault("limit", "not negative; 0 means %d", defaultHistory)
	}
	if r.GetOffset() < 0 {
		return nil, validate.Fault("offset", "not negative")
	}
	if _, err := s.stores.Machines.KnownMachine(ctx, r.GetNodeId()); err != nil {
		return nil, err
	}
	data, total, err := s.stores.Machines.NodeHistory(ctx, r.GetNodeId(), min(cmp.Or(r.GetLimit(), defaultHistory),
		maxHistory), r.GetOffset())
	if err != nil {
		return nil, err
	}
	return &baremetalv1.GetNodeHistoryResponse{Data: data, Total: total}, nil
}

// UpdateNode implements NodeService.
func (s *Server) UpdateNode(ctx context.Context, r *baremetalv1.UpdateNodeRequest) (*baremetalv1.Node, error) {
	err := service.FirstError(
		validate.Key("node_id", r.GetNodeId()), validate.OptionalKey("plan_id", r.GetPlanId()),
		validate.OptionalKey("group", r.GetGroup()),
		installPlanOnly(r.GetPlanId()),
	)
	if err != nil {
		return nil, err
	}
	u, err := nodeUpdate(r)
	if err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	return s.stores.Nodes.UpdateNode(ctx, r.GetNodeId(), u, service.Actor(ctx), s.Clock.Now(), opts...)
}

// installPlanOnly keeps the plans that only change records away from installations.
func installPlanOnly(planID string) error {
	if owner, ok := service.MaintenancePlans[planID]; ok {
		return validate.Fault("plan_id", "plan %s belongs to %s and installs nothing", planID, owner)
	}
	return nil
}

// nodeUpdate returns the fields to set: the fields of the mask, or those that are not empty.
func nodeUpdate(r *baremetalv1.UpdateNodeRequest) (nodestore.NodeUpdate, error) {
	var u nodestore.NodeUpdate
	paths := r.GetUpdateMask().GetPaths()
	if len(paths) == 0 {
		if r.GetPlanId() != "" {
			paths = append(paths, "plan_id")
		}
		if r.GetGroup() != "" {
			paths = append(paths, "group")
		}
	}
	for i, p := range paths {
		switch p {
		case "plan_id":
			u.PlanID = &r.PlanId
		case "group":
			u.Group = &r.Group
		default:
			return u, validate.Fault("update_mask.paths["+strconv.Itoa(i)+"]", "plan_id or group")
		}
	}
	u.AdoptProviderState = r.GetAdoptProviderState()
	if len(paths) == 0 && !u.AdoptProviderState {
		return u,
			validate.Fault("update_mask", "nothing is to be set: send plan_id or group, or name in the mask which to clear")
	}
	return u, nil
}

// TransitionNode implements NodeService.
func (s *Server) TransitionNode(
	ctx context.Context, r *baremetalv1.TransitionNodeRequest,
) (*baremetalv1.Operation, error) {
	err := service.FirstError(
		moveID(r), validate.Key("node_id", r.GetNodeId()), validate.Comment("comment", r.GetComment()),
		validate.OptionalKey("image_ref", r.GetImageRef()), service.MayPurge(ctx, r.GetPurge()),
	)
	if err != nil {
		return nil, err
	}
	if _, ok := baremetalv1.NodeState_name[int32(r.GetState())]; !ok || r.GetState() == 0 {
		return nil, validate.Fault("state", "one of the node states")
	}
	if r.GetPurge() && r.GetState() != node.Retired {
		return nil, validate.Fault("purge", "only with the state retired; DeleteMachine has its own")
	}
	if r.GetImageRef() != "" && r.GetState() != node.Reprovision {
		return nil, validate.Fault("image_ref", "only with the state reprovision, which writes an image")
	}
	return s.move(ctx, nodestore.TransitionRequest{
		MachineID: r.GetNodeId(), RequestID: r.GetRequestId(), To: r.GetState(), Force: r.GetForce(), Purge: r.GetPurge(),
		ImageRef: r.GetImageRef(),
		Actor:    service.Actor(ctx), Comment: r.GetComment(), DryRun: r.GetDryRun(),
		ValidateOnly: r.GetValidateOnly(),
	})
}

// ReportNode implements NodeService.
func (s *Server) ReportNode(ctx context.Context, r *baremetalv1.ReportNodeRequest) (*baremetalv1.Node, error) {
	mac, err := validate.Report(r)
	if err != nil {
		return nil, err
	}
	r.MacAddress = mac
	n, err := s.stores.Nodes.ReportNode(ctx, r, service.Actor(ctx), s.Clock.Now())
	if c, ok := call.Caller(ctx); err == nil && ok && c.Scope == access.ScopeReport {
		return &baremetalv1.Node{}, nil // such a token does not read
	}
	return n, err
}

// ApproveDiscovered implements NodeService.
func (s *Server) ApproveDiscovered(
	ctx context.Context, r *baremetalv1.ApproveDiscoveredRequest,
) (*baremetalv1.Operation, error) {
	mac, ok := validate.MAC(r.GetMacAddress())
	if !ok {
		return nil, validate.Fault("mac_address", "a MAC address, such as 52:54:00:12:34:56")
	}
	spec := r.GetSpec()
	if spec == nil {
		spec = &baremetalv1.MachineSpec{}
	}
	if r.GetGroup() != "" {
		spec.Group = r.GetGroup()
	}
	err := service.FirstError(
		validate.RequestID(r.GetRequestId()), validate.OptionalKey("site", r.GetSite()),
		validate.OptionalKey("plan_id", r.GetPlanId()),
		validate.Comment("comment", r.GetComment()), installPlanOnly(r.GetPlanId()),
	)
	if err != nil {
		return nil, err
	}
	m, err := validate.NewMachine("machine", &baremetalv1.Machine{MachineId: r.GetMachineId(), Labels: r.GetLabels(),
		Spec: spec})
	if err != nil {
		return nil, err
	}
	return s.Engine.ApproveDiscovered(ctx, nodestore.ApproveRequest{
		Site: cmp.Or(r.GetSite(), "default"), MAC: mac, RequestID: r.GetRequestId(), PlanID: r.GetPlanId(), Machine: m,
		Actor: service.Actor(ctx), Comment: r.GetComment(), ValidateOnly: r.GetValidateOnly(),
	})
}

// SetNodeGroup implements NodeService.
func (s *Server) SetNodeGroup(ctx context.Context, r *baremetalv1.SetNodeGroupRequest) (*baremetalv1.NodeGroup, error) {
	if err := validate.Key("group", r.GetGroup()); err != nil {
		return nil, err
	}
	if r.GetAutoPromote() && r.GetExplicitPromotion() {
		return nil,
			failure.Invalid("INVALID_FIELD", "a group promotes its nodes by itself or waits for an explicit word, not both").
				WithField("explicit_promotion", "leave it out, or leave auto_promote out")
	}
	if err := healthChecks(r.GetHealthChecks()); err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	return s.stores.Nodes.SetNodeGroup(ctx, r, service.Actor(ctx), s.Clock.Now(), opts...)
}

// healthChecks refuses unknown checks of a group.
func healthChecks(named []string) error {
	if slices.Equal(named, []string{nodestore.NoChecks}) {
		return nil
	}
	for i, c := range named {
		if !slices.Contains(node.Checks(), c) {
			return validate.Fault("health_checks["+strconv.Itoa(i)+"]", "one of %s; or none alone",
				strings.Join(node.Checks(), ", "))
		}
	}
	return nil
}

// ListNodeGroups implements NodeService.
func (s *Server) ListNodeGroups(
	ctx context.Context, r *baremetalv1.ListNodeGroupsRequest,
) (*baremetalv1.ListNodeGroupsResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.NodeGroup]{
		Name: "node-groups", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.NodeGroup, error) {
			return s.stores.Nodes.ListNodeGroups(ctx, after.ID, limit)
		},
		Place: service.ByID((*baremetalv1.NodeGroup).GetGroup),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListNodeGroupsResponse{Groups: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}
