package engine

import (
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/internal/obs/traces"
)

// StartWorkflow begins a workflow, or returns the first attempt of the one that the same request has begun before.
func (e *Engine) StartWorkflow(ctx context.Context, r workflowstore.WorkflowStart) (*baremetalv1.Operation, error) {
	op, created, err := e.store.Workflows.StartWorkflow(ctx, r, e.clock.Now())
	traces.Concerns(ctx, op.GetOperationId())
	if created {
		e.log.Info("workflow started", "operation_id", op.GetOperationId(), "machine_id", r.MachineID, "kind", string(r.Kind),
			"mode", string(r.Mode))
		e.publish()
	}
	return op, err
}

// ActOnWorkflow takes an operator's action, and tells agents what it means for them.
func (e *Engine) ActOnWorkflow(ctx context.Context, r workflowstore.WorkflowAct) (*baremetalv1.Operation, error) {
	began := e.clock.Now()
	a, err := e.store.Workflows.ActOnWorkflow(ctx, r, began)
	if err != nil {
		return nil, err
	}
	traces.Concerns(ctx, a.Operation.GetOperationId())
	if a.Applied != nil {
		e.applied(ctx, a.Applied, began)
	}
	if !r.DryRun && !r.ValidateOnly {
		e.log.Info("workflow acted on", "workflow_id", r.WorkflowID, "action", string(r.Action), "operation_id",
			a.Operation.GetOperationId(), "effect", a.Text)
		e.publish()
	}
	return a.Operation, nil
}

// compareWorkflows reports nodes whose state does not go with the workflow that holds them. It changes nothing: what is
// wrong is for an operator to say.
func (e *Engine) compareWorkflows(ctx context.Context) error {
	found, err := e.store.WorkflowStates.WorkflowViolations(ctx)
	if err != nil {
		return err
	}
	now := map[string]bool{}
	for _, v := range found {
		now[v.WorkflowID+v.Text] = true
		if !e.violations[v.WorkflowID+v.Text] {
			e.log.Warn("node and workflow disagree", "workflow_id", v.WorkflowID, "machine_id", v.MachineID, "reason", v.Text)
		}
	}
	e.violations = now
	return nil
}
