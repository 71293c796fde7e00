package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/decider"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/start"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/controller/store/workflowstate"
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
	// ValidateOnly is DryRun of a machine that is judged as in maintenance.
	ValidateOnly bool
}

// Dry reports whether nothing is stored.
func (r TransitionRequest) Dry() bool { return r.DryRun || r.ValidateOnly }

// onboarding is the workflow that owns a node in the state enrolling: the machine has a system already. The machine
// must be in maintenance: only the operator's own call moves the phase.
func (r TransitionRequest) onboarding() workflowstore.WorkflowStart {
	return workflowstore.WorkflowStart{
		MachineID: r.MachineID, RequestID: r.RequestID, Kind: workflow.Onboarding, Actor: r.Actor,
		Params: map[string]string{workflowstore.ParamPath: workflow.PathAdopt},
	}
}

func (r TransitionRequest) start() operationstore.StartRequest {
	if r.To == node.Enrolling {
		out := r.onboarding().Request()
		out.Comment = r.Comment
		return out
	}
	out := operationstore.StartRequest{
		MachineID: r.MachineID, RequestID: r.RequestID, Type: fleet.NodeTransition, Actor: r.Actor, Comment: r.Comment,
		Params: map[string]string{"node_state": node.Name(r.To)},
	}
	if r.Force {
		out.Params["force"] = "true"
	}
	if r.Purge {
		out.Params["purge"] = "true"
	}
	if w, ok := node.WorkOf(r.To); ok {
		out.Type, out.PlanID = w.Type, w.Plan
		out.Inputs.ImageRef = r.ImageRef
		if r.ImageRef != "" {
			out.Params["image_ref"] = r.ImageRef
		}
	}
	return out
}

// errDryRun takes a transaction back.
var errDryRun = errors.New("nothing is to be stored")

// TransitionNode moves a node by an admin's request, together with the operation that stands for the move. A repeat
// returns the first one's operation. created reports whether the operation is new.
func (s *Store) TransitionNode(
	ctx context.Context, r TransitionRequest, now time.Time,
) (op *baremetalv1.Operation, created bool, err error) {
	if op, err = s.operations.Replay(ctx, s.db.Q, r.start()); op != nil || err != nil {
		return op, false, err
	}
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := q.LockMachine(ctx, r.MachineID)
		if errors.Is(err, pgx.ErrNoRows) {
			return convert.MachineNotFound(r.MachineID)
		}
		if err != nil {
			return fmt.Errorf("lock machine: %w", err)
		}
		if op, err = s.operations.Replay(ctx, q, r.start()); op != nil || err != nil {
			created = false
			return err
		}
		if r.ValidateOnly {
			m = operationstore.Validated(m, r.start().Type)
		}
		if op, created, err = s.transition(ctx, q, m, r, now); err == nil && r.Dry() {
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

func (s *Store) transition(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r TransitionRequest, now time.Time,
) (*baremetalv1.Operation, bool, error) {
	from := node.Parse(m.NodeState)
	v := nodestate.Move{To: r.To, By: node.Admin, User: r.Actor, Comment: r.Comment, Force: r.Force, Purge: r.Purge}
	if from == r.To && node.InProgress(from) {
		return s.resume(ctx, q, m, r, now)
	}
	if r.To == node.Quarantined && from == r.To {
		return s.quarantinedBefore(ctx, q, m, r)
	}
	if r.To == node.Retired {
		v.Ended = pgtx.StrVal(m.CurrentOperationID) // it is cancelled first
	}
	f, err := v.FactsWithPlan(ctx, q, m)
	if err != nil {
		return nil, false, err
	}
	course, err := callOf(m, r, f).Decide()
	switch {
	case err != nil:
		return nil, false, err
	case course == node.RetiresBusy:
		return s.retireBusy(ctx, q, m, r, now)
	case course == node.QuarantinesBusy:
		return s.quarantineBusy(ctx, q, m, r, now)
	case course == node.Worked:
		op, err := s.startWork(ctx, q, m, r, now)
		if err != nil {
			return nil, false, err
		}
		v.Metadata = map[string]string{"operation_id": op.GetOperationId()}
		v.Ended = op.GetOperationId()
		if r.To == node.Enrolling {
			return op, true, nil // its workflow moves it, when it begins
		}
		return op, true, nodestate.MoveTo(ctx, q, m.MachineID, v, now)
	}
	if r.To == node.Retired {
		var err error
		if m, err = workflowstate.CancelOpenWorkflow(ctx, q, m, r.Actor, now); err != nil {
			return nil, false, err
		}
	}
	start := r.start()
	switch {
	case r.To == node.Retired && f.Holds:
		start.Harm = kind.Destroys
	case from == node.Retired && r.To == node.Offline && m.Phase != string(fleet.FactoryReady):
		start.Harm = kind.Interrupts // it is in the inventory again, and out of service until it is IDLE
	}
	op, err := s.record(ctx, q, m, start, v, now)
	return op, err == nil, err
}

func callOf(m dbsqlc.Machine, r TransitionRequest, f node.Facts) node.Call {
	return node.Call{MachineID: m.MachineID, State: m.NodeState, To: r.To, Facts: f,
		ActiveOperation: pgtx.StrVal(m.CurrentOperationID)}
}

// resume starts the work of a node's state: work in progress is the answer, and lost work begins again.
func (s *Store) resume(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r TransitionRequest, now time.Time,
) (*baremetalv1.Operation, bool, error) {
	if m.CurrentOperationID != nil {
		row, err := q.GetOperation(ctx, *m.CurrentOperationID)
		if err != nil {
			return nil, false, fmt.Errorf("read the active operation: %w", err)
		}
		op, err := operationquery.OperationOf(ctx, q, row)
		return op, false, err
	}
	op, err := s.startWork(ctx, q, m, r, now)
	return op, err == nil, err
}

// startWork creates the operation that owns the node while it is in the state.
func (s *Store) startWork(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r TransitionRequest, now time.Time,
) (*baremetalv1.Operation, error) {
	if r.To == node.Enrolling {
		w := r.onboarding()
		w.DryRun = r.Dry()
		return s.workflows.BeginWorkflow(ctx, q, m, w, now)
	}
	w, err := node.MayStart(m.MachineID, r.To)
	if err != nil {
		return nil, err
	}
	start, err := r.work(ctx, q, m, w)
	if err != nil {
		return nil, err
	}
	if !r.Dry() {
		return s.operations.Create(ctx, q, m, start, now)
	}
	fit, err := s.operations.Fits(ctx, q, m, start)
	if err != nil {
		return nil, err
	}
	op, err := s.operations.Create(ctx, q, m, start, now)
	if err != nil {
		return nil, err
	}
	op.Params[operationstore.ParamNotAsked] = strings.Join(fit.NotAsked, "\n")
	return op, nil
}

// work is the request for the operation that owns the node in the state.
func (r TransitionRequest) work(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, w node.Work,
) (start operationstore.StartRequest, err error) {
	start = r.start()
	start.Type, start.PlanID, start.Internal = w.Type, w.Plan, true
	if r.To != node.Draining {
		return start, nil
	}
	holds, err := nodestate.Holds(ctx, q, m)
	if holds {
		start.Harm = kind.Destroys // it ends retired
	}
	return start, err
}

// record moves a node and keeps an operation that has ended with the move, so that a repeat of the request finds it.
func (s *Store) record(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r operationstore.StartRequest, v nodestate.Move,
	now time.Time,
) (*baremetalv1.Operation, error) {
	p, err := catalogstore.GetPlan(ctx, q, fleet.DefaultPlan(fleet.NodeTransition))
	if err != nil {
		return nil, err
	}
	steps, err := plan.Fill(p, r.Inputs, s.catalog.Defaults)
	if err != nil {
		return nil, err
	}
	n, err := s.operations.InsertOperation(ctx, q, m, r, start.Move(r, p, steps), now)
	if err != nil {
		return nil, err
	}
	op := n.Op
	for _, f := range steps {
		op.Steps = append(op.Steps, operation.Step{Name: f.Step.GetName(), Kind: f.Kind,
			State: operation.StepWaiting})
	}
	switch {
	case r.Harm == kind.Harmless:
	case r.Judged:
		err = budgetstore.TakeSlots(ctx, q, []string{op.ID}, now)
	default:
		err = s.budgets.AdmitNow(ctx, q, op.ID, now)
	}
	if err != nil {
		return nil, err
	}
	entry := history.AuditEntry{Actor: r.Actor, Verb: string(r.Type), Target: m.MachineID, Request: r.RequestID,
		Operation: op.ID, Comment: r.Comment, Data: r.Params}
	if err := history.Audit(ctx, q, entry, now); err != nil {
		return nil, err
	}
	v.Metadata, v.Ended = map[string]string{"operation_id": op.ID}, op.ID
	if err := s.recordMove(ctx, q, m, v, now); err != nil {
		return nil, err
	}
	return s.finishRecord(ctx, q, m, op, n.Row, map[string]string{"node_state": node.Name(v.To)}, now)
}

// recordMove makes an admin's move, and what goes with it.
func (s *Store) recordMove(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, v nodestate.Move, now time.Time,
) error {
	if err := nodestate.MoveTo(ctx, q, m.MachineID, v, now); err != nil {
		return err
	}
	switch node.Parse(m.NodeState) {
	case node.InstallFailed:
		if v.To == node.Quarantined {
			break // the attempts stay spent
		}
		if v.To == node.Pending {
			if err := restarted(ctx, q, m, now); err != nil {
				return err
			}
		}
		return nodestate.SetInstall(ctx, q, m, node.Install{}, "")
	}
	if v.To == node.Quarantined {
		return machinestore.RaiseCause(ctx, q, m.MachineID, "",
			machinestore.QuarantineCause("MACHINE_QUARANTINED", quarantinedBy(v, m.NodeState)), now)
	}
	return nil
}

// restarted takes away what the spent attempts have left: the admin's other plan is the answer to them.
func restarted(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, now time.Time) error {
	h := fleet.Happened{Cures: []fleet.Cure{fleet.CuredByRestart}, Subject: m.FailedPlanID}
	return machinestore.CureCauses(ctx, q, m.MachineID, h, "Restarted", now)
}

func quarantinedBy(v nodestate.Move, from string) string {
	if v.By == node.System {
		return "the node was " + from + ", which stands for work, and no operation did it"
	}
	return "quarantined by an admin"
}

// finishRecord ends an operation that has just been created.
func (s *Store) finishRecord(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, op operation.Operation, row dbsqlc.Operation,
	evidence map[string]string, now time.Time,
) (*baremetalv1.Operation, error) {
	l := &operationstore.OperationContext{Machine: m, Row: row, Snap: operation.Snapshot{Op: op}}
	l.Row.EventSeq = 1
	d := decider.Instant(op, evidence, now)
	out, err := operationstore.Apply(ctx, q, l, d, now)
	if err != nil {
		return nil, err
	}
	row.Version = out.Version
	return convert.OperationMessage(row, d.Op), nil
}
