package nodestate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// The key of a move's metadata for the state of the disks, which removing → deleted requires.
const (
	MetaErasure        = "erasure"
	ErasureVerified    = "verified"
	ErasureNotRequired = "not_required"
)

// Move is one change of a node's state.
type Move struct {
	To node.State
	By node.Trigger
	// User is the opaque name of the caller; Comment is free text and goes into the audit log.
	User, Comment string
	Metadata      map[string]string
	Force         bool
	// Deleting: DeleteMachine asks. Purge: an admin leaves out the decommission.
	Deleting, Purge bool
	// Installs: an operator asks for another installation, which is the new plan and the force that the guard wants.
	Installs bool
	// Reason of a quarantine.
	Reason string
	// Ended names the operation that ends with this move: it no longer blocks other work.
	Ended string
	// AuditID is the audit row that has the comment already; nil where it is still to be written.
	AuditID *int64
}

// Moved is a change of a node's state, as a transaction notes it.
type Moved struct {
	machineID, from string
	Move
}

func (m Moved) Log(log *slog.Logger) {
	log.Info("node moved", "machine_id", m.machineID, "from", m.from, "to", node.Name(m.To), "triggered_by", string(m.By),
		"user_id", m.User, "operation_id", m.Metadata["operation_id"], "reason", m.Metadata["reason"])
}

// MoveNode changes the state of a node by the table of package node, in the caller's transaction, and logs it. A node
// that is in the state stays as it is. Moving to deleted leaves a tombstone; it takes metadata on the state of the
// disks.
func MoveNode(
	ctx context.Context, q *dbsqlc.Queries, machineID string, to node.State, by node.Trigger, userID, comment string,
	metadata map[string]string, now time.Time,
) error {
	return MoveTo(ctx, q, machineID, Move{To: to, By: by, User: userID, Comment: comment, Metadata: metadata}, now)
}

func MoveTo(ctx context.Context, q *dbsqlc.Queries, machineID string, v Move, now time.Time) error {
	m, err := q.LockMachine(ctx, machineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return convert.MachineNotFound(machineID)
	}
	if err != nil {
		return fmt.Errorf("lock machine: %w", err)
	}
	from := node.Parse(m.NodeState)
	if from == v.To {
		return nil
	}
	f, err := v.FactsWithPlan(ctx, q, m)
	if err != nil {
		return err
	}
	if _, refusal := node.Check(from, v.To, v.By, f); refusal != nil {
		return NodeRefused(m, refusal)
	}
	if err := logMove(ctx, q, m, v, now); err != nil {
		return err
	}
	pgtx.NotesOf(q).Note(Moved{machineID, m.NodeState, v})
	if v.To == node.Deleted {
		return bury(ctx, q, m, now)
	}
	if err := q.SetNodeState(ctx, dbsqlc.SetNodeStateParams{
		MachineID: machineID, NodeState: node.Name(v.To),
		Reason: cmp.Or(v.Reason, v.Metadata["reason"], "MACHINE_QUARANTINED"), Now: now,
	}); err != nil {
		return fmt.Errorf("set node state: %w", err)
	}
	if err := followQuarantine(ctx, q, m, from, v, now); err != nil {
		return err
	}
	if err := followAdoption(ctx, q, m, from, v, now); err != nil {
		return err
	}
	if err := v.followProvider(ctx, q, m, now); err != nil {
		return err
	}
	return followRetirement(ctx, q, machineID, from, v.To, now)
}

// followProvider compares the state at the machine's provider with the new state, unless work made the move:
// observations before or during that work are of another state.
func (v Move) followProvider(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, now time.Time) error {
	if v.Ended != "" {
		return SetAside(ctx, q, m.MachineID, now)
	}
	return driftFollows(ctx, q, m, v.To, now)
}

// followQuarantine keeps the cause of a quarantine with the state. Those who know more of the cause say it afterwards.
func followQuarantine(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, from node.State, v Move, now time.Time,
) error {
	switch node.Quarantined {
	case v.To:
		return machinestore.RaiseCause(ctx, q, m.MachineID, "",
			machinestore.QuarantineCause(cmp.Or(v.Reason, v.Metadata["reason"], "MACHINE_QUARANTINED"),
				"the node is quarantined"), now)
	case from:
		released := fleet.Happened{Cures: []fleet.Cure{fleet.CuredByRelease}}
		return machinestore.CureCauses(ctx, q, m.MachineID, released, "Released", now)
	}
	return nil
}

// followAdoption records the system that a machine in service runs: the one that it has enrolled with, or the one that
// an installer of others has reported and that an admin has verified.
func followAdoption(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, from node.State, v Move, now time.Time,
) error {
	p := dbsqlc.AdoptParams{MachineID: m.MachineID, Now: now}
	switch {
	case v.To != node.Active:
		return nil
	case from == node.Enrolling && m.AgentID != nil:
		p.Reason = "Adopted"
	case from == node.Installed && v.By == node.Admin:
		p.Reason, p.Message = "VerifiedByAdmin", v.User
	default:
		return nil
	}
	return pgtx.Wrap(q.Adopt(ctx, p), "record the adopted system")
}

// facts reads what guards look at.
func (v Move) facts(m dbsqlc.Machine) node.Facts {
	f := node.Facts{
		Attempts: int(m.InstallAttempts), PlanID: InstallPlan(m), FailedPlanID: m.FailedPlanID, Force: v.Force,
		Deleting: v.Deleting,
		Installs: v.Installs,
		Purge:    v.Purge, Comment: v.Comment != "", From: node.Parse(m.QuarantinedFrom),
		ErasureRequired: v.Metadata[MetaErasure] != ErasureNotRequired,
		ErasureVerified: v.Metadata[MetaErasure] == ErasureVerified,
	}
	if op := pgtx.StrVal(m.CurrentOperationID); op != v.Ended {
		f.ActiveOperation = op
	}
	return f
}

// FactsWithPlan adds to facts whether a node whose installation has failed has another plan now: one that was assigned
// since, and does other work than the one that failed. A plan of another name with the same steps is the same plan.
func (v Move) FactsWithPlan(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine) (node.Facts, error) {
	f := v.facts(m)
	if v.By == node.Admin && node.Gone(v.To) {
		var err error
		if f.Holds, err = Holds(ctx, q, m); err != nil {
			return f, err
		}
	}
	if node.Parse(m.NodeState) != node.InstallFailed || v.To != node.Pending {
		return f, nil
	}
	for _, old := range []string{m.FailedPlanID, m.FailedNodePlan} {
		same, err := catalogstore.SameSteps(ctx, q, f.PlanID, old)
		if err != nil {
			return f, err
		}
		if same {
			f.FailedPlanID = f.PlanID
		}
	}
	return f, nil
}

// Holds reports whether the disks of a machine hold a system that work ran on, or may have.
func Holds(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine) (bool, error) {
	conds, err := q.ConditionsOf(ctx, []string{m.MachineID})
	if err != nil {
		return false, fmt.Errorf("read conditions: %w", err)
	}
	return node.Holds(node.Parse(m.NodeState), node.Parse(m.QuarantinedFrom),
		convert.FleetFacts(m, conds).Conditions[fleet.Provisioned]), nil
}

// InstallPlan is the plan that a reimage of the machine runs where it names none.
func InstallPlan(m dbsqlc.Machine) string {
	if m.Provider == workflow.ProviderMAAS {
		return pgtx.OrText(pgtx.StrVal(m.PlanID), plan.RepaveMAAS)
	}
	return pgtx.OrText(pgtx.StrVal(m.PlanID), fleet.DefaultPlan(fleet.Reimage))
}

func NodeRefused(m dbsqlc.Machine, r *fleet.Refusal) error {
	return node.Refused(m.MachineID, m.NodeState, r)
}

// logMove records the actor and the reason of the next change of state for the node_state_log: the row itself is
// written with the state, by its trigger. Free text goes to the audit log.
func logMove(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, v Move, now time.Time) error {
	metadata, err := pgtx.JSONMap(v.Metadata)
	if err != nil {
		return err
	}
	p := dbsqlc.InsertNodeStateLogParams{
		MachineID: m.MachineID, FromState: m.NodeState, ToState: node.Name(v.To), TriggeredBy: string(v.By), UserID: v.User,
		Metadata: metadata, Now: now, AuditID: v.AuditID,
	}
	if v.Comment != "" {
		data := map[string]string{"from": m.NodeState, "to": node.Name(v.To)}
		id, err := history.AuditID(ctx, q, history.AuditEntry{
			Actor: pgtx.OrText(v.User, string(v.By)), Verb: "NODE_STATE", Target: m.MachineID, Comment: v.Comment, Data: data,
		}, now)
		if err != nil {
			return err
		}
		p.AuditID = &id
	}
	if err := q.InsertNodeStateLog(ctx, p); err != nil {
		return fmt.Errorf("log node state: %w", err)
	}
	return nil
}

// followRetirement keeps the condition Retired with the states that are out of the inventory.
func followRetirement(
	ctx context.Context, q *dbsqlc.Queries, machineID string, from, to node.State, now time.Time,
) error {
	if node.Gone(from) == node.Gone(to) {
		return nil
	}
	if node.Gone(to) { // it is out of no service any more
		if _, err := q.ReleaseSlotOfMachine(ctx, dbsqlc.ReleaseSlotOfMachineParams{MachineID: machineID, Now: &now,
			Harms: []string{kind.Interrupts.String()}}); err != nil {
			return fmt.Errorf("give slots of interruptions back: %w", err)
		}
	}
	return machinestore.SetCondition(ctx, q, machineID, operation.ConditionChange{
		Type: fleet.RetiredFlag, Status: node.Gone(to), Reason: "NodeState", Message: "the node is " + node.Name(to),
	}, now)
}

// MoveAlong makes several moves, one after the other.
func MoveAlong(
	ctx context.Context, q *dbsqlc.Queries, machineID string, v Move, now time.Time, states ...node.State,
) error {
	for _, to := range states {
		step := v
		step.To = to
		step.Metadata = maps.Clone(v.Metadata)
		if err := MoveTo(ctx, q, machineID, step, now); err != nil {
			return err
		}
	}
	return nil
}

// bury takes a machine out of the inventory for good. Its addresses are free for another record.
func bury(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, now time.Time) error {
	if err := q.DeleteMachineMacs(ctx, dbsqlc.DeleteMachineMacsParams{MachineID: m.MachineID,
		Keep: []string{}}); err != nil {
		return fmt.Errorf("free MAC addresses: %w", err)
	}
	if err := q.TombstoneMachine(ctx, dbsqlc.TombstoneMachineParams{MachineID: m.MachineID, Now: &now}); err != nil {
		return fmt.Errorf("delete machine: %w", err)
	}
	if m.AgentID == nil {
		return nil
	}
	if _, err := q.RevokeCerts(ctx, dbsqlc.RevokeCertsParams{AgentID: *m.AgentID, Now: &now}); err != nil {
		return fmt.Errorf("revoke certificates: %w", err)
	}
	return nil
}
