package operation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
)

// approveByInstalling moves a node to pending, with all its attempts, because its installation was asked for.
func approveByInstalling(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, operationID string, now time.Time,
) error {
	err := nodestate.MoveTo(ctx, q, m.MachineID, nodestate.Move{
		To: node.Pending, By: node.Admin, User: r.Actor, Comment: r.Comment, Installs: true,
		Metadata: map[string]string{"operation_id": operationID}, Ended: operationID,
	}, now)
	if err != nil || node.Parse(m.NodeState) != node.InstallFailed {
		return err
	}
	return nodestate.SetInstall(ctx, q, m, node.Install{}, "")
}

// installBegins reports whether the decision grants the write: from here on what the machine ran before may be gone. On
// the way into the installer, and while that only looks, the node is what it was.
func installBegins(l *OperationContext, d operation.Decision) bool {
	c := l.Snap.Command
	if !d.Grant || c == nil || c.State == operation.Granted {
		return false
	}
	return operation.WritesSystem(l.Snap.Op.Type, c.Kind)
}

// workMove is a move by the operation, or by the report that it waited for.
func workMove(l *OperationContext, to node.State) nodestate.Move {
	v := nodestate.Move{To: to, By: node.Workflow, Metadata: map[string]string{"operation_id": l.Row.OperationID},
		Ended: l.Row.OperationID}
	if l.report != nil {
		v.By, v.User = node.NodeReport, l.report.Actor
	}
	return v
}

// countsAttempts reports whether the operation is installing its node: what fails of it now is an attempt. Onboardings
// count theirs as well.
func countsAttempts(m dbsqlc.Machine, op operation.Operation) bool {
	if node.Parse(m.NodeState) != node.Installing {
		return false
	}
	return operation.Installs(op.Type, op.Kinds()...) || waitsForReports(op) ||
		op.Type == fleet.Onboard && op.WritesSystem()
}

// beginInstall moves a node into installing by the way that the table has from where it is. Nodes on the adoption path,
// and those that are out of service, stay what they are: what their new system's agent says moves them. Attempts that
// an operation has left unspent are what the next one has.
func beginInstall(ctx context.Context, q *dbsqlc.Queries, l *OperationContext, now time.Time) error {
	paths := map[node.State][]node.State{
		node.Active:      {node.Reprovision, node.Pending, node.Installing},
		node.Reprovision: {node.Pending, node.Installing},
		node.Installed:   {node.Pending, node.Installing},
		node.Pending:     {node.Installing},
	}
	state := node.Parse(l.Machine.NodeState)
	path := paths[state]
	if len(path) == 0 {
		return nil
	}
	if err := nodestate.MoveAlong(ctx, q, l.Machine.MachineID, workMove(l, node.Installing), now, path...); err != nil {
		return err
	}
	if state == node.Pending && l.Machine.InstallAttempts > 0 {
		return nil
	}
	return nodestate.SetInstall(ctx, q, l.Machine, node.Install{}, "")
}

// endInstall moves the node to where the end of its installation leaves it. What fails of it has been counted.
func endInstall(
	ctx context.Context, q *dbsqlc.Queries, l *OperationContext, d operation.Decision, now time.Time,
) error {
	m, err := q.GetMachine(ctx, l.Machine.MachineID)
	if err != nil {
		return fmt.Errorf("read machine: %w", err)
	}
	switch state := node.Parse(m.NodeState); {
	case state == node.Reprovision:
		// It was marked, and ended before it began.
		return nodestate.MoveTo(ctx, q, m.MachineID, workMove(l, node.Pending), now)
	case state != node.Installing:
		return nil
	case d.Op.Phase == operation.Succeeded:
		return installDone(ctx, q, m, workMove(l, node.Installed), now)
	}
	// Nobody is at it any more, and attempts are left: it waits for its installation.
	if d.Op.Phase == operation.Canceled {
		canceled := node.Install{Attempts: int(m.InstallAttempts), LastError: "CANCELED_BY_REQUEST"}
		if err := nodestate.SetInstall(ctx, q, m, canceled, m.FailedPlanID); err != nil {
			return err
		}
	}
	v := workMove(l, node.Pending)
	if d.Op.Error != nil {
		v.Metadata["error"] = d.Op.Error.Code
	}
	return nodestate.MoveTo(ctx, q, m.MachineID, v, now)
}

// installDone makes an installation complete. Only a group that says so promotes the node without a person's word.
func installDone(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, v nodestate.Move, now time.Time) error {
	if err := nodestate.SetInstall(ctx, q, m, node.Install{}, ""); err != nil {
		return err
	}
	if err := nodestate.MoveTo(ctx, q, m.MachineID, v, now); err != nil {
		return err
	}
	g, err := nodestate.GroupOf(ctx, q, m)
	if err != nil || !g.AutoPromote {
		return err
	}
	promote := v
	promote.To, promote.By = node.Active, node.System
	return nodestate.MoveTo(ctx, q, m.MachineID, promote, now)
}

// verifiedByExit promotes an installed node whose operator has taken the machine out of maintenance: that is the manual
// verification, unless the node's group asks for an explicit word.
func verifiedByExit(
	ctx context.Context, q *dbsqlc.Queries, l *OperationContext, d operation.Decision, now time.Time,
) error {
	if d.Op.Phase != operation.Succeeded || node.Parse(l.Machine.NodeState) != node.Installed {
		return nil
	}
	g, err := nodestate.GroupOf(ctx, q, l.Machine)
	if err != nil || g.ExplicitPromotion {
		return err
	}
	actor, err := q.ActorOfOperation(ctx, dbsqlc.ActorOfOperationParams{MachineID: l.Row.TargetID,
		OperationID: l.Row.OperationID})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read who asked: %w", err)
	}
	v := workMove(l, node.Active)
	v.By, v.User = node.Admin, actor
	return nodestate.MoveTo(ctx, q, l.Row.TargetID, v, now)
}

// waitsForReports reports whether the operation is one that an installer carries out which reports by itself.
func waitsForReports(op operation.Operation) bool {
	return op.Type == fleet.NodeTransition && len(op.Steps) == 1 && op.Steps[0].Mode == workflow.ReportedInstall
}

// ReportedPlan is the built-in plan of an installation that is reported.
const ReportedPlan = "reported-install"
