package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/node"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/workflow"
)

// ofWorkflow says that operations of the type are attempts of workflows.
func ofWorkflow(t fleet.OperationType) bool { return t == fleet.Onboard || t == fleet.Decommission }

// readWorkflow loads the workflow whose attempt the operation is, and what its stages judge by.
func (l *loaded) readWorkflow(ctx context.Context, q *dbsqlc.Queries, w *operation.World) error {
	if !ofWorkflow(l.snap.Op.Type) {
		return nil
	}
	row, err := q.LockWorkflowOfOperation(ctx, &l.row.OperationID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // an older attempt's late event
	}
	if err != nil {
		return fmt.Errorf("lock workflow: %w", err)
	}
	wf, err := workflowFromRow(row)
	if err != nil {
		return err
	}
	wf.Provider = l.machine.Provider
	l.workflow = &wf
	w.Stage, err = stageFacts(ctx, q, l.machine, wf)
	return err
}

// stageFacts reads what the machine's record says; the decision adds what it knows of agents.
func stageFacts(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, w workflow.Workflow) (workflow.StageFacts, error) {
	f := workflow.StageFacts{Kind: w.Kind, Mode: w.Mode, Evidence: w.Evidence, PowerOff: m.PowerState == "off", CredentialsKnown: true}
	if m.PowerStateAt != nil {
		f.PowerSeenAt = m.PowerStateAt.UTC().Format(time.RFC3339)
	}
	if err := providerFacts(ctx, q, m, &f); err != nil {
		return f, err
	}
	if w.Kind == workflow.Onboarding {
		var err error
		if f.Unhealthy, err = failingChecks(ctx, q, m, true); err != nil {
			return f, err
		}
	}
	spec, err := specFromJSON(m.Spec)
	if err != nil {
		return f, err
	}
	f.Cluster = spec.GetTargetClusterRef()
	if f.ClusterKnown, err = clusterKnown(ctx, q, f.Cluster); err != nil || spec.GetBmcCredentialsRef() == "" {
		return f, err
	}
	if f.CredentialsKnown, err = q.CredentialsKnown(ctx, spec.GetBmcCredentialsRef()); err != nil {
		return f, fmt.Errorf("look for the BMC credentials: %w", err)
	}
	return f, nil
}

// followWorkflow moves the workflow, and the node with it, as the decision on its attempt says.
func (l *loaded) followWorkflow(ctx context.Context, q *dbsqlc.Queries, d operation.Decision, now time.Time) error {
	if l.workflow == nil {
		return nil
	}
	a := workflow.Attempt{Phase: string(d.Op.Phase), Step: d.Op.CurrentStage, Evidence: d.Op.Evidence, Granted: d.Grant}
	if d.Op.Error != nil {
		a.Reason, a.Message = d.Op.Error.Code, d.Op.Error.Message
	}
	w := workflow.Follow(*l.workflow, a)
	if err := l.beginStages(ctx, q, d, now); err != nil {
		return err
	}
	if operation.IsTerminal(d.Op.Phase) {
		if err := endWork(ctx, q, w, "", l.snap.World.TargetAgentLive, now); err != nil {
			return err
		}
	}
	if err := workflowCures(ctx, q, w, now); err != nil {
		return err
	}
	observed, err := observedProviderState(ctx, q, l.machine)
	if err != nil {
		return err
	}
	return saveWorkflow(ctx, q, w, observed, now)
}

// workflowCures takes away what a failed attempt of the workflow has left, once the workflow has ended well or was cancelled.
func workflowCures(ctx context.Context, q *dbsqlc.Queries, w workflow.Workflow, now time.Time) error {
	if workflow.Holds(w.State) {
		return nil
	}
	return cureCauses(ctx, q, w.MachineID, fleet.Happened{Cures: []fleet.Cure{fleet.CuredByWorkflow}}, "WorkflowEnded", now)
}

// beginStages does what belongs to the stages that this decision has begun, or whose own check it has passed.
func (l *loaded) beginStages(ctx context.Context, q *dbsqlc.Queries, d operation.Decision, now time.Time) error {
	for i, s := range d.Op.Steps {
		was := l.snap.Op.Steps[i].State
		begun := was == operation.StepWaiting && s.State != operation.StepWaiting && s.Kind != operation.KindStage
		passed := was != operation.StepSucceeded && s.State == operation.StepSucceeded && s.Kind == operation.KindStage
		if !begun && !passed {
			continue
		}
		stage := workflow.StageOf(l.workflow.Kind, s.Name)
		if err := moveNodeAlong(ctx, q, l.machine.MachineID, l.row.OperationID, "", "", func(m dbsqlc.Machine) []workflow.Move {
			return workflow.At(stage, fleet.NodeState(m.NodeState))
		}, now); err != nil {
			return err
		}
		if stage == workflow.CleanupSecrets {
			if err := forgetSecrets(ctx, q, l.machine, now); err != nil {
				return err
			}
		}
	}
	return nil
}

// endWork leaves the node in a state that nobody needs to work on.
func endWork(ctx context.Context, q *dbsqlc.Queries, w workflow.Workflow, user string, agentLive bool, now time.Time) error {
	why := cmp.Or(w.Reason, "CANCELED_BY_REQUEST")
	if err := setAside(ctx, q, w.MachineID, now); err != nil {
		return err
	}
	return moveNodeAlong(ctx, q, w.MachineID, w.OperationID, user, why, func(m dbsqlc.Machine) []workflow.Move {
		moves := workflow.Ending(w, fleet.NodeState(m.NodeState), agentLive)
		if m.QuarantinedFrom != "" && len(moves) > 0 && moves[0].To == workflow.Offline && !workflow.Terminal(w.State) {
			return []workflow.Move{{To: workflow.Quarantined, By: string(node.System)}} // it drained out of quarantine, and goes back there
		}
		return moves
	}, now)
}

// moveNodeAlong makes the moves that follow from where the node is now. operationID is the attempt that begins or ends with
// them; why is the reason of a quarantine.
func moveNodeAlong(ctx context.Context, q *dbsqlc.Queries, machineID, operationID, user, why string, moves func(dbsqlc.Machine) []workflow.Move, now time.Time) error {
	m, err := q.GetMachine(ctx, machineID)
	if err != nil {
		return fmt.Errorf("read machine: %w", err)
	}
	for _, w := range moves(m) {
		v := move{
			to: node.Parse(string(w.To)), by: node.Trigger(w.By), user: user, ended: operationID, metadata: map[string]string{"operation_id": operationID},
			reason: why,
		}
		if w.To == fleet.Deleted {
			// The stage before has held the evidence of the erasure.
			v.metadata[MetaErasure] = ErasureVerified
		}
		if err := moveTo(ctx, q, machineID, v, now); err != nil {
			return fmt.Errorf("move the node to %s: %w", w.To, err)
		}
	}
	return nil
}

// forgetSecrets ends every identity that the machine was given, and deletes BMC credentials that nobody else uses.
func forgetSecrets(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, now time.Time) error {
	if _, err := q.RevokeCertsOfMachine(ctx, dbsqlc.RevokeCertsOfMachineParams{MachineID: &m.MachineID, Now: &now}); err != nil {
		return fmt.Errorf("revoke certificates: %w", err)
	}
	if _, err := q.RevokeTokensOfMachine(ctx, dbsqlc.RevokeTokensOfMachineParams{MachineID: &m.MachineID, Now: &now}); err != nil {
		return fmt.Errorf("revoke tokens: %w", err)
	}
	spec, err := specFromJSON(m.Spec)
	if err != nil || spec.GetBmcCredentialsRef() == "" {
		return err
	}
	n, err := q.DeleteCredentialsOnlyOf(ctx, dbsqlc.DeleteCredentialsOnlyOfParams{MachineID: m.MachineID, CredentialsRef: spec.GetBmcCredentialsRef()})
	if err != nil {
		return fmt.Errorf("delete BMC credentials: %w", err)
	}
	if n == 0 {
		return nil
	}
	return audit(ctx, q, auditEntry{actor: "workflow", verb: "DELETE_BMC_CREDENTIALS", target: spec.GetBmcCredentialsRef()}, now)
}

// WorkflowViolation is a pair of a workflow and a node state that do not go together.
type WorkflowViolation struct{ WorkflowID, MachineID, Text string }

// WorkflowViolations compares every workflow that holds a machine with the state of its node.
func (s *Store) WorkflowViolations(ctx context.Context) ([]WorkflowViolation, error) {
	var out []WorkflowViolation
	for after := ""; ; {
		rows, err := s.q.OpenWorkflowNodes(ctx, dbsqlc.OpenWorkflowNodesParams{AfterID: after, PageSize: 1000})
		if err != nil {
			return nil, fmt.Errorf("read open workflows: %w", err)
		}
		if len(rows) == 0 {
			return out, nil
		}
		for _, r := range rows {
			w := workflow.Workflow{Kind: workflow.Kind(r.Kind), Mode: workflow.Mode(r.Mode), State: workflow.State(r.State)}
			if text := workflow.Violation(w, fleet.NodeState(r.NodeState)); text != "" {
				out = append(out, WorkflowViolation{r.WorkflowID, r.MachineID, text})
			}
			after = r.WorkflowID
		}
	}
}

// heldByWorkflow says that a node which is on its way in belongs to an onboarding, which says when it has arrived.
func heldByWorkflow(ctx context.Context, q *dbsqlc.Queries, machineID string, state node.State) (bool, error) {
	if state != node.BootstrapIssued && state != node.Enrolling {
		return false, nil
	}
	_, err := q.OpenWorkflowOf(ctx, machineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for an open workflow: %w", err)
	}
	return true, nil
}
