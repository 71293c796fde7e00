package engine

import (
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/internal/obs/traces"
)

// Requests carries out what clients ask for that must also reach agents and watchers.
type Requests struct {
	common
	operations *operationstore.Store
	queries    *operationquery.Store
	workflows  *workflowstore.Store
	nodes      *nodestore.Store
	rollouts   *rolloutstore.Store
	agents     *agentstore.Store
	decisions  *decisions
	changes    *changes
	signals    signals
}

// Changed returns a channel that is closed at the next change that this controller commits, or hears of.
func (q *Requests) Changed() <-chan struct{} { return q.changes.Changed() }

// Start creates an operation, or returns the one that the same request has made before.
func (q *Requests) Start(ctx context.Context, r operationstore.StartRequest) (*baremetalv1.Operation, error) {
	op, created, err := q.operations.Start(ctx, r, q.clock.Now())
	traces.Concerns(ctx, op.GetOperationId())
	if created {
		q.log.Info("operation created", "operation_id", op.GetOperationId(), "machine_id", r.MachineID, "type",
			string(r.Type))
		q.changes.publish()
	}
	return op, err
}

// Cancel asks an operation to stop, and returns it as it is then.
func (q *Requests) Cancel(ctx context.Context, operationID, actor string) (*baremetalv1.Operation, error) {
	began := q.clock.Now()
	a, err := q.operations.Cancel(ctx, operationID, actor, began)
	if err != nil {
		return nil, err
	}
	traces.Concerns(ctx, operationID)
	q.decisions.applied(ctx, a, began)
	if err := a.Refused(); err != nil {
		return nil, err
	}
	return q.queries.GetOperation(ctx, operationID)
}

// Settle records an operator's word on an unknown outcome.
func (q *Requests) Settle(
	ctx context.Context, machineID, commandID, verdict, actor, comment string,
) (*baremetalv1.Machine, error) {
	m, err := q.operations.Settle(ctx, machineID, commandID, verdict, actor, comment, q.clock.Now())
	q.changes.publish()
	return m, err
}

// RevokeAgent revokes certificates and ends the sessions that use them.
func (q *Requests) RevokeAgent(ctx context.Context, agentID, fingerprint, actor, why string) error {
	gone, err := q.agents.RevokeAgent(ctx, agentID, fingerprint, actor, why, q.clock.Now())
	if err != nil {
		return err
	}
	q.log.Info("agent revoked", "agent_id", agentID)
	q.decisions.revoked(ctx, gone)
	return nil
}

// StartWorkflow begins a workflow, or returns the first attempt of the one that the same request has begun before.
func (q *Requests) StartWorkflow(ctx context.Context, r workflowstore.WorkflowStart) (*baremetalv1.Operation, error) {
	op, created, err := q.workflows.StartWorkflow(ctx, r, q.clock.Now())
	traces.Concerns(ctx, op.GetOperationId())
	if created {
		q.log.Info("workflow started", "operation_id", op.GetOperationId(), "machine_id", r.MachineID, "kind", string(r.Kind),
			"mode", string(r.Mode))
		q.changes.publish()
	}
	return op, err
}

// ActOnWorkflow takes an operator's action, and sends agents the commands that follow from it.
func (q *Requests) ActOnWorkflow(ctx context.Context, r workflowstore.WorkflowAct) (*baremetalv1.Operation, error) {
	began := q.clock.Now()
	a, err := q.workflows.ActOnWorkflow(ctx, r, began)
	if err != nil {
		return nil, err
	}
	traces.Concerns(ctx, a.Operation.GetOperationId())
	if a.Applied != nil {
		q.decisions.applied(ctx, a.Applied, began)
	}
	if !r.DryRun && !r.ValidateOnly {
		q.log.Info("workflow acted on", "workflow_id", r.WorkflowID, "action", string(r.Action), "operation_id",
			a.Operation.GetOperationId(), "effect", a.Text)
		q.changes.publish()
	}
	return a.Operation, nil
}

// TransitionNode moves a node by an admin's word.
func (q *Requests) TransitionNode(ctx context.Context, r nodestore.TransitionRequest) (*baremetalv1.Operation, error) {
	op, created, err := q.nodes.TransitionNode(ctx, r, q.clock.Now())
	traces.Concerns(ctx, op.GetOperationId())
	q.tellMoved(op, created)
	return op, err
}

// ApproveDiscovered registers a discovered machine and moves it to pending.
func (q *Requests) ApproveDiscovered(ctx context.Context, r nodestore.ApproveRequest) (*baremetalv1.Operation, error) {
	op, created, err := q.nodes.ApproveDiscovered(ctx, r, q.clock.Now())
	traces.Concerns(ctx, op.GetOperationId())
	q.tellMoved(op, created)
	return op, err
}

func (q *Requests) tellMoved(op *baremetalv1.Operation, created bool) {
	if !created {
		return
	}
	q.log.Info("operation created", "operation_id", op.GetOperationId(), "machine_id", op.GetMachineId(), "type",
		op.GetType().String(),
		"node_state", op.GetParams()["node_state"])
	q.signals.workEnded()
	q.changes.publish()
}

// CreateRollout begins a rollout, or returns the one that the same request has begun before.
func (q *Requests) CreateRollout(ctx context.Context, r rolloutstore.RolloutRequest) (*baremetalv1.Rollout, error) {
	ro, created, err := q.rollouts.CreateRollout(ctx, r, q.clock.Now())
	if created {
		q.log.Info("rollout created", "rollout_id", ro.GetRolloutId(), "type", string(r.Work.Type), "machines",
			ro.GetTally().GetMachines(),
			"state", ro.GetState().String())
		q.changes.publish()
	}
	return ro, err
}

// ActOnRollout takes an operator's action. What is left to do after it is done by the next look.
func (q *Requests) ActOnRollout(ctx context.Context, a rolloutstore.RolloutAct) (*baremetalv1.Rollout, error) {
	ro, move, err := q.rollouts.ActOnRollout(ctx, a, q.clock.Now())
	if err != nil {
		return nil, err
	}
	if move != nil {
		q.log.Info("rollout acted on", "rollout_id", a.RolloutID, "action", string(a.Action), "state", string(move.State))
		q.changes.publish()
	}
	return ro, nil
}
