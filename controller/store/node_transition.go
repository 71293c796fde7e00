package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/node"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/plan"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/workflow"
	"github.com/ingot-metal/ingot/internal/failure"
)

// TransitionRequest asks to move a node.
type TransitionRequest struct {
	MachineID, RequestID string
	To                   node.State
	Force                bool
	// Purge retires a node that is in service without a decommission.
	Purge          bool
	ImageRef       string
	Actor, Comment string
	// DryRun answers what would happen and changes nothing.
	DryRun bool
}

// onboarding is the workflow whose work a node that enrols stands for: the machine has a system already.
func (r TransitionRequest) onboarding() WorkflowStart {
	return WorkflowStart{
		MachineID: r.MachineID, RequestID: r.RequestID, Kind: workflow.Onboarding, EnterMaintenance: true, Actor: r.Actor,
		Params: map[string]string{ParamPath: workflow.PathAdopt},
	}
}

func (r TransitionRequest) start() StartRequest {
	if r.To == node.Enrolling {
		out := r.onboarding().request()
		out.Comment = r.Comment
		return out
	}
	out := StartRequest{
		MachineID: r.MachineID, RequestID: r.RequestID, Type: fleet.NodeTransition, Actor: r.Actor, Comment: r.Comment,
		Params: map[string]string{"node_state": node.Name(r.To)},
	}
	if r.Force {
		out.Params["force"] = "true"
	}
	if r.Purge {
		out.Params["purge"] = "true"
	}
	if w, ok := nodeWork[r.To]; ok {
		out.Type, out.PlanID = w.kind, w.plan
		out.Inputs.ImageRef = r.ImageRef
		if r.ImageRef != "" {
			out.Params["image_ref"] = r.ImageRef
		}
	}
	return out
}

// nodeWork is the work that a state stands for, where an admin's move starts it.
var nodeWork = map[node.State]struct {
	kind fleet.OperationType
	plan string
}{
	node.Reprovision:    {kind: fleet.Reimage},
	node.Deprovisioning: {kind: fleet.RunPlan, plan: "erase"},
	node.Migrating:      {kind: fleet.RMAType, plan: "replace"},
	node.Draining:       {kind: fleet.RunPlan, plan: drainPlan},
}

// errDryRun takes a transaction back.
var errDryRun = errors.New("nothing is to be stored")

// TransitionNode moves a node by an admin's word, together with the operation that stands for the move. A repeat returns
// the first one's operation. created says that the operation is new.
func (s *Store) TransitionNode(ctx context.Context, r TransitionRequest, now time.Time) (op *baremetalv1.Operation, created bool, err error) {
	if op, err = s.replay(ctx, s.q, r.start()); op != nil || err != nil {
		return op, false, err
	}
	err = s.inTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := q.LockMachine(ctx, r.MachineID)
		if errors.Is(err, pgx.ErrNoRows) {
			return machineNotFound(r.MachineID)
		}
		if err != nil {
			return fmt.Errorf("lock machine: %w", err)
		}
		if op, err = s.replay(ctx, q, r.start()); op != nil || err != nil {
			created = false
			return err
		}
		if op, created, err = s.transition(ctx, q, m, r, now); err == nil && r.DryRun {
			return errDryRun
		}
		return err
	})
	if errors.Is(err, errDryRun) {
		op.OperationId, created, err = "", false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("move node: %w", err)
	}
	return op, created, nil
}

func (s *Store) transition(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r TransitionRequest, now time.Time) (*baremetalv1.Operation, bool, error) {
	from := node.Parse(m.NodeState)
	v := move{to: r.To, by: node.Admin, user: r.Actor, comment: r.Comment, force: r.Force, purge: r.Purge}
	if from == r.To && node.InProgress(from) {
		return s.resume(ctx, q, m, r, now)
	}
	if r.To == node.Quarantined && from == r.To {
		return s.quarantinedBefore(ctx, q, m, r)
	}
	if r.To == node.Retired {
		v.ended = strVal(m.CurrentOperationID) // it is cancelled first
	}
	f, err := v.factsWithPlan(ctx, q, m)
	if err != nil {
		return nil, false, err
	}
	row, refusal := node.Check(from, r.To, node.Admin, f)
	switch {
	case refusal != nil:
		return nil, false, nodeRefused(m, refusal)
	case m.CurrentOperationID != nil && r.To == node.Retired:
		return s.retireBusy(ctx, q, m, r, now)
	case m.CurrentOperationID != nil && r.To == node.Quarantined:
		return s.quarantineBusy(ctx, q, m, r, now)
	case m.CurrentOperationID != nil:
		return nil, false, nodeBusy(m)
	case row.Work:
		op, err := s.startWork(ctx, q, m, r, now)
		if err != nil {
			return nil, false, err
		}
		v.metadata = map[string]string{"operation_id": op.GetOperationId()}
		v.ended = op.GetOperationId()
		if r.To == node.Enrolling {
			return op, true, nil // its workflow moves it, when it begins
		}
		return op, true, moveTo(ctx, q, m.MachineID, v, now)
	}
	if r.To == node.Retired {
		var err error
		if m, err = cancelOpenWorkflow(ctx, q, m, r.Actor, now); err != nil {
			return nil, false, err
		}
	}
	op, err := s.record(ctx, q, m, r.start(), v, now)
	return op, err == nil, err
}

func nodeBusy(m dbsqlc.Machine) error {
	return failure.Precondition("MACHINE_BUSY", "operation %s is active on the machine; wait for it or cancel it first", *m.CurrentOperationID).
		WithMeta("machine_id", m.MachineID).WithMeta("active_operation_id", *m.CurrentOperationID)
}

// resume gives a node that is in a state of work the work that the state stands for: what is under way already is the
// answer, and what was lost begins again.
func (s *Store) resume(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r TransitionRequest, now time.Time) (*baremetalv1.Operation, bool, error) {
	if m.CurrentOperationID != nil {
		row, err := q.GetOperation(ctx, *m.CurrentOperationID)
		if err != nil {
			return nil, false, fmt.Errorf("read the active operation: %w", err)
		}
		op, err := s.operationOf(ctx, q, row)
		return op, false, err
	}
	op, err := s.startWork(ctx, q, m, r, now)
	return op, err == nil, err
}

// startWork creates the operation that owns the node while it is in the state.
func (s *Store) startWork(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r TransitionRequest, now time.Time) (*baremetalv1.Operation, error) {
	if r.To == node.Enrolling {
		return s.beginWorkflow(ctx, q, m, r.onboarding(), now)
	}
	w, ok := nodeWork[r.To]
	if r.To == node.Installing {
		w, ok = nodeWork[node.Reprovision], true
	}
	if !ok {
		return nil, failure.Precondition("NODE_GUARD_FAILED", "%s", noWork(r.To)).WithMeta("machine_id", m.MachineID)
	}
	start := r.start()
	start.Type, start.PlanID, start.own = w.kind, w.plan, true
	return s.create(ctx, q, m, start, now)
}

// drainPlan is the plan of a drain that an admin's move starts.
const drainPlan = "drain"

// drainOf names the plan by which a machine drains: one that is in no cluster has nothing to drain.
func drainOf(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine) (string, error) {
	conds, err := q.ConditionsOf(ctx, []string{m.MachineID})
	if err != nil {
		return "", fmt.Errorf("read conditions: %w", err)
	}
	spec, err := specFromJSON(m.Spec)
	if err != nil || spec.GetTargetClusterRef() != "" || factsOf(m, conds).Conditions[fleet.InCustomerCluster] {
		return drainPlan, err
	}
	return plan.DrainNone, nil
}

func noWork(to node.State) string {
	return "a decommission workflow moves a node to " + node.Name(to)
}

// record moves a node and keeps an operation that has ended with the move, so that a repeat of the request finds it.
func (s *Store) record(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, v move, now time.Time) (*baremetalv1.Operation, error) {
	p, err := getPlan(ctx, q, fleet.DefaultPlan(fleet.NodeTransition))
	if err != nil {
		return nil, err
	}
	steps, err := plan.Fill(p, r.Inputs, s.defaults)
	if err != nil {
		return nil, err
	}
	n, err := s.insertOperation(ctx, q, m, r, p, steps, now)
	if err != nil {
		return nil, err
	}
	op := n.op
	for _, f := range steps {
		op.Steps = append(op.Steps, operation.Step{Name: f.Step.GetName(), Kind: operation.Kind(f.Kind), State: operation.StepWaiting})
	}
	entry := auditEntry{actor: r.Actor, verb: string(r.Type), target: m.MachineID, request: r.RequestID, operation: op.ID, comment: r.Comment, data: r.Params}
	if err := audit(ctx, q, entry, now); err != nil {
		return nil, err
	}
	v.metadata, v.ended = map[string]string{"operation_id": op.ID}, op.ID
	if err := s.recordMove(ctx, q, m, v, now); err != nil {
		return nil, err
	}
	return s.finishRecord(ctx, q, m, op, n.row, map[string]string{"node_state": node.Name(v.to)}, now)
}

// recordMove makes an admin's move, and what goes with it.
func (s *Store) recordMove(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, v move, now time.Time) error {
	if err := moveTo(ctx, q, m.MachineID, v, now); err != nil {
		return err
	}
	switch node.Parse(m.NodeState) {
	case node.InstallFailed:
		if v.to == node.Quarantined {
			break // the attempts stay spent
		}
		return setInstall(ctx, q, m, node.Install{}, "")
	}
	if v.to == node.Quarantined {
		return raiseCause(ctx, q, m.MachineID, "", quarantineCause("MACHINE_QUARANTINED", quarantinedBy(v, m.NodeState)), now)
	}
	return nil
}

func quarantinedBy(v move, from string) string {
	if v.by == node.System {
		return "the node was " + from + ", which stands for work, and nobody did it"
	}
	return "quarantined by an admin"
}

// finishRecord ends an operation that has just been created.
func (s *Store) finishRecord(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, op operation.Operation, row dbsqlc.Operation, evidence map[string]string, now time.Time) (*baremetalv1.Operation, error) {
	l := &loaded{machine: m, row: row, snap: operation.Snapshot{Op: op}}
	l.row.EventSeq = 1
	d := operation.Record(op, evidence, now)
	out, err := apply(ctx, q, l, d, now)
	if err != nil {
		return nil, err
	}
	row.Version = out.Version
	return operationMessage(row, d.Op), nil
}
