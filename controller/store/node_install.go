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
	"github.com/ingot-metal/ingot/internal/failure"
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

// mayInstall refuses an installation of a node whose attempts are spent: an admin must look first.
func mayInstall(m dbsqlc.Machine, t fleet.OperationType, steps []plan.Filled) error {
	if !installs(t, filledKinds(steps)...) || node.Parse(m.NodeState) != node.InstallFailed {
		return nil
	}
	return failure.Precondition("NODE_GUARD_FAILED",
		"%d install attempts of machine %s have failed; assign another plan (UpdateNode), then move it to pending with force (TransitionNode)",
		m.InstallAttempts, m.MachineID).WithMeta("machine_id", m.MachineID).WithMeta("node_state", m.NodeState)
}

// approvesByInstalling says that nobody has approved the node yet: whoever asks for its installation approves it.
func approvesByInstalling(m dbsqlc.Machine, r StartRequest, steps []plan.Filled) bool {
	return installs(r.Type, filledKinds(steps)...) && node.Parse(m.NodeState) == node.Discovered
}

// approveByInstalling moves such a node to pending.
func approveByInstalling(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, operationID string, now time.Time) error {
	return moveTo(ctx, q, m.MachineID, move{
		to: node.Pending, by: node.Admin, user: r.Actor, comment: r.Comment, metadata: map[string]string{"operation_id": operationID},
	}, now)
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
	return setInstall(ctx, q, l.machine.MachineID, node.Install{}, "")
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
		if err := setInstall(ctx, q, m.MachineID, canceled, m.FailedPlanID); err != nil {
			return err
		}
	}
	v := workMove(l, node.Pending)
	if d.Op.Error != nil {
		v.metadata["error"] = d.Op.Error.Code
	}
	return moveTo(ctx, q, m.MachineID, v, now)
}

// installDone makes an installation complete and promotes the node where nobody need look at it first: its group says so,
// or an operation has verified the image of a node that was in service before, and its group does not say otherwise.
func installDone(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, v move, now time.Time) error {
	if err := setInstall(ctx, q, m.MachineID, node.Install{}, ""); err != nil {
		return err
	}
	if err := moveTo(ctx, q, m.MachineID, v, now); err != nil {
		return err
	}
	by, err := promoter(ctx, q, m, v.by)
	if err != nil || by == "" {
		return err
	}
	promote := v
	promote.to, promote.by = node.Active, by
	return moveTo(ctx, q, m.MachineID, promote, now)
}

func promoter(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, installer node.Trigger) (node.Trigger, error) {
	spec, err := specFromJSON(m.Spec)
	if err != nil {
		return "", err
	}
	g, err := q.GetNodeGroup(ctx, spec.GetGroup())
	switch {
	case err == nil && g.AutoPromote:
		return node.System, nil
	case err == nil:
		return "", nil
	case !errors.Is(err, pgx.ErrNoRows):
		return "", fmt.Errorf("read node group: %w", err)
	case installer != node.Workflow:
		return "", nil
	}
	before, err := q.EverActive(ctx, m.MachineID)
	if err != nil {
		return "", fmt.Errorf("read node history: %w", err)
	}
	if before {
		return node.Workflow, nil
	}
	return "", nil
}

// installFailed counts a failed attempt. After the last one the node leaves installing.
func installFailed(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, v move, why, planID string, now time.Time) error {
	next := node.FailedAttempt(node.Install{State: node.Installing, Attempts: int(m.InstallAttempts)}, why)
	if err := setInstall(ctx, q, m.MachineID, next, planID); err != nil || next.State == node.Installing {
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
func setInstall(ctx context.Context, q *dbsqlc.Queries, machineID string, i node.Install, planID string) error {
	err := q.SetInstall(ctx, dbsqlc.SetInstallParams{
		MachineID: machineID, InstallAttempts: int32(i.Attempts), LastInstallError: i.LastError, FailedPlanID: planID,
	})
	if err != nil {
		return fmt.Errorf("record installation: %w", err)
	}
	return nil
}
