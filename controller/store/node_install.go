package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/node"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/plan"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// installs says that an operation of the type with these steps is an installation whose node state follows it. The moves
// of onboardings and decommissions are their workflow's.
func installs(t fleet.OperationType, kinds ...operation.Kind) bool {
	if t == fleet.Onboard || t == fleet.Decommission {
		return false
	}
	for _, k := range kinds {
		if k == operation.KindRepave || byProvider(t, k) {
			return true
		}
	}
	return false
}

// byProvider says that a step of a reimage is how the machine's provider installs it.
func byProvider(t fleet.OperationType, k operation.Kind) bool {
	return t == fleet.Reimage && k == operation.KindProvider
}

func filledKinds(steps []plan.Filled) []operation.Kind {
	out := make([]operation.Kind, 0, len(steps))
	for _, s := range steps {
		out = append(out, operation.Kind(s.Kind))
	}
	return out
}

func stepKinds(steps []operation.Step) []operation.Kind {
	out := make([]operation.Kind, 0, len(steps))
	for _, s := range steps {
		out = append(out, s.Kind)
	}
	return out
}

// approvesByInstalling reports whether asking for the installation moves the node to pending: nobody has approved it yet, or its
// attempts are spent and this is the operator's new plan.
func approvesByInstalling(m dbsqlc.Machine, r StartRequest, steps []plan.Filled) bool {
	state := node.Parse(m.NodeState)
	return installs(r.Type, filledKinds(steps)...) && (state == node.Discovered || state == node.InstallFailed)
}

// approveByInstalling moves such a node to pending, with all its attempts.
func approveByInstalling(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, operationID string, now time.Time) error {
	err := moveTo(ctx, q, m.MachineID, move{
		to: node.Pending, by: node.Admin, user: r.Actor, comment: r.Comment, installs: true,
		metadata: map[string]string{"operation_id": operationID}, ended: operationID,
	}, now)
	if err != nil || node.Parse(m.NodeState) != node.InstallFailed {
		return err
	}
	return setInstall(ctx, q, m, node.Install{}, "")
}

// installBegins says that the decision grants the write: from here on what the machine ran before may be gone. On the way into
// the installer, and while that only looks, the node is what it was.
func installBegins(l *loaded, d operation.Decision) bool {
	c := l.snap.Command
	if !d.Grant || c == nil || c.State == operation.Granted {
		return false
	}
	return c.Kind == operation.KindRepave || byProvider(l.snap.Op.Type, c.Kind)
}

// workMove is a move by the operation, or by the report that it waited for.
func workMove(l *loaded, to node.State) move {
	v := move{to: to, by: node.Workflow, metadata: map[string]string{"operation_id": l.row.OperationID}, ended: l.row.OperationID}
	if l.report != nil {
		v.by, v.user = node.NodeReport, l.report.Actor
	}
	return v
}

// countsAttempts says that the operation is installing its node: what fails of it now is an attempt. Onboardings count
// theirs as well.
func countsAttempts(m dbsqlc.Machine, op operation.Operation) bool {
	if node.Parse(m.NodeState) != node.Installing {
		return false
	}
	kinds := stepKinds(op.Steps)
	return installs(op.Type, kinds...) || waitsForReports(op) || op.Type == fleet.Onboard && slices.Contains(kinds, operation.KindRepave)
}

// beginInstall moves a node into installing by the way that the table has from where it is. Nodes on the adoption path, and
// those that are out of service, stay what they are: what their new system's agent says moves them. Attempts that an
// operation has left unspent are what the next one has.
func beginInstall(ctx context.Context, q *dbsqlc.Queries, l *loaded, now time.Time) error {
	paths := map[node.State][]node.State{
		node.Active:      {node.Reprovision, node.Pending, node.Installing},
		node.Reprovision: {node.Pending, node.Installing},
		node.Installed:   {node.Pending, node.Installing},
		node.Pending:     {node.Installing},
	}
	state := node.Parse(l.machine.NodeState)
	path := paths[state]
	if len(path) == 0 {
		return nil
	}
	if err := moveAlong(ctx, q, l.machine.MachineID, workMove(l, node.Installing), now, path...); err != nil {
		return err
	}
	if state == node.Pending && l.machine.InstallAttempts > 0 {
		return nil
	}
	return setInstall(ctx, q, l.machine, node.Install{}, "")
}

// endInstall moves the node to where the end of its installation leaves it. What fails of it has been counted.
func endInstall(ctx context.Context, q *dbsqlc.Queries, l *loaded, d operation.Decision, now time.Time) error {
	m, err := q.GetMachine(ctx, l.machine.MachineID)
	if err != nil {
		return fmt.Errorf("read machine: %w", err)
	}
	switch state := node.Parse(m.NodeState); {
	case state == node.Reprovision:
		// It was marked, and ended before it began.
		return moveTo(ctx, q, m.MachineID, workMove(l, node.Pending), now)
	case state != node.Installing:
		return nil
	case d.Op.Phase == operation.Succeeded:
		return installDone(ctx, q, m, workMove(l, node.Installed), now)
	}
	// Nobody is at it any more, and attempts are left: it waits for its installation.
	if d.Op.Phase == operation.Canceled {
		canceled := node.Install{Attempts: int(m.InstallAttempts), LastError: "CANCELED_BY_REQUEST"}
		if err := setInstall(ctx, q, m, canceled, m.FailedPlanID); err != nil {
			return err
		}
	}
	v := workMove(l, node.Pending)
	if d.Op.Error != nil {
		v.metadata["error"] = d.Op.Error.Code
	}
	return moveTo(ctx, q, m.MachineID, v, now)
}

// installDone makes an installation complete. Only a group that says so promotes the node without a person's word.
func installDone(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, v move, now time.Time) error {
	if err := setInstall(ctx, q, m, node.Install{}, ""); err != nil {
		return err
	}
	if err := moveTo(ctx, q, m.MachineID, v, now); err != nil {
		return err
	}
	g, err := groupOf(ctx, q, m)
	if err != nil || !g.AutoPromote {
		return err
	}
	promote := v
	promote.to, promote.by = node.Active, node.System
	return moveTo(ctx, q, m.MachineID, promote, now)
}

// verifiedByExit promotes an installed node whose operator has taken the machine out of maintenance: that is the manual
// verification, unless the node's group asks for an explicit word.
func verifiedByExit(ctx context.Context, q *dbsqlc.Queries, l *loaded, d operation.Decision, now time.Time) error {
	if d.Op.Phase != operation.Succeeded || node.Parse(l.machine.NodeState) != node.Installed {
		return nil
	}
	g, err := groupOf(ctx, q, l.machine)
	if err != nil || g.ExplicitPromotion {
		return err
	}
	actor, err := q.ActorOfOperation(ctx, dbsqlc.ActorOfOperationParams{MachineID: l.row.TargetID, OperationID: l.row.OperationID})
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read who asked: %w", err)
	}
	v := workMove(l, node.Active)
	v.by, v.user = node.Admin, actor
	return moveTo(ctx, q, l.row.TargetID, v, now)
}

// groupOf reads the policy of a machine's group; that of a group which nobody has set is the default.
func groupOf(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine) (dbsqlc.NodeGroup, error) {
	spec, err := specFromJSON(m.Spec)
	if err != nil || spec.GetGroup() == "" {
		return dbsqlc.NodeGroup{HealthChecks: node.Checks()}, err
	}
	g, err := q.GetNodeGroup(ctx, spec.GetGroup())
	if errors.Is(err, pgx.ErrNoRows) {
		return dbsqlc.NodeGroup{NodeGroup: spec.GetGroup(), HealthChecks: node.Checks()}, nil
	}
	return g, orWhat(err, "read node group")
}

// installFailed counts a failed attempt. After the last one the node leaves installing.
func installFailed(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, v move, why, planID string, now time.Time) error {
	next := node.FailedAttempt(node.Install{State: node.Installing, Attempts: int(m.InstallAttempts)}, why)
	if err := setInstall(ctx, q, m, next, planID); err != nil || next.State == node.Installing {
		return err
	}
	v.to = next.State
	if v.metadata == nil {
		v.metadata = map[string]string{}
	}
	v.metadata["error"], v.metadata["attempt"] = why, fmt.Sprint(next.Attempts)
	return moveTo(ctx, q, m.MachineID, v, now)
}

// setInstall stores how an installation stands, besides the state.
func setInstall(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, i node.Install, planID string) error {
	err := q.SetInstall(ctx, dbsqlc.SetInstallParams{
		MachineID: m.MachineID, InstallAttempts: int32(i.Attempts), LastInstallError: i.LastError, FailedPlanID: planID, NodePlan: installPlan(m),
	})
	if err != nil {
		return fmt.Errorf("record installation: %w", err)
	}
	return nil
}
