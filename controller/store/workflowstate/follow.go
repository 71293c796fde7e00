package workflowstate

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/convert"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
)

// OfWorkflow reports whether operations of the type are attempts of workflows.
func OfWorkflow(t fleet.OperationType) bool { return t == fleet.Onboard || t == fleet.Decommission }

// StageFacts reads the facts of the machine's record; the decision adds those of agents.
func StageFacts(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, w workflow.Workflow,
) (workflow.StageFacts, error) {
	f := workflow.StageFacts{Kind: w.Kind, Mode: w.Mode, Evidence: w.Evidence, PowerOff: m.PowerState == "off",
		CredentialsKnown: true}
	if m.PowerStateAt != nil {
		f.PowerSeenAt = m.PowerStateAt.UTC().Format(time.RFC3339)
	}
	if err := nodestate.ProviderFacts(ctx, q, m, &f); err != nil {
		return f, err
	}
	if w.Kind == workflow.Onboarding {
		var err error
		if f.Unhealthy, err = nodestate.FailingChecks(ctx, q, m, true); err != nil {
			return f, err
		}
	}
	spec, err := convert.SpecFromJSON(m.Spec)
	if err != nil {
		return f, err
	}
	f.Cluster = spec.GetTargetClusterRef()
	if f.ClusterKnown, err = credentialstore.ClusterKnown(ctx, q, f.Cluster); err != nil ||
		spec.GetBmcCredentialsRef() == "" {
		return f, err
	}
	if f.CredentialsKnown, err = q.CredentialsKnown(ctx, spec.GetBmcCredentialsRef()); err != nil {
		return f, fmt.Errorf("look for the BMC credentials: %w", err)
	}
	return f, nil
}

// WorkflowCures takes away what a failed attempt of the workflow has left, once the workflow has ended well or was
// cancelled.
func WorkflowCures(ctx context.Context, q *dbsqlc.Queries, w workflow.Workflow, now time.Time) error {
	if workflow.Holds(w.State) {
		return nil
	}
	return machinestore.CureCauses(ctx, q, w.MachineID, fleet.Happened{Cures: []fleet.Cure{fleet.CuredByWorkflow}},
		"WorkflowEnded", now)
}

// EndWork leaves the node in a state that needs no work.
func EndWork(
	ctx context.Context, q *dbsqlc.Queries, w workflow.Workflow, user string, agentLive bool, now time.Time,
) error {
	why := cmp.Or(w.Reason, "CANCELED_BY_REQUEST")
	if err := nodestate.SetAside(ctx, q, w.MachineID, now); err != nil {
		return err
	}
	return MoveNodeAlong(ctx, q, w.MachineID, w.OperationID, user, why, func(m dbsqlc.Machine) []workflow.Move {
		moves := workflow.Ending(w, fleet.NodeState(m.NodeState), agentLive)
		if m.QuarantinedFrom != "" && len(moves) > 0 && moves[0].To == fleet.Offline && !workflow.Terminal(w.State) {
			// it drained out of quarantine, and goes back there
			return []workflow.Move{{To: fleet.Quarantined, By: string(node.System)}}
		}
		return moves
	}, now)
}

// MoveNodeAlong makes the moves that follow from where the node is now. operationID is the attempt that begins or ends
// with them; why is the reason of a quarantine.
func MoveNodeAlong(
	ctx context.Context, q *dbsqlc.Queries, machineID, operationID, user, why string,
	moves func(dbsqlc.Machine) []workflow.Move, now time.Time,
) error {
	m, err := q.GetMachine(ctx, machineID)
	if err != nil {
		return fmt.Errorf("read machine: %w", err)
	}
	for _, w := range moves(m) {
		v := nodestate.Move{
			To: node.Parse(string(w.To)), By: node.Trigger(w.By), User: user, Ended: operationID,
			Metadata: map[string]string{"operation_id": operationID},
			Reason:   why,
		}
		if w.To == fleet.Deleted {
			// The stage before has held the evidence of the erasure.
			v.Metadata[nodestate.MetaErasure] = nodestate.ErasureVerified
		}
		if err := nodestate.MoveTo(ctx, q, machineID, v, now); err != nil {
			return fmt.Errorf("move the node to %s: %w", w.To, err)
		}
	}
	return nil
}

// ForgetSecrets ends every identity that the machine was given, and deletes BMC credentials that no other machine uses.
func ForgetSecrets(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, now time.Time) error {
	if _, err := q.RevokeCertsOfMachine(ctx, dbsqlc.RevokeCertsOfMachineParams{MachineID: &m.MachineID,
		Now: &now}); err != nil {
		return fmt.Errorf("revoke certificates: %w", err)
	}
	if _, err := q.RevokeTokensOfMachine(ctx, dbsqlc.RevokeTokensOfMachineParams{MachineID: &m.MachineID,
		Now: &now}); err != nil {
		return fmt.Errorf("revoke tokens: %w", err)
	}
	spec, err := convert.SpecFromJSON(m.Spec)
	if err != nil || spec.GetBmcCredentialsRef() == "" {
		return err
	}
	n, err := q.DeleteCredentialsOnlyOf(ctx, dbsqlc.DeleteCredentialsOnlyOfParams{MachineID: m.MachineID,
		CredentialsRef: spec.GetBmcCredentialsRef()})
	if err != nil {
		return fmt.Errorf("delete BMC credentials: %w", err)
	}
	if n == 0 {
		return nil
	}
	return history.Audit(ctx, q, history.AuditEntry{Actor: "workflow", Verb: "DELETE_BMC_CREDENTIALS",
		Target: spec.GetBmcCredentialsRef()}, now)
}

// WorkflowViolation is a pair of a workflow and a node state that do not go together.
type WorkflowViolation struct{ WorkflowID, MachineID, Text string }

// WorkflowViolations compares every workflow that holds a machine with the state of its node.
func (s *Store) WorkflowViolations(ctx context.Context) ([]WorkflowViolation, error) {
	var out []WorkflowViolation
	for after := ""; ; {
		rows, err := s.db.Q.OpenWorkflowNodes(ctx, dbsqlc.OpenWorkflowNodesParams{AfterID: after, PageSize: 1000})
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
