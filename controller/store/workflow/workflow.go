package workflow

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
	"github.com/ingot-metal/ingot/controller/domain/start"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/store/startfacts"
	"github.com/ingot-metal/ingot/controller/store/workflowstate"
	"github.com/ingot-metal/ingot/internal/ids"
)

// ParamPath names how an onboarding goes: workflow.PathInstall or workflow.PathAdopt.
const ParamPath = "path"

// ParamNotAsked has what the answer of a dry run could not ask, one sentence a line.
const ParamNotAsked = operationstore.ParamNotAsked

// WorkflowStart asks for an onboarding or a decommission.
type WorkflowStart struct {
	MachineID, RequestID string
	Kind                 workflow.Kind
	Mode                 workflow.Mode
	// EnterMaintenance opens that operation first where the machine is not in maintenance.
	EnterMaintenance bool
	// Params are what the client asked for; Inputs what they say to plans.
	Params map[string]string
	Inputs kind.Inputs
	Actor  string
	// Judged: approval policies have judged the work already.
	Judged bool
	// RolloutID names the rollout that starts it; empty where none does.
	RolloutID string
	// DryRun checks everything and keeps nothing; the operation that is returned has no id.
	DryRun bool
	// ValidateOnly is DryRun of a machine that is judged as in maintenance, unless the workflow enters maintenance itself.
	ValidateOnly bool
}

// dry reports whether nothing is stored.
func (r WorkflowStart) dry() bool { return r.DryRun || r.ValidateOnly }

// judged returns the machine as the request judges it.
func (r WorkflowStart) judged(m dbsqlc.Machine) dbsqlc.Machine {
	if r.ValidateOnly && !r.EnterMaintenance {
		return operationstore.Validated(m, operationTypes[r.Kind])
	}
	return m
}

// errForetold takes back what a dry run has done.
var errForetold = errors.New("dry run")

// operationTypes of workflows.
var operationTypes = map[workflow.Kind]fleet.OperationType{workflow.Onboarding: fleet.Onboard,
	workflow.Decommission: fleet.Decommission}

// Request is the first attempt's, under which a repeat is recognized.
func (r WorkflowStart) Request() operationstore.StartRequest {
	p := map[string]string{"mode": string(r.Mode)}
	if r.EnterMaintenance {
		p["enter_maintenance"] = "true"
	}
	if r.RolloutID != "" {
		p[rollout.Param] = r.RolloutID
	}
	maps.Copy(p, r.Params)
	return operationstore.StartRequest{MachineID: r.MachineID, RequestID: r.RequestID, Type: operationTypes[r.Kind],
		Params: p, Inputs: r.Inputs, Actor: r.Actor, Judged: r.Judged}
}

// StartWorkflow creates a workflow and its first attempt, or returns the attempt that the same request has made before.
func (s *Store) StartWorkflow(
	ctx context.Context, r WorkflowStart, now time.Time,
) (op *baremetalv1.Operation, created bool, err error) {
	sr := r.Request()
	if op, err = s.operations.Replay(ctx, s.db.Q, sr); op != nil || err != nil {
		return op, false, err
	}
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := machinestore.LockMachine(ctx, q, r.MachineID)
		if err != nil {
			return err
		}
		if op, err = s.operations.Replay(ctx, q, sr); op != nil || err != nil {
			return err
		}
		op, err = s.BeginWorkflow(ctx, q, r.judged(m), r, now)
		created = err == nil
		if err != nil {
			return err
		}
		if r.dry() {
			return errForetold
		}
		return operationstore.FailpointBeforeCommit.HitCtx(ctx)
	})
	if errors.Is(err, errForetold) {
		return foretell(op, r), false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("start workflow: %w", err)
	}
	return op, created, nil
}

// foretell makes of an operation that was taken back what a dry run answers.
func foretell(op *baremetalv1.Operation, r WorkflowStart) *baremetalv1.Operation {
	would := "the machine keeps its disks"
	if workflow.Destructive(r.Kind, r.Mode) && op.GetParams()[ParamPath] != workflow.PathAdopt {
		would = "the data on the machine's disks is lost"
	}
	return &baremetalv1.Operation{
		MachineId: op.GetMachineId(), Type: op.GetType(), PlanId: op.GetPlanId(), CurrentStage: op.GetCurrentStage(),
		Params: map[string]string{"would": would, "stages": op.GetParams()["stages"], ParamPath: op.GetParams()[ParamPath],
			ParamNotAsked: op.GetParams()[ParamNotAsked]},
	}
}

// Fits checks that a workflow may begin on the machine. A machine that is brought into maintenance first is asked what
// it would be asked there.
func (s *Store) Fits(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r WorkflowStart,
) (fit operationstore.Fit, err error) {
	a, err := s.begins(ctx, q, m, r)
	if err != nil {
		return fit, err
	}
	entering := false
	if r.entersFirst(m) {
		enters, err := s.operations.Fits(ctx, q, m, r.enters(m))
		if err != nil {
			return fit, err
		}
		entering = enters.Interrupts
		m.Phase = string(fleet.Maintenance)
	}
	fit, err = s.AttemptFits(ctx, q, m, a)
	fit.Interrupts = fit.Interrupts || entering
	return fit, err
}

// begins asks what does not depend on the machine's phase, and returns the first attempt.
func (s *Store) begins(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r WorkflowStart) (Attempt, error) {
	stages, traits, err := WorkflowPlan(ctx, q, m, r)
	if err != nil {
		return Attempt{}, err
	}
	machine, err := startfacts.Machine(m, nil)
	if err != nil {
		return Attempt{}, err
	}
	f := &start.Facts{Machine: machine,
		Beginning: &start.Beginning{Kind: r.Kind, Mode: r.Mode, Traits: traits, Stages: stages}}
	if err := startfacts.AdmitWorkflow(ctx, q, f); err != nil {
		return Attempt{}, err
	}
	w := &workflow.Workflow{
		ID: ids.New(ids.Workflow), MachineID: m.MachineID, Provider: m.Provider, Kind: r.Kind, Mode: r.Mode,
		State: workflow.Pending, Plan: workflow.Names(stages), Stage: stages[0].Name, Attempts: 1,
	}
	return Attempt{Workflow: w, Traits: traits, Stages: stages, Request: r.Request()}, nil
}

// BeginWorkflow creates a workflow and its first attempt on a machine that the transaction has locked.
func (s *Store) BeginWorkflow(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r WorkflowStart, now time.Time,
) (*baremetalv1.Operation, error) {
	a, err := s.begins(ctx, q, m, r)
	if err != nil {
		return nil, err
	}
	if r.entersFirst(m) {
		if m, err = s.enterFirst(ctx, q, m, r, now); err != nil {
			return nil, err
		}
	}
	w := a.Workflow
	fit, err := s.AttemptFits(ctx, q, m, a)
	if err != nil {
		return nil, err
	}
	op, err := s.insertAttempt(ctx, q, m, a, fit, now)
	if err != nil {
		return nil, err
	}
	params, err := pgtx.JSONMap(r.Params)
	if err != nil {
		return nil, err
	}
	observed, err := nodestate.ObservedProviderState(ctx, q, m)
	if err != nil {
		return nil, err
	}
	if r.dry() {
		op.Params["stages"], op.Params[ParamPath] = strings.Join(w.Plan, ","), a.Traits.Path
		op.Params[ParamNotAsked] = strings.Join(fit.NotAsked, "\n")
	}
	err = q.InsertWorkflow(ctx, dbsqlc.InsertWorkflowParams{
		WorkflowID: w.ID, MachineID: w.MachineID, Kind: string(w.Kind), Mode: string(w.Mode), State: string(w.State),
		Plan:  w.Plan,
		Stage: w.Stage, AttemptCount: 1, ObservedProviderState: observed, OperationID: &w.OperationID, RequestID: r.RequestID,
		Params: params, Now: now,
	})
	if err != nil {
		return nil, fmt.Errorf("insert workflow: %w", err)
	}
	return op, nil
}

// WorkflowPlan returns the stages of a new workflow on a machine.
func WorkflowPlan(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r WorkflowStart,
) ([]workflow.Stage, workflow.Traits, error) {
	spec, err := convert.SpecFromJSON(m.Spec)
	if err != nil {
		return nil, workflow.Traits{}, err
	}
	t := workflow.Traits{Provider: m.Provider, BMC: spec.GetBmcEndpoint() != "", Path: r.Params[ParamPath]}
	if t.GPU, err = nodestate.HasAccelerator(ctx, q, m.MachineID); err != nil {
		return nil, t, err
	}
	if t.Path == "" {
		t.Path = workflow.DefaultPath(fleet.NodeState(m.NodeState))
	}
	return workflow.Plan(r.Kind, r.Mode, t), t, nil
}

func (r WorkflowStart) entersFirst(m dbsqlc.Machine) bool {
	return r.EnterMaintenance && m.Phase != string(fleet.Maintenance)
}

// enters is the request for the operation that brings the machine into maintenance.
func (r WorkflowStart) enters(m dbsqlc.Machine) operationstore.StartRequest {
	return operationstore.StartRequest{
		MachineID: m.MachineID, RequestID: r.RequestID + "/enter-maintenance", Type: fleet.EnterMaintenance, Actor: r.Actor,
		Removes: r.Mode == workflow.FullDecommission,
	}
}

// enterFirst opens and ends an operation that brings the machine into maintenance, on the operator's word.
func (s *Store) enterFirst(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r WorkflowStart, now time.Time,
) (dbsqlc.Machine, error) {
	op, err := s.operations.Create(ctx, q, m, r.enters(m), now)
	if err != nil {
		return m, err
	}
	if err := s.budgets.AdmitNow(ctx, q, op.GetOperationId(), now); err != nil {
		return m, err
	}
	if _, err := s.operations.DecideIn(ctx, q, op.GetOperationId(), operation.Evaluate{}, now); err != nil {
		return m, fmt.Errorf("enter maintenance: %w", err)
	}
	return machinestore.LockMachine(ctx, q, m.MachineID)
}

// Attempt is one operation of a workflow that is about to be made.
type Attempt struct {
	Workflow *workflow.Workflow
	Traits   workflow.Traits
	Stages   []workflow.Stage
	Request  operationstore.StartRequest
}

// insertAttempt makes the operation of an attempt that fits: what a plan is to any other operation, the stages are to
// it.
func (s *Store) insertAttempt(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, a Attempt, fit operationstore.Fit, now time.Time,
) (*baremetalv1.Operation, error) {
	n, err := s.operations.InsertOperation(ctx, q, m, a.Request, fit, now)
	if err != nil {
		return nil, err
	}
	a.Workflow.OperationID = n.Op.ID
	if err := history.Audit(ctx, q, history.AuditEntry{
		Actor: a.Request.Actor, Verb: string(a.Request.Type), Target: m.MachineID, Request: a.Request.RequestID,
		Operation: n.Op.ID,
		Comment:   a.Request.Comment, Data: map[string]string{"workflow_id": a.Workflow.ID, "stage": a.Workflow.Stage,
			"mode": string(a.Workflow.Mode)},
	}, now); err != nil {
		return nil, err
	}
	return n.Message(), nil
}

// AttemptFits returns the work of an attempt that may be made now, or its refusal. Every stage is asked before the
// first one begins.
func (s *Store) AttemptFits(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, a Attempt,
) (fit operationstore.Fit, err error) {
	w := a.Workflow
	a.Request.Removes = w.Mode == workflow.FullDecommission
	f, err := s.operations.Facts(ctx, q, m, a.Request)
	if err != nil {
		return fit, err
	}
	stage, err := workflowstate.StageFacts(ctx, q, m, *w)
	if err != nil {
		return fit, err
	}
	f.Stage, f.Plan = &stage, &baremetalv1.Plan{PlanId: workflow.PlanID(w.Kind, w.Mode, a.Traits),
		Steps: workflow.Steps(a.Stages)}
	f.RemovesRecord = a.Request.Removes && f.Machine.NodeState == fleet.Retired && w.Attempts > 1 &&
		a.Stages[0].Name == workflow.RemoveRecord
	return startfacts.Admit(ctx, q, f)
}

// GetWorkflow reads a workflow.
func (s *Store) GetWorkflow(ctx context.Context, id string) (*baremetalv1.Workflow, error) {
	row, err := s.db.Q.GetWorkflow(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, workflowstate.WorkflowNotFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("read workflow: %w", err)
	}
	return s.workflowMessage(ctx, row, s.db.Now())
}

// WorkflowFilter narrows a list. Empty fields match everything.
type WorkflowFilter struct {
	MachineID, Kind, Mode, State, FailureClass string
	// Open leaves out those that have ended.
	Open       bool
	BeforeTime time.Time
	BeforeID   string
	Limit      int32
	// Selections hold the machines; the zero value holds all.
	Selections machinefilter.Selections
}

// ListWorkflows reads workflows, newest first, from a position on.
func (s *Store) ListWorkflows(ctx context.Context, f WorkflowFilter) ([]*baremetalv1.Workflow, error) {
	rows, err := s.db.Lists(ctx).ListWorkflows(ctx, dbsqlc.ListWorkflowsParams{
		MachineID: f.MachineID, Kind: f.Kind, Mode: f.Mode, State: f.State, FailureClass: f.FailureClass, OnlyOpen: f.Open,
		BeforeID: f.BeforeID, BeforeTime: f.BeforeTime, PageSize: f.Limit, Selections: f.Selections.SQL(),
	})
	if err != nil {
		return nil, fmt.Errorf("list workflows: %w", err)
	}
	out := make([]*baremetalv1.Workflow, 0, len(rows))
	for _, r := range rows {
		m, err := s.workflowMessage(ctx, r, s.db.Now())
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func (s *Store) workflowMessage(ctx context.Context, r dbsqlc.Workflow, now time.Time) (*baremetalv1.Workflow, error) {
	w, err := workflowstate.WorkflowFromRow(r)
	if err != nil {
		return nil, err
	}
	offer, err := s.OfferedActions(ctx, w, convert.JSONToMap(r.Params), now)
	if err != nil {
		return nil, err
	}
	_, next := workflow.Recommend(w, offer)
	out := &baremetalv1.Workflow{
		WorkflowId: r.WorkflowID, MachineId: r.MachineID,
		Kind:         baremetalv1.Workflow_Kind(baremetalv1.Workflow_Kind_value[r.Kind]),
		Mode:         baremetalv1.Workflow_Mode(baremetalv1.Workflow_Mode_value[r.Mode]),
		State:        baremetalv1.Workflow_State(baremetalv1.Workflow_State_value[r.State]),
		CurrentStage: r.Stage, AttemptCount: r.AttemptCount, FailureClass: r.FailureClass,
		ObservedProviderState: r.ObservedProviderState,
		RecommendedAction:     next, OperationId: pgtx.StrVal(r.OperationID), CreatedAt: convert.Timestamp(r.CreatedAt),
		UpdatedAt: convert.Timestamp(r.UpdatedAt),
		Stages:    r.Plan, Reason: r.Reason, Message: r.Message, EndedAt: convert.TimestampPtr(r.EndedAt),
		RequestId: r.RequestID,
	}
	for _, a := range offer.Legal {
		out.LegalActions = append(out.LegalActions,
			baremetalv1.WorkflowAction(baremetalv1.WorkflowAction_value["WORKFLOW_ACTION_"+string(a)]))
	}
	return out, nil
}
