package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/plan"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/workflow"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

// ParamPath names how an onboarding goes: workflow.PathInstall or workflow.PathAdopt.
const ParamPath = "path"

// WorkflowStart asks for an onboarding or a decommission.
type WorkflowStart struct {
	MachineID, RequestID string
	Kind                 workflow.Kind
	Mode                 workflow.Mode
	// EnterMaintenance opens that operation first where the machine is not in maintenance.
	EnterMaintenance bool
	// Params are what the client asked for; Inputs what they say to plans.
	Params map[string]string
	Inputs plan.Inputs
	Actor  string
	// DryRun checks everything and keeps nothing; the operation that is returned has no id.
	DryRun bool
}

// errForetold takes back what a dry run has done.
var errForetold = errors.New("dry run")

// operationTypes of workflows.
var operationTypes = map[workflow.Kind]fleet.OperationType{workflow.Onboarding: fleet.Onboard, workflow.Decommission: fleet.Decommission}

// request is the first attempt's, under which a repeat is recognized.
func (r WorkflowStart) request() StartRequest {
	p := map[string]string{"mode": string(r.Mode)}
	if r.EnterMaintenance {
		p["enter_maintenance"] = "true"
	}
	maps.Copy(p, r.Params)
	return StartRequest{MachineID: r.MachineID, RequestID: r.RequestID, Type: operationTypes[r.Kind], Params: p, Inputs: r.Inputs, Actor: r.Actor}
}

// StartWorkflow creates a workflow and its first attempt, or returns the attempt that the same request has made before.
func (s *Store) StartWorkflow(ctx context.Context, r WorkflowStart, now time.Time) (op *baremetalv1.Operation, created bool, err error) {
	sr := r.request()
	if op, err = s.replay(ctx, s.q, sr); op != nil || err != nil {
		return op, false, err
	}
	err = s.inTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		m, err := lockMachine(ctx, q, r.MachineID)
		if err != nil {
			return err
		}
		if op, err = s.replay(ctx, q, sr); op != nil || err != nil {
			return err
		}
		op, err = s.beginWorkflow(ctx, q, m, r, now)
		created = err == nil
		if err != nil {
			return err
		}
		if r.DryRun {
			return errForetold
		}
		return fpBeforeCommit.HitCtx(ctx)
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
		Params: map[string]string{"would": would, "stages": op.GetParams()["stages"], ParamPath: op.GetParams()[ParamPath]},
	}
}

func lockMachine(ctx context.Context, q *dbsqlc.Queries, id string) (dbsqlc.Machine, error) {
	m, err := q.LockMachine(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return m, machineNotFound(id)
	}
	if err != nil {
		return m, fmt.Errorf("lock machine: %w", err)
	}
	return m, nil
}

func (s *Store) beginWorkflow(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r WorkflowStart, now time.Time) (*baremetalv1.Operation, error) {
	if err := noOpenWorkflow(ctx, q, m.MachineID); err != nil {
		return nil, err
	}
	if x := workflow.Startable(r.Kind, r.Mode, fleet.NodeState(m.NodeState)); x != nil && m.DeletedAt == nil {
		return nil, failure.Precondition(x.Reason, "%s", x.Message).WithMeta("machine_id", m.MachineID)
	}
	stages, traits, err := workflowPlan(ctx, q, m, r)
	if err != nil {
		return nil, err
	}
	if name := workflow.NotWired(stages); name != "" {
		return nil, failure.Unimplemented("STAGE_NOT_WIRED", "stage %s of this machine's %s is not built", name, workflow.PlanID(r.Kind, r.Mode, traits)).
			WithMeta("stage", name)
	}
	if workflow.Destructive(r.Kind, r.Mode) && m.DeletedAt == nil {
		if err := noDrift(ctx, q, m); err != nil {
			return nil, err
		}
	}
	if r.EnterMaintenance && m.Phase != string(fleet.Maintenance) {
		if m, err = s.enterFirst(ctx, q, m, r, now); err != nil {
			return nil, err
		}
	}
	w := workflow.Workflow{
		ID: ids.New(ids.Workflow), MachineID: m.MachineID, Provider: m.Provider, Kind: r.Kind, Mode: r.Mode, State: workflow.Pending,
		Plan: workflow.Names(stages), Stage: stages[0].Name, Attempts: 1,
	}
	op, err := s.insertAttempt(ctx, q, m, attempt{w: &w, traits: traits, stages: stages, request: r.request()}, now)
	if err != nil {
		return nil, err
	}
	params, err := jsonMap(r.Params)
	if err != nil {
		return nil, err
	}
	observed, err := observedProviderState(ctx, q, m)
	if err != nil {
		return nil, err
	}
	if r.DryRun {
		op.Params["stages"], op.Params[ParamPath] = strings.Join(w.Plan, ","), traits.Path
	}
	err = q.InsertWorkflow(ctx, dbsqlc.InsertWorkflowParams{
		WorkflowID: w.ID, MachineID: w.MachineID, Kind: string(w.Kind), Mode: string(w.Mode), State: string(w.State), Plan: w.Plan,
		Stage: w.Stage, AttemptCount: 1, ObservedProviderState: observed, OperationID: &w.OperationID, RequestID: r.RequestID,
		Params: params, Now: now,
	})
	if err != nil {
		return nil, fmt.Errorf("insert workflow: %w", err)
	}
	return op, nil
}

func noOpenWorkflow(ctx context.Context, q *dbsqlc.Queries, machineID string) error {
	w, err := q.OpenWorkflowOf(ctx, machineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for an open workflow: %w", err)
	}
	return failure.Precondition("WORKFLOW_ACTIVE", "workflow %s of the machine is %s; act on it, or cancel it first",
		w.WorkflowID, strings.ToLower(w.State)).WithMeta("workflow_id", w.WorkflowID).WithMeta("machine_id", machineID)
}

// workflowPlan gives the stages of a new workflow on a machine.
func workflowPlan(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r WorkflowStart) ([]workflow.Stage, workflow.Traits, error) {
	spec, err := specFromJSON(m.Spec)
	if err != nil {
		return nil, workflow.Traits{}, err
	}
	t := workflow.Traits{Provider: m.Provider, BMC: spec.GetBmcEndpoint() != "", Path: r.Params[ParamPath]}
	if t.GPU, err = hasAccelerator(ctx, q, m.MachineID); err != nil {
		return nil, t, err
	}
	if t.Path == "" {
		t.Path = workflow.DefaultPath(fleet.NodeState(m.NodeState))
	}
	return workflow.Plan(r.Kind, r.Mode, t), t, nil
}

// enterFirst opens and ends an operation that brings the machine into maintenance, on the operator's word.
func (s *Store) enterFirst(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r WorkflowStart, now time.Time) (dbsqlc.Machine, error) {
	op, err := s.create(ctx, q, m, StartRequest{
		MachineID: m.MachineID, RequestID: r.RequestID + "/enter-maintenance", Type: fleet.EnterMaintenance, Actor: r.Actor,
		removes: r.Mode == workflow.FullDecommission,
	}, now)
	if err != nil {
		return m, err
	}
	if _, err := s.decideIn(ctx, q, op.GetOperationId(), 0, operation.Look{}, now); err != nil {
		return m, fmt.Errorf("enter maintenance: %w", err)
	}
	return lockMachine(ctx, q, m.MachineID)
}

// attempt is one operation of a workflow that is about to be made.
type attempt struct {
	w       *workflow.Workflow
	traits  workflow.Traits
	stages  []workflow.Stage
	request StartRequest
}

// insertAttempt makes the operation of an attempt: what a plan is to any other operation, the stages are to it.
func (s *Store) insertAttempt(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, a attempt, now time.Time) (*baremetalv1.Operation, error) {
	p, steps, err := s.attemptFits(ctx, q, m, a)
	if err != nil {
		return nil, err
	}
	n, err := s.insertOperation(ctx, q, m, a.request, p, steps, now)
	if err != nil {
		return nil, err
	}
	a.w.OperationID = n.op.ID
	if err := audit(ctx, q, auditEntry{
		actor: a.request.Actor, verb: string(a.request.Type), target: m.MachineID, request: a.request.RequestID, operation: n.op.ID,
		comment: a.request.Comment, data: map[string]string{"workflow_id": a.w.ID, "stage": a.w.Stage, "mode": string(a.w.Mode)},
	}, now); err != nil {
		return nil, err
	}
	afterCommit(q).note(created(n.op.ID))
	return n.message(), nil
}

// attemptFits checks that an attempt may be made now, and returns its plan and steps.
func (s *Store) attemptFits(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, a attempt) (*baremetalv1.Plan, []plan.Filled, error) {
	p := &baremetalv1.Plan{PlanId: workflow.PlanID(a.w.Kind, a.w.Mode, a.traits), Steps: workflow.Steps(a.stages)}
	if err := admitAttempt(ctx, q, m, a, p); err != nil {
		return nil, nil, err
	}
	steps, err := s.fill(p, m, a.request.Inputs)
	if err != nil {
		return nil, nil, err
	}
	if err := catalogued(ctx, q, m, steps); err != nil {
		return nil, nil, err
	}
	return p, steps, identifiable(ctx, q, m, steps)
}

// admitAttempt asks what every operation is asked. A node that this workflow itself has retired is not blocked for the
// removal that is left to do, which touches no machine.
func admitAttempt(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, a attempt, p *baremetalv1.Plan) error {
	if a.w.Mode == workflow.FullDecommission && m.NodeState == string(fleet.Retired) && a.w.Attempts > 1 && a.stages[0].Name == workflow.RemoveRecord {
		if m.CurrentOperationID != nil {
			return failure.Precondition("MACHINE_BUSY", "operation %s is active; wait for it", *m.CurrentOperationID)
		}
		return nil
	}
	a.request.removes = a.w.Mode == workflow.FullDecommission
	return admitted(ctx, q, m, a.request, p)
}

// GetWorkflow reads a workflow.
func (s *Store) GetWorkflow(ctx context.Context, id string) (*baremetalv1.Workflow, error) {
	row, err := s.q.GetWorkflow(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, workflowNotFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("read workflow: %w", err)
	}
	return s.workflowMessage(ctx, row, s.now())
}

func workflowNotFound(id string) error {
	return failure.NotFound("WORKFLOW_NOT_FOUND", "there is no workflow %q", id).WithField("workflow_id", "unknown")
}

// WorkflowFilter narrows a list. Empty fields match everything.
type WorkflowFilter struct {
	MachineID, Kind, Mode, State, FailureClass string
	// Open leaves out those that have ended.
	Open       bool
	BeforeTime time.Time
	BeforeID   string
	Limit      int32
}

// ListWorkflows reads workflows, newest first, from a position on.
func (s *Store) ListWorkflows(ctx context.Context, f WorkflowFilter) ([]*baremetalv1.Workflow, error) {
	rows, err := s.lists(ctx).ListWorkflows(ctx, dbsqlc.ListWorkflowsParams{
		MachineID: f.MachineID, Kind: f.Kind, Mode: f.Mode, State: f.State, FailureClass: f.FailureClass, OnlyOpen: f.Open,
		BeforeID: f.BeforeID, BeforeTime: f.BeforeTime, PageSize: f.Limit,
	})
	if err != nil {
		return nil, fmt.Errorf("list workflows: %w", err)
	}
	out := make([]*baremetalv1.Workflow, 0, len(rows))
	for _, r := range rows {
		m, err := s.workflowMessage(ctx, r, s.now())
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func (s *Store) workflowMessage(ctx context.Context, r dbsqlc.Workflow, now time.Time) (*baremetalv1.Workflow, error) {
	w, err := workflowFromRow(r)
	if err != nil {
		return nil, err
	}
	offer, err := s.offeredActions(ctx, w, jsonToMap(r.Params), now)
	if err != nil {
		return nil, err
	}
	_, next := workflow.Recommend(w, offer)
	out := &baremetalv1.Workflow{
		WorkflowId: r.WorkflowID, MachineId: r.MachineID, Kind: baremetalv1.Workflow_Kind(baremetalv1.Workflow_Kind_value[r.Kind]),
		Mode:         baremetalv1.Workflow_Mode(baremetalv1.Workflow_Mode_value[r.Mode]),
		State:        baremetalv1.Workflow_State(baremetalv1.Workflow_State_value[r.State]),
		CurrentStage: r.Stage, AttemptCount: r.AttemptCount, FailureClass: r.FailureClass, ObservedProviderState: r.ObservedProviderState,
		RecommendedAction: next, OperationId: strVal(r.OperationID), CreatedAt: stamp(r.CreatedAt), UpdatedAt: stamp(r.UpdatedAt),
		Stages: r.Plan, Reason: r.Reason, Message: r.Message, EndedAt: stampPtr(r.EndedAt), RequestId: r.RequestID,
	}
	for _, a := range offer.Legal {
		out.LegalActions = append(out.LegalActions, baremetalv1.WorkflowAction(baremetalv1.WorkflowAction_value["WORKFLOW_ACTION_"+string(a)]))
	}
	return out, nil
}

func workflowFromRow(r dbsqlc.Workflow) (workflow.Workflow, error) {
	w := workflow.Workflow{
		ID: r.WorkflowID, MachineID: r.MachineID, Kind: workflow.Kind(r.Kind), Mode: workflow.Mode(r.Mode), State: workflow.State(r.State),
		Stage: r.Stage, StageIdx: int(r.StageIdx), Plan: slices.Clone(r.Plan), Attempts: int(r.AttemptCount), Unclean: r.Unclean,
		FailureClass: workflow.Class(r.FailureClass), Reason: r.Reason, Message: r.Message, LastAction: workflow.Action(r.LastAction),
		Adopted: r.Adopted, OperationID: strVal(r.OperationID),
	}
	if err := json.Unmarshal(r.Evidence, &w.Evidence); err != nil {
		return w, fmt.Errorf("parse stored evidence: %w", err)
	}
	if err := json.Unmarshal(r.Failures, &w.Failures); err != nil {
		return w, fmt.Errorf("parse stored failures: %w", err)
	}
	return w, nil
}

// saveWorkflow writes what follows from a decision or an action.
func saveWorkflow(ctx context.Context, q *dbsqlc.Queries, w workflow.Workflow, observed string, now time.Time) error {
	evidence, err := jsonMap(w.Evidence)
	if err != nil {
		return err
	}
	failures, err := json.Marshal(w.Failures)
	if err != nil {
		return fmt.Errorf("serialize failures: %w", err)
	}
	if w.Failures == nil {
		failures = []byte("{}")
	}
	p := dbsqlc.UpdateWorkflowParams{
		WorkflowID: w.ID, State: string(w.State), Stage: w.Stage, StageIdx: int32(w.StageIdx), AttemptCount: int32(w.Attempts),
		Repeats: int32(w.Failures[w.Stage]), Failures: failures, Unclean: w.Unclean, FailureClass: string(w.FailureClass), Reason: w.Reason, Message: w.Message,
		ObservedProviderState: observed, LastAction: string(w.LastAction), Adopted: w.Adopted, Evidence: evidence,
		OperationID: strPtr(w.OperationID), Now: now,
	}
	if !workflow.Holds(w.State) {
		p.EndedAt = &now
	}
	if err := q.UpdateWorkflow(ctx, p); err != nil {
		return fmt.Errorf("update workflow: %w", err)
	}
	return nil
}
