package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/node"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// nodeStays says that the decision has nothing to do with the node's state, as that of most operations.
func nodeStays(l *loaded, d operation.Decision) bool {
	switch node.Parse(l.machine.NodeState) {
	case node.Deprovisioning, node.Draining, node.Migrating:
		return false // states that operations stand for
	case node.Installed:
		if d.Op.Type == fleet.ExitMaintenance {
			return false // which verifies the installation
		}
	}
	return d.AttemptFailed == "" && !ofWorkflow(d.Op.Type) && !installs(d.Op.Type, stepKinds(d.Op.Steps)...) && !waitsForReports(d.Op)
}

// nodeFollows moves the node with a decision about its operation, in the decision's transaction. A node is in a state that
// stands for work from the decision that begins it to the one that ends it, and no longer.
func nodeFollows(ctx context.Context, q *dbsqlc.Queries, l *loaded, d operation.Decision, now time.Time) error {
	kinds := stepKinds(d.Op.Steps)
	if installs(d.Op.Type, kinds...) && installBegins(l, d) {
		return beginInstall(ctx, q, l, now)
	}
	if d.AttemptFailed != "" {
		if err := installFailed(ctx, q, l.machine, workMove(l, node.InstallFailed), d.AttemptFailed, planOfAttempt(l), now); err != nil {
			return err
		}
	}
	switch ended := operation.IsTerminal(d.Op.Phase) && !operation.IsTerminal(l.snap.Op.Phase); {
	case !ended:
		return nil
	case ofWorkflow(d.Op.Type):
		return endAttempts(ctx, q, l, d)
	case installs(d.Op.Type, kinds...) || waitsForReports(d.Op):
		return endInstall(ctx, q, l, d, now)
	case d.Op.Type == fleet.ExitMaintenance:
		return verifiedByExit(ctx, q, l, d, now)
	}
	return endOfWork(ctx, q, l, d, now)
}

// planOfAttempt names the plan that an attempt has failed under. An installer that reports by itself, and an onboarding, do what
// the node's own plan stands for.
func planOfAttempt(l *loaded) string {
	if waitsForReports(l.snap.Op) || ofWorkflow(l.snap.Op.Type) {
		return installPlan(l.machine)
	}
	return l.row.PlanID
}

// endAttempts forgets the failed attempts of an installation that an onboarding has brought to a good end. The moves are the
// workflow's.
func endAttempts(ctx context.Context, q *dbsqlc.Queries, l *loaded, d operation.Decision) error {
	if d.Op.Type != fleet.Onboard || d.Op.Phase != operation.Succeeded || l.machine.InstallAttempts == 0 {
		return nil
	}
	return setInstall(ctx, q, l.machine, node.Install{}, "")
}

// endOfWork moves a node out of the state that its operation stood for, whatever the end was.
func endOfWork(ctx context.Context, q *dbsqlc.Queries, l *loaded, d operation.Decision, now time.Time) error {
	kinds, well := stepKinds(d.Op.Steps), d.Op.Phase == operation.Succeeded
	along := func(by node.Trigger, states ...node.State) error {
		v := workMove(l, 0)
		v.by = by
		return moveAlong(ctx, q, l.machine.MachineID, v, now, states...)
	}
	switch state := node.Parse(l.machine.NodeState); {
	case state == node.Deprovisioning && slices.Contains(kinds, operation.KindErase):
		if well && d.Op.Evidence[evidence.EraseMethod] != "" {
			return along(node.Workflow, node.Retired)
		}
		return notErased(ctx, q, l, d, along, now)
	case state == node.Draining && drains(d.Op) && well:
		return along(node.Workflow, node.Retired)
	case state == node.Draining && drains(d.Op) && l.machine.QuarantinedFrom != "":
		return along(node.System, node.Quarantined)
	case state == node.Draining && drains(d.Op):
		if err := along(node.Workflow, node.Offline); err != nil || !l.snap.World.TargetAgentLive {
			return err
		}
		return along(node.System, node.Active)
	case state == node.Migrating && d.Op.Type == fleet.RMAType:
		return along(node.Workflow, node.Active)
	}
	return nil
}

// drains reports whether the operation is the drain that a node in that state waits for.
func drains(op operation.Operation) bool {
	return slices.ContainsFunc(op.Steps, func(s operation.Step) bool {
		return s.Kind == operation.KindDrain || s.Mode == workflow.NothingToDrain
	})
}

// notErased: a machine whose erasure has failed, or has ended after it was begun, is kept out of all work. One whose erasure was
// cancelled before it was begun is in service as before.
func notErased(ctx context.Context, q *dbsqlc.Queries, l *loaded, d operation.Decision, along func(node.Trigger, ...node.State) error, now time.Time) error {
	begun, err := q.GrantedFor(ctx, dbsqlc.GrantedForParams{OperationID: l.row.OperationID, Kind: string(operation.KindErase)})
	if err != nil {
		return fmt.Errorf("look for granted commands: %w", err)
	}
	if !begun && d.Op.Phase != operation.Failed {
		return along(node.Workflow, node.Active)
	}
	v := workMove(l, node.Quarantined)
	v.by, v.reason = node.System, "CANCELED_BY_REQUEST"
	if d.Op.Error != nil {
		v.reason = d.Op.Error.Code
	}
	if err := moveTo(ctx, q, l.machine.MachineID, v, now); err != nil || d.Op.Phase == operation.Failed {
		return err // which has said what is wrong
	}
	return raiseCause(ctx, q, l.machine.MachineID, l.row.OperationID,
		quarantineCause("MACHINE_QUARANTINED", "the erasure of its disks has ended in the middle"), now)
}
