package engine

import (
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	"github.com/ingot-metal/ingot/internal/obs/traces"
)

// TransitionNode moves a node by an admin's word.
func (e *Engine) TransitionNode(ctx context.Context, r nodestore.TransitionRequest) (*baremetalv1.Operation, error) {
	op, created, err := e.store.Nodes.TransitionNode(ctx, r, e.clock.Now())
	traces.Concerns(ctx, op.GetOperationId())
	e.tellMoved(op, created)
	return op, err
}

// ApproveDiscovered registers a discovered machine and moves it to pending.
func (e *Engine) ApproveDiscovered(ctx context.Context, r nodestore.ApproveRequest) (*baremetalv1.Operation, error) {
	op, created, err := e.store.Nodes.ApproveDiscovered(ctx, r, e.clock.Now())
	traces.Concerns(ctx, op.GetOperationId())
	e.tellMoved(op, created)
	return op, err
}

func (e *Engine) tellMoved(op *baremetalv1.Operation, created bool) {
	if !created {
		return
	}
	e.log.Info("operation created", "operation_id", op.GetOperationId(), "machine_id", op.GetMachineId(), "type",
		op.GetType().String(),
		"node_state", op.GetParams()["node_state"])
	e.signals.workEnded()
	e.publish()
}
