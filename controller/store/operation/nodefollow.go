package operation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/workflowstate"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// nodeStays reports whether the decision has nothing to do with the node's state, as that of most operations.
func nodeStays(l *OperationContext, d operation.Decision) bool {
	switch node.Parse(l.Machine.NodeState) {
	case node.Deprovisioning, node.Draining, node.Migrating:
		return false // states that operations stand for
	case node.Installed:
		if d.Op.Type == fleet.ExitMaintenance {
			return false // which verifies the installation
		}
	}
	return d.AttemptFailed == "" && !workflowstate.OfWorkflow(d.Op.Type) &&
		!operation.Installs(d.Op.Type, d.Op.Kinds()...) && !waitsForReports(d.Op)
}

// nodeFollows moves the node with a decision about its operation, in the decision's transaction. A node is in a state
// that stands for work from the decision that begins it to the one that ends it, and no longer.
func nodeFollows(
	ctx context.Context, q *dbsqlc.Queries, l *OperationContext, d operation.Decision, now time.Time,
) error {
	if operation.Installs(d.Op.Type, d.Op.Kinds()...) && installBegins(l, d) {
		return beginInstall(ctx, q, l, now)
	}
	if d.AttemptFailed != "" {
		if err := nodestate.InstallFailed(ctx, q, l.Machine, workMove(l, node.InstallFailed), d.AttemptFailed,
			planOfAttempt(l), now); err != nil {
			return err
		}
	}
	switch ended := operation.IsTerminal(d.Op.Phase) && !operation.IsTerminal(l.Snap.Op.Phase); {
	case !ended:
		return nil
	case workflowstate.OfWorkflow(d.Op.Type):
		return endAttempts(ctx, q, l, d)
	case operation.Installs(d.Op.Type, d.Op.Kinds()...) || waitsForReports(d.Op):
		return endInstall(ctx, q, l, d, now)
	case d.Op.Type == fleet.ExitMaintenance:
		return verifiedByExit(ctx, q, l, d, now)
	}
	return endOfWork(ctx, q, l, d, now)
}

// planOfAttempt names the plan that an attempt has failed under. An installer that reports by itself, and an
// onboarding, do what the node's own plan stands for.
func planOfAttempt(l *OperationContext) string {
	if waitsForReports(l.Snap.Op) || workflowstate.OfWorkflow(l.Snap.Op.Type) {
		return nodestate.InstallPlan(l.Machine)
	}
	return l.Row.PlanID
}

// endAttempts forgets the failed attempts of an installation that an onboarding has brought to a good end. The moves
// are the workflow's.
func endAttempts(ctx context.Context, q *dbsqlc.Queries, l *OperationContext, d operation.Decision) error {
	if d.Op.Type != fleet.Onboard || d.Op.Phase != operation.Succeeded {
		return nil
	}
	return nodestate.SetInstall(ctx, q, l.Machine, node.Install{}, "")
}

// endOfWork moves a node out of the state that its operation stood for, whatever the end was.
func endOfWork(ctx context.Context, q *dbsqlc.Queries, l *OperationContext, d operation.Decision, now time.Time) error {
	well := d.Op.Phase == operation.Succeeded
	along := func(by node.Trigger, states ...node.State) error {
		v := workMove(l, 0)
		v.By = by
		return nodestate.MoveAlong(ctx, q, l.Machine.MachineID, v, now, states...)
	}
	switch state := node.Parse(l.Machine.NodeState); {
	case state == node.Deprovisioning && erases(d.Op):
		if well && d.Op.Evidence[evidence.EraseMethod] != "" {
			return along(node.Workflow, node.Retired)
		}
		return notErased(ctx, q, l, d, along, now)
	case state == node.Draining && drains(d.Op) && well:
		return along(node.Workflow, node.Retired)
	case state == node.Draining && drains(d.Op) && l.Machine.QuarantinedFrom != "":
		return along(node.System, node.Quarantined)
	case state == node.Draining && drains(d.Op):
		if err := along(node.Workflow, node.Offline); err != nil || !l.Snap.World.TargetAgentLive {
			return err
		}
		return along(node.System, node.Active)
	case state == node.Migrating && d.Op.Type == fleet.RMAType:
		return along(node.Workflow, node.Active)
	}
	return nil
}

// erases reports whether the proof of a step is how a disk was erased.
func erases(op operation.Operation) bool {
	return slices.ContainsFunc(op.Steps, func(s operation.Step) bool {
		return kind.Of(s.Kind).Evidence == evidence.EraseMethod
	})
}

// drains reports whether the operation is the drain that a node in that state waits for.
func drains(op operation.Operation) bool {
	return slices.ContainsFunc(op.Steps, func(s operation.Step) bool {
		return kind.Of(s.Kind).Evidence == evidence.NodeDrained || s.Mode == workflow.NothingToDrain
	})
}

// notErased: a machine whose erasure has failed, or has ended after it was begun, is kept out of all work. One whose
// erasure was cancelled before it was begun is in service as before.
func notErased(
	ctx context.Context, q *dbsqlc.Queries, l *OperationContext, d operation.Decision,
	along func(node.Trigger, ...node.State) error, now time.Time,
) error {
	begun, err := q.GrantedFor(ctx, dbsqlc.GrantedForParams{OperationID: l.Row.OperationID, Kind: string(kind.Erase)})
	if err != nil {
		return fmt.Errorf("look for granted commands: %w", err)
	}
	if !begun && d.Op.Phase != operation.Failed {
		return along(node.Workflow, node.Active)
	}
	v := workMove(l, node.Quarantined)
	v.By, v.Reason = node.System, "CANCELED_BY_REQUEST"
	if d.Op.Error != nil {
		v.Reason = d.Op.Error.Code
	}
	if err := nodestate.MoveTo(ctx, q, l.Machine.MachineID, v, now); err != nil || d.Op.Phase == operation.Failed {
		return err // which has said what is wrong
	}
	return machinestore.RaiseCause(ctx, q, l.Machine.MachineID, l.Row.OperationID,
		machinestore.QuarantineCause("MACHINE_QUARANTINED", "the erasure of its disks has ended in the middle"), now)
}
