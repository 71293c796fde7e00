package frontpage

import (
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/validate"
)

const (
	defaultHistory = 50
	maxHistory     = 1000
)

func nodeOf(m *baremetalv1.Machine) *baremetalv1.Node {
	st := m.GetStatus()
	return &baremetalv1.Node{
		NodeId: m.GetMachineId(), State: st.GetNodeState(), StateChangedAt: st.GetNodeStateChangedAt(),
		InstallAttempts: st.GetInstallAttempts(), LastInstallError: st.GetLastInstallError(),
		Group: m.GetSpec().GetGroup(), Machine: m,
	}
}

// ListNodes implements NodeService. Its filter is that of ListMachines.
func (s *Server) ListNodes(ctx context.Context, r *baremetalv1.ListNodesRequest) (*baremetalv1.ListNodesResponse, error) {
	size, err := validate.PageSize(r.GetPageSize())
	if err != nil {
		return nil, err
	}
	terms, err := validate.Filter(r.GetFilter(), machineKeys)
	if err != nil {
		return nil, err
	}
	all, _, next, err := s.walk(ctx, "nodes", r.GetFilter(), r.GetPageToken(), terms, size)
	if err != nil {
		return nil, err
	}
	out := &baremetalv1.ListNodesResponse{NextPageToken: next}
	for _, m := range all {
		out.Nodes = append(out.Nodes, nodeOf(m))
	}
	return out, nil
}

// GetNode implements NodeService.
func (s *Server) GetNode(ctx context.Context, r *baremetalv1.GetNodeRequest) (*baremetalv1.Node, error) {
	if err := validate.Key("node_id", r.GetNodeId()); err != nil {
		return nil, err
	}
	m, err := s.store.GetMachine(ctx, r.GetNodeId(), "")
	if err != nil {
		return nil, err
	}
	return nodeOf(m), nil
}

// GetNodeHistory implements NodeService.
func (s *Server) GetNodeHistory(ctx context.Context, r *baremetalv1.GetNodeHistoryRequest) (*baremetalv1.GetNodeHistoryResponse, error) {
	if err := validate.Key("node_id", r.GetNodeId()); err != nil {
		return nil, err
	}
	if r.GetLimit() < 0 {
		return nil, validate.Fault("limit", "not negative; 0 means %d", defaultHistory)
	}
	if r.GetOffset() < 0 {
		return nil, validate.Fault("offset", "not negative")
	}
	if _, err := s.store.GetMachine(ctx, r.GetNodeId(), ""); err != nil {
		return nil, err
	}
	data, total, err := s.store.NodeHistory(ctx, r.GetNodeId(), min(orElse(r.GetLimit(), defaultHistory), maxHistory), r.GetOffset())
	if err != nil {
		return nil, err
	}
	return &baremetalv1.GetNodeHistoryResponse{Data: data, Total: total}, nil
}

const noNodeLifecycle = "NODE_LIFECYCLE_NOT_WIRED"

// UpdateNode implements NodeService. It is not built.
func (s *Server) UpdateNode(context.Context, *baremetalv1.UpdateNodeRequest) (*baremetalv1.Node, error) {
	return nil, notWired(noNodeLifecycle, "update a node")
}

// TransitionNode implements NodeService. It is not built.
func (s *Server) TransitionNode(context.Context, *baremetalv1.TransitionNodeRequest) (*baremetalv1.Operation, error) {
	return nil, notWired(noNodeLifecycle, "move a node to another state")
}

// ReportNode implements NodeService. It is not built.
func (s *Server) ReportNode(context.Context, *baremetalv1.ReportNodeRequest) (*baremetalv1.Node, error) {
	return nil, notWired(noNodeLifecycle, "take an install report")
}
