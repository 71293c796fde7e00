package node

import (
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/node"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

// moveID wants a request id where work begins, which must not begin twice. A move that stands for none leaves the node
// where a repeat finds it.
func moveID(r *baremetalv1.TransitionNodeRequest) error {
	if r.GetRequestId() == "" && (r.GetDryRun() || r.GetValidateOnly() || !node.InProgress(r.GetState())) {
		return nil
	}
	return validate.RequestID(r.GetRequestId())
}

// move moves a node. Without a request id a node that is where it is wanted, by an admin's move, was moved by this call
// before: that move's operation is the answer.
func (s *Server) move(ctx context.Context, t nodestore.TransitionRequest) (*baremetalv1.Operation, error) {
	if t.RequestID != "" {
		return s.Engine.TransitionNode(ctx, t)
	}
	t.RequestID = ids.New("req")
	op, err := s.Engine.TransitionNode(ctx, t)
	if err == nil || failure.From(err).Reason != "NODE_TRANSITION_ILLEGAL" || t.Dry() {
		return op, err
	}
	before, readErr := s.movedBefore(ctx, t)
	if before != nil || readErr != nil {
		return before, readErr
	}
	return nil, err
}

// movedBefore is the operation of the last move, where that was an admin's to this state; else nil.
func (s *Server) movedBefore(ctx context.Context, t nodestore.TransitionRequest) (*baremetalv1.Operation, error) {
	log, _, err := s.stores.Machines.NodeHistory(ctx, t.MachineID, 1, 0)
	if err != nil || len(log) == 0 {
		return nil, err
	}
	last := log[0]
	id := last.GetMetadata()["operation_id"]
	if last.GetToState() != t.To || last.GetTriggeredBy() != string(node.Admin) || id == "" {
		return nil, nil
	}
	return s.stores.OperationQueries.GetOperation(ctx, id)
}
