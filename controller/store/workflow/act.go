package workflow

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
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/start"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/store/startfacts"
	"github.com/ingot-metal/ingot/controller/store/workflowstate"
	"github.com/ingot-metal/ingot/internal/failure"
)

// stalledAfter is how long the look at an attempt may be overdue before its workflow counts as stalled. The sweep looks
// once a second.
const stalledAfter = time.Minute

// WorkflowAct is one operator action.
type WorkflowAct struct {
	WorkflowID, RequestID string
	Action                workflow.Action
	Comment, Actor        string
	// DryRun decides and changes nothing.
	DryRun bool
	// ValidateOnly is DryRun of a machine that is judged as in maintenance.
	ValidateOnly bool
	// Inputs of the attempt, from the workflow's params.
	Inputs func(params map[string]string) (kind.Inputs, error)
}

// dry reports whether nothing is stored.
func (r WorkflowAct) dry() bool { return r.DryRun || r.ValidateOnly }

// Acted is what an action did.
type Acted struct {
	// Operation is the attempt as it is afterwards; of a dry run that would make one, it has no id.
	Operation *baremetalv1.Operation
	Text      string
	// Created is set when an operation was made; Applied has the messages of a cancelled one to agents.
	Created bool
	Applied *operationstore.Applied
}

// ActOnWorkflow takes an operator's action. It is idempotent: an action that is under way or done is not taken twice.
func (s *Store) ActOnWorkflow(ctx context.Context, r WorkflowAct, now time.Time) (*Acted, error) {
	var out *Acted
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if out, err = s.act(ctx, q, r, now); err != nil {
			return err
		}
		if r.dry() {
			return errForetold
		}
		return operationstore.FailpointBeforeCommit.HitCtx(ctx)
	})
	if errors.Is(err, errForetold) {
		return out, nil
	}
	if pgtx.UniqueViolation(err, "workflows_one_open") {
		err = failure.Precondition("WORKFLOW_ACTIVE", "another workflow holds the machine; end it first")
	}
	if err != nil {
		return nil, fmt.Errorf("act on workflow: %w", err)
	}
	return out, nil
}

func (s *Store) act(ctx context.Context, q *dbsqlc.Queries, r WorkflowAct, now time.Time) (*Acted, error) {
	row, m, err := workflowstate.LockWorkflow(ctx, q, r.WorkflowID)
	if err != nil {
		return nil, err
	}
	w, err := workflowstate.WorkflowFromRow(row)
	if err != nil {
		return nil, err
	}
	w.Provider = m.Provider
	request := operationstore.StartRequest{
		MachineID: m.MachineID, RequestID: r.RequestID, Type: operationTypes[w.Kind], Actor: r.Actor, Comment: r.Comment,
		Params: map[string]string{"mode": string(w.Mode), "workflow_id": w.ID, "action": strings.ToLower(string(r.Action))},
	}
	if op, err := s.operations.Replay(ctx, q, request); op != nil || err != nil {
		return &Acted{Operation: op, Text: "nothing: this request has been taken before"}, err
	}
	f, err := actFacts(ctx, q, m, w, now)
	if err != nil {
		return nil, err
	}
	e, refusal := workflow.Act(w, r.Action, f)
	if refusal != nil {
		return nil, refusal.Failure().WithMeta("workflow_id",
			w.ID).WithMeta("machine_id", m.MachineID)
	}
	if r.Inputs != nil {
		if request.Inputs, err = r.Inputs(convert.JSONToMap(row.Params)); err != nil {
			return nil, err
		}
	}
	if e.Nothing {
		return s.foretold(ctx, q, w, e, operationstore.Fit{}, r.dry())
	}
	next := next{from: w.State, effect: e, request: request, validateOnly: r.ValidateOnly}
	if e.Attempt {
		if err := s.nextFits(ctx, q, &next, now); err != nil {
			return nil, err
		}
	}
	if r.dry() {
		return s.foretold(ctx, q, w, e, next.fit, true)
	}
	return s.afterApply(ctx, q, m, next, now)
}

// stalledAttempt reports whether a workflow's attempt is no longer evaluated, and whether it is still active.
func stalledAttempt(
	ctx context.Context, q *dbsqlc.Queries, w workflow.Workflow, now time.Time,
) (stalled, active bool, err error) {
	if w.OperationID == "" {
		return workflow.Working(w.State), false, nil
	}
	op, err := q.GetOperation(ctx, w.OperationID)
	if err != nil {
		return false, false, fmt.Errorf("read the attempt: %w", err)
	}
	active = !operation.IsTerminal(operation.Phase(op.Phase))
	late := op.WakeAt != nil && op.WakeAt.Before(now.Add(-stalledAfter))
	return workflow.Working(w.State) && (!active || late), active, nil
}

func actFacts(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, w workflow.Workflow, now time.Time,
) (workflow.Facts, error) {
	f := workflow.Facts{Contested: start.Contested(fleet.NodeState(m.NodeState), m.QuarantineReason)}
	var err error
	if f.Stalled, f.OperationActive, err = stalledAttempt(ctx, q, w, now); err != nil {
		return f, err
	}
	if f.Stage, err = workflowstate.StageFacts(ctx, q, m, w); err != nil {
		return f, err
	}
	conds, err := q.ConditionsOf(ctx, []string{m.MachineID})
	if err != nil {
		return f, fmt.Errorf("read conditions: %w", err)
	}
	f.Stage.Machine = convert.FleetFacts(m, conds)
	f.Stage.AgentLive, err = nodestate.AgentLive(ctx, q, m, now)
	return f, err
}

// foretold answers a dry run, and a repeat, by the attempt as it is.
func (s *Store) foretold(
	ctx context.Context, q *dbsqlc.Queries, w workflow.Workflow, e workflow.Effect, fit operationstore.Fit, dry bool,
) (*Acted, error) {
	out := &Acted{Text: e.Text}
	if dry && e.Attempt {
		out.Operation = &baremetalv1.Operation{
			MachineId: w.MachineID,
			Type: baremetalv1.Operation_OperationType(
				baremetalv1.Operation_OperationType_value[string(operationTypes[w.Kind])]),
			CurrentStage: e.Workflow.Stage, Params: map[string]string{"workflow_id": w.ID,
				"stages": strings.Join(workflow.Names(e.Workflow.Attempting(e.Skip)), ",")},
		}
	} else if w.OperationID != "" {
		row, err := q.GetOperation(ctx, w.OperationID)
		if err != nil {
			return nil, fmt.Errorf("read the attempt: %w", err)
		}
		if out.Operation, err = operationquery.OperationOf(ctx, q, row); err != nil {
			return nil, err
		}
	}
	if out.Operation == nil {
		out.Operation = &baremetalv1.Operation{MachineId: w.MachineID}
	}
	if dry {
		if out.Operation.Params == nil {
			out.Operation.Params = map[string]string{}
		}
		out.Operation.Params["would"], out.Operation.Params[ParamNotAsked] = e.Text, strings.Join(fit.NotAsked, "\n")
	}
	return out, nil
}

func (s *Store) afterApply(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, n next, now time.Time,
) (*Acted, error) {
	e, r := n.effect, n.request
	out := &Acted{Text: e.Text}
	w := e.Workflow
	err := history.Audit(ctx, q, history.AuditEntry{
		Actor: r.Actor, Verb: "WORKFLOW_" + strings.ToUpper(r.Params["action"]), Target: m.MachineID, Request: r.RequestID,
		Operation: w.OperationID, Comment: r.Comment, Data: map[string]string{"workflow_id": w.ID, "stage": w.Stage},
	}, now)
	if err != nil {
		return nil, err
	}
	if e.Attempt {
		n.attempt.Workflow = &w
		if out.Operation, err = s.insertAttempt(ctx, q, n.machine, n.attempt, n.fit, now); err != nil {
			return nil, err
		}
		out.Created = true
	}
	observed, err := nodestate.ObservedProviderState(ctx, q, m)
	if err != nil {
		return nil, err
	}
	if err := workflowstate.SaveWorkflow(ctx, q, w, observed, now); err != nil {
		return nil, err
	}
	if err := s.stopOrWake(ctx, q, m, w, e, r, out, now); err != nil || out.Operation != nil {
		return out, err
	}
	row, err := q.GetOperation(ctx, w.OperationID)
	if err != nil {
		return nil, fmt.Errorf("read the attempt: %w", err)
	}
	out.Operation, err = operationquery.OperationOf(ctx, q, row)
	return out, err
}

// next is another attempt that an action makes.
type next struct {
	// from is the workflow's state before the action.
	from    workflow.State
	effect  workflow.Effect
	request operationstore.StartRequest
	// validateOnly judges the machine as in maintenance.
	validateOnly bool
	// attempt, fit and machine are set by nextFits.
	attempt Attempt
	fit     operationstore.Fit
	machine dbsqlc.Machine
}

// nextFits checks that the attempt may be made, on the node as the action leaves it. The action, its dry run and its
// offer ask it.
func (s *Store) nextFits(ctx context.Context, q *dbsqlc.Queries, n *next, now time.Time) error {
	w := n.effect.Workflow
	if n.from == workflow.Cancelled {
		again := &start.Facts{Machine: start.Machine{Facts: fleet.Facts{MachineID: w.MachineID}}}
		if err := startfacts.AdmitWorkflow(ctx, q, again); err != nil {
			return err
		}
	}
	var err error
	if n.attempt, n.machine, err = s.attemptOf(ctx, q, &w, n.effect, n.request, now); err != nil {
		return err
	}
	if n.validateOnly {
		n.machine = operationstore.Validated(n.machine, n.request.Type)
	}
	n.fit, err = s.AttemptFits(ctx, q, n.machine, n.attempt)
	return err
}

// attemptOf puts the node where the attempt can begin, and returns the attempt with the machine as it is then.
func (s *Store) attemptOf(
	ctx context.Context, q *dbsqlc.Queries, w *workflow.Workflow, e workflow.Effect, r operationstore.StartRequest,
	now time.Time,
) (a Attempt, m dbsqlc.Machine, err error) {
	if e.Reset {
		if err := workflowstate.MoveNodeAlong(ctx, q, w.MachineID, w.OperationID, r.Actor, "",
			func(m dbsqlc.Machine) []workflow.Move {
				return workflow.Resetting(*w, fleet.NodeState(m.NodeState))
			}, now); err != nil {
			return a, m, err
		}
	}
	if m, err = machinestore.LockMachine(ctx, q, w.MachineID); err != nil {
		return a, m, err
	}
	spec, err := convert.SpecFromJSON(m.Spec)
	if err != nil {
		return a, m, err
	}
	t := workflow.Traits{Provider: m.Provider, BMC: spec.GetBmcEndpoint() != ""}
	return Attempt{Workflow: w, Traits: t, Stages: e.Workflow.Attempting(e.Skip), Request: r}, m, nil
}

// stopOrWake does what an action does to the attempt that is under way, or to the node where there is none.
func (s *Store) stopOrWake(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, w workflow.Workflow, e workflow.Effect,
	r operationstore.StartRequest, out *Acted, now time.Time,
) error {
	var err error
	switch {
	case e.CancelOperation:
		out.Applied, err = s.operations.DecideIn(ctx, q, w.OperationID,
			operation.CancelAsked{Actor: r.Actor, Why: "its workflow is cancelled"}, now)
	case e.Requeue:
		_, err = q.WakeOperation(ctx, dbsqlc.WakeOperationParams{OperationID: w.OperationID, Now: &now})
	case e.Release:
		var live bool
		if live, err = nodestate.AgentLive(ctx, q, m, now); err == nil {
			err = errors.Join(workflowstate.EndWork(ctx, q, w, r.Actor, live, now), workflowstate.WorkflowCures(ctx, q, w, now))
		}
	}
	return err
}

// SameInputs is for callers that need no params.
func SameInputs(in kind.Inputs) func(map[string]string) (kind.Inputs, error) {
	return func(map[string]string) (kind.Inputs, error) { return in, nil }
}
