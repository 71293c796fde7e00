package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	approvalstore "github.com/ingot-metal/ingot/controller/store/approval"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/convert"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/store/workflowstate"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

// DrainPlan is the plan of a drain that an admin's move starts.
const DrainPlan = "drain"

// drainOf names the plan by which a machine drains: one that is in no cluster has nothing to drain.
func drainOf(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine) (string, error) {
	conds, err := q.ConditionsOf(ctx, []string{m.MachineID})
	if err != nil {
		return "", fmt.Errorf("read conditions: %w", err)
	}
	spec, err := convert.SpecFromJSON(m.Spec)
	if err != nil || spec.GetTargetClusterRef() != "" || convert.FleetFacts(m, conds).Conditions[fleet.InCustomerCluster] {
		return DrainPlan, err
	}
	return plan.DrainNone, nil
}

// StartRequest asks for one piece of work on one machine.
type StartRequest struct {
	MachineID string
	RequestID string
	Type      fleet.OperationType
	// PlanID overrides the type's default plan.
	PlanID string
	// Params are what the client asked for, by field name. They are stored, shown, and compared on a repeat.
	Params map[string]string
	Inputs kind.Inputs
	// Actor is the caller's opaque name; Comment is free text and is stored in the audit log only.
	Actor   string
	Comment string
	// Internal says that the store itself asks: the plan need not be one that clients may name.
	Internal bool
	// Removes says that the operation is of the workflow that takes a retired machine out of the inventory.
	Removes bool
	// AfterInstall says that another operation replaces the machine's system before this one; only previews ask that.
	AfterInstall bool
	// Harm is done besides what the plan does, such as by the node state in which the operation ends.
	Harm kind.Harm
	// Judged: approval policies have judged the work already, such as a rollout as a whole.
	Judged bool
	// begun is what the transaction has read of the machine already; nil reads it.
	begun *preloaded
}

// body is what makes two requests the same.
func (r StartRequest) body() map[string]string {
	b := map[string]string{"type": string(r.Type), "plan_id": r.PlanID}
	for k, v := range r.Params {
		if v != "" {
			b[k] = v
		}
	}
	if r.Inputs.Config != nil {
		// A message from the wire always serializes.
		raw, _ := proto.MarshalOptions{Deterministic: true}.Marshal(r.Inputs.Config)
		b["config"] = fmt.Sprintf("%x", raw)
	}
	return b
}

// Start creates an operation, or returns the one that the same request has made before. created says which.
func (s *Store) Start(
	ctx context.Context, r StartRequest, now time.Time,
) (op *baremetalv1.Operation, created bool, err error) {
	a := pgtx.LockKey{MachineID: r.MachineID, RequestID: r.RequestID}
	end, repeat, err := s.repeats.Begin(ctx, a)
	if err != nil {
		return nil, false, fmt.Errorf("wait for the same request: %w", err)
	}
	defer end()
	if repeat {
		if op, err = s.Replay(ctx, s.db.Q, r); op != nil || err != nil {
			return op, false, err
		}
	}
	err = s.store(ctx, change{key: a, now: now, decide: func(q *dbsqlc.Queries, f *preloaded, w *writes) (err error) {
		created = false
		m, ok := f.machines[r.MachineID]
		if !ok {
			return convert.MachineNotFound(r.MachineID)
		}
		if row, ok := f.requests[request{r.MachineID, r.RequestID}]; ok {
			op, err = s.repeated(ctx, q, r, row)
			return err
		}
		r.begun = f
		op, err = s.create(ctx, q, w, m, r, now)
		created = err == nil
		return err
	}})
	if err != nil {
		return nil, false, fmt.Errorf("start operation: %w", err)
	}
	return op, created, nil
}

// Replay returns the operation of a repeated request, nil if there is none.
func (s *Store) Replay(ctx context.Context, q *dbsqlc.Queries, r StartRequest) (*baremetalv1.Operation, error) {
	row, err := q.GetOperationByRequest(ctx, dbsqlc.GetOperationByRequestParams{TargetID: r.MachineID,
		RequestID: r.RequestID})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for the request: %w", err)
	}
	return s.repeated(ctx, q, r, row)
}

// repeated returns the operation of a repeated request, if it is the same.
func (s *Store) repeated(
	ctx context.Context, q *dbsqlc.Queries, r StartRequest, row dbsqlc.Operation,
) (*baremetalv1.Operation, error) {
	if diff := pgtx.Differing(normalBody(row, convert.JSONToMap(row.RequestBody)),
		normalBody(row, r.body())); len(diff) > 0 {
		e := failure.AlreadyExists("REQUEST_ID_REUSED",
			"request_id %q was used on this machine with another %s (operation %s)",
			r.RequestID, strings.Join(diff, ", "), row.OperationID).WithMeta("operation_id", row.OperationID)
		for _, f := range diff {
			e = e.WithField(f, "differs from the first request")
		}
		return nil, e
	}
	return operationquery.OperationOf(ctx, q, row)
}

// sameAsNone are parameters that say no more than leaving them out does, of every type that takes them.
var sameAsNone = map[string][]string{
	"mode": {"graceful", "PXE"}, "reboot_mode": {"graceful"}, "netboot_mode": {"PXE"}, "path": {"auto"},
	"reboot": {"false"}, "agentless": {"false"}, "timeout_seconds": {"0"},
}

// normalBody is the body of a request for this operation without what is the default anyway: an explicit default is no
// other request.
func normalBody(row dbsqlc.Operation, body map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range body {
		if !slices.Contains(sameAsNone[k], v) {
			out[k] = v
		}
	}
	if id := out["plan_id"]; id == row.PlanID && id == fleet.DefaultPlan(fleet.OperationType(row.Type)) || id == "" {
		delete(out, "plan_id")
	}
	return out
}

// drains reports whether the operation is one by which a quarantined node goes on: its drain, or a decommission of it,
// unless two machines answer in its name.
func (r StartRequest) drains(m dbsqlc.Machine) bool {
	return (r.Internal && r.PlanID == DrainPlan || r.Type == fleet.Decommission) &&
		node.Parse(m.NodeState) == node.Quarantined && !Contested(m)
}

// Contested reports whether a node is quarantined because two machines answer in its name.
func Contested(m dbsqlc.Machine) bool {
	class, _ := workflow.Classify(m.QuarantineReason)
	return node.Parse(m.NodeState) == node.Quarantined && class == workflow.ClassConflict &&
		m.QuarantineReason != "MACHINE_QUARANTINED"
}

// Fits checks that the work may be done on the machine now. Previews, offers and the start itself ask it.
func (s *Store) Fits(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest) (fit Fit, err error) {
	p, err := s.planOf(ctx, q, m, r)
	if err != nil {
		return fit, err
	}
	if r, err = s.Load(ctx, q, m, r); err != nil {
		return fit, err
	}
	if err := admit(ctx, q, m, r, p); err != nil {
		return fit, err
	}
	if err := rotatable(ctx, q, m, p); err != nil {
		return fit, err
	}
	fit.Plan = p
	if fit.Steps, err = s.Fill(p, m, r.Inputs); err != nil {
		return fit, err
	}
	return s.Admissible(ctx, q, m, r, fit, nil)
}

// planOf returns the plan that the request runs on the machine.
func (s *Store) planOf(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest,
) (*baremetalv1.Plan, error) {
	planID := r.PlanID
	if planID == "" && r.Type == fleet.Reimage {
		planID = nodestate.InstallPlan(m)
	}
	if planID == "" {
		planID = fleet.DefaultPlan(r.Type)
	}
	if r.Internal && planID == DrainPlan {
		var err error
		if planID, err = drainOf(ctx, q, m); err != nil {
			return nil, err
		}
	}
	p, err := s.catalog.UsedPlan(ctx, q, planID)
	if err != nil {
		return nil, err
	}
	if fleet.Housekeeping(r.Type) != plan.Housekeeping(p) {
		return nil, failure.Invalid("INVALID_FIELD", "plan %s does not fit operation type %s", planID, r.Type).
			WithField("plan_id",
				"plans that change the phase belong to ENTER_MAINTENANCE and EXIT_MAINTENANCE, and no others do")
	}
	if plan.OfWorkflow(p) && !r.Internal {
		return nil, failure.Invalid("INVALID_FIELD", "plan %s is run by workflows alone", planID).
			WithField("plan_id", "start a workflow: ingot onboard, ingot decommission")
	}
	return p, nil
}

// rotatable refuses to change the password of a BMC for anybody but an admin, and where it can't be. Work of the
// controller's own, such as that of a rollout which an admin has begun, has no caller.
func rotatable(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, p *baremetalv1.Plan) error {
	if !plan.RotatesPassword(p) {
		return nil
	}
	if caller, ok := auth.CallerFrom(ctx); ok && !caller.Scope.Covers(auth.ScopeAdmin) {
		return failure.Denied(auth.ReasonScopeTooSmall, "only an admin changes the passwords of BMCs").
			WithMeta("scope", caller.Scope.String()).WithMeta("required_scope", auth.ScopeAdmin.String())
	}
	spec, err := convert.SpecFromJSON(m.Spec)
	if err != nil {
		return err
	}
	return credentialstore.Rotatable(ctx, q, m.MachineID, m.Provider, spec.GetBmcCredentialsRef(), spec.GetBmcEndpoint())
}

// Create makes an operation in a transaction that holds the machine's lock.
func (s *Store) Create(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, now time.Time,
) (*baremetalv1.Operation, error) {
	w := &writes{}
	op, err := s.create(ctx, q, w, m, r, now)
	if err != nil {
		return nil, err
	}
	return op, w.flush(ctx, q)
}

func (s *Store) create(
	ctx context.Context, q *dbsqlc.Queries, w *writes, m dbsqlc.Machine, r StartRequest, now time.Time,
) (*baremetalv1.Operation, error) {
	fit, err := s.Fits(ctx, q, m, r)
	if err != nil {
		return nil, err
	}
	steps := fit.Steps
	n, err := s.newOperation(ctx, q, m, r, fit.Plan, steps, now)
	if err != nil {
		return nil, err
	}
	w.Append(n.Writes)
	approves := approvesByInstalling(m, r, steps)
	if err := w.special(ctx, q, approves,
		func() error { return approveByInstalling(ctx, q, m, r, n.Op.ID, now) }); err != nil {
		return nil, err
	}
	entry, err := history.AuditEntry{
		Actor: r.Actor, Verb: string(r.Type), Target: r.MachineID, Request: r.RequestID, Operation: n.Op.ID,
		Comment: r.Comment,
	}.Params(ctx, now)
	if err != nil {
		return nil, err
	}
	w.Audit = append(w.Audit, dbsqlc.RecordAuditParams(entry))
	return n.Message(), nil
}

func admit(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, p *baremetalv1.Plan) error {
	if err := Admitted(ctx, q, m, r, p); err != nil {
		return err
	}
	if plan.Destructive(p) {
		// What a workflow has proved must not be undone behind it.
		if err := workflowstate.NoOpenWorkflow(ctx, q, m.MachineID); err != nil {
			return err
		}
		if err := nodestate.NoDrift(ctx, q, m); err != nil {
			return err
		}
	}
	if s := plan.NotWired(p); s != nil && !plan.OfWorkflow(p) {
		return failure.Unimplemented("STEP_KIND_NOT_WIRED", "step %s of plan %s is of kind %s, which this version cannot run",
			s.GetName(), p.GetPlanId(), kind.OfStep(s))
	}
	return nil
}

// Admitted asks whether the machine may be worked on now. The request was loaded.
func Admitted(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, p *baremetalv1.Plan) error {
	f := r.begun
	destructive, err := catalogstore.DestructiveScripts(ctx, q, p)
	if err != nil {
		return err
	}
	state := convert.FleetFacts(m, f.conditions[m.MachineID])
	state.Freeze = f.freeze
	if r.drains(m) {
		state.NodeState = fleet.NodeState(node.Name(node.Draining))
	}
	if state.Repeatable, err = repeatable(ctx, q, m, p); err != nil {
		return err
	}
	if r := fleet.AdmitPlan(state, r.Type, fleet.PlanTraits{Destructive: destructive, LeavesSystem: plan.LeavesSystem(p),
		ReturnsFromRMA: plan.ReturnsFromRMA(p), Removes: r.Removes}); r != nil {
		e := failure.Precondition(r.Reason, "%s", r.Message).WithMeta("machine_id", m.MachineID).WithMeta("phase", m.Phase)
		if m.CurrentOperationID != nil {
			e = e.WithMeta("active_operation_id", *m.CurrentOperationID)
		}
		if m.UnresolvedCommandID != nil {
			e = e.WithMeta("unresolved_command_id", *m.UnresolvedCommandID)
		}
		return e
	}
	return nil
}

// repeatable returns the type of a start that asks for the same as the operation of the machine's unresolved command,
// where that may be asked for again; empty for any other start.
func repeatable(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, p *baremetalv1.Plan,
) (fleet.OperationType, error) {
	if m.UnresolvedCommandID == nil {
		return "", nil
	}
	row, err := q.GetCommand(ctx, *m.UnresolvedCommandID)
	if err != nil {
		return "", fmt.Errorf("read unresolved command: %w", err)
	}
	op, err := q.GetOperation(ctx, row.OperationID)
	if err != nil {
		return "", fmt.Errorf("read the operation of the unresolved command: %w", err)
	}
	if !operation.Repeatable(convert.CommandFromRow(&row)) || op.PlanID != p.GetPlanId() {
		return "", nil
	}
	return fleet.OperationType(op.Type), nil
}

func (s *Store) Fill(p *baremetalv1.Plan, m dbsqlc.Machine, in kind.Inputs) ([]plan.Filled, error) {
	spec, err := convert.SpecFromJSON(m.Spec)
	if err != nil {
		return nil, err
	}
	in.ClusterRef, in.MachinePath = spec.GetTargetClusterRef(), spec.GetInstallPath()
	if in.ImageRef == "" {
		in.ImageRef = spec.GetDefaultImageRef()
	}
	in.ProviderImage = in.ImageRef
	if in.ImageRef == "" {
		in.ImageRef = s.catalog.DefaultImage
	}
	return plan.Fill(p, in, s.catalog.Defaults)
}

// newOperation is an operation of which the rows are still to be written.
type newOperation struct {
	writes
	Op    operation.Operation
	Row   dbsqlc.Operation // as it will be
	steps []dbsqlc.OperationStep
}

func (n *newOperation) Message() *baremetalv1.Operation { return convert.OperationMessage(n.Row, n.Op) }

func (s *Store) newOperation(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, p *baremetalv1.Plan, steps []plan.Filled,
	now time.Time,
) (*newOperation, error) {
	op := operation.Operation{
		ID: ids.New(ids.Operation), MachineID: m.MachineID, Type: r.Type, PlanID: p.GetPlanId(), Phase: operation.Pending,
		WakeAt:       now,
		CurrentStage: steps[0].Step.GetName(), Version: 1, CreatedAt: now,
	}
	params, err := pgtx.JSONMap(r.Params)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(r.body())
	if err != nil {
		return nil, fmt.Errorf("serialize request: %w", err)
	}
	if op.Destructive, err = catalogstore.DestructiveScripts(ctx, q, p); err != nil {
		return nil, err
	}
	op.Destructive = op.Destructive || r.Harm == kind.Destroys
	if op.Interrupts, err = interrupts(ctx, q, m, r, p); err != nil {
		return nil, err
	}
	if op.Destructive && !r.Judged {
		if err := approvalstore.Admit(ctx, q, approvalstore.WorkOn(m.MachineID, r.Actor), now); err != nil {
			return nil, err
		}
	}
	n := &newOperation{Op: op, Row: dbsqlc.Operation{
		OperationID: op.ID, TargetID: m.MachineID, RequestID: r.RequestID, RequestBody: body, Type: string(r.Type),
		Phase: string(op.Phase), Params: params, PlanID: p.GetPlanId(), CurrentStage: op.CurrentStage,
		WakeAt:   &now,
		Evidence: []byte("{}"), EventSeq: 1, Version: 1, CreatedAt: now, UpdatedAt: now, Destructive: op.Destructive,
		Interrupts: op.Interrupts,
	}}
	pgtx.PostcommitOf(q).
		Note(&NewJob{JobKey: JobKey{OperationID: op.ID, MachineID: m.MachineID, RequestID: r.RequestID}})
		// every operation has its job
	return n, n.write(p, steps)
}

// interrupts reports whether the plan takes the machine out of service, in which it is.
func interrupts(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, p *baremetalv1.Plan,
) (bool, error) {
	if plan.HarmOf(p) == kind.Harmless || m.Phase != string(fleet.Ready) {
		return r.Harm == kind.Interrupts, nil
	}
	if r.begun != nil {
		return fleet.InService(convert.FleetFacts(m, r.begun.conditions[m.MachineID])), nil
	}
	conds, err := q.ConditionsOf(ctx, []string{m.MachineID})
	return err == nil && fleet.InService(convert.FleetFacts(m, conds)), pgtx.Wrap(err, "read conditions")
}

// InsertOperation writes the rows of a new operation. The transaction inserts its job before the commit.
func (s *Store) InsertOperation(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, p *baremetalv1.Plan, steps []plan.Filled,
	now time.Time,
) (*newOperation, error) {
	n, err := s.newOperation(ctx, q, m, r, p, steps, now)
	if err != nil {
		return nil, err
	}
	return n, n.flush(ctx, q)
}

// write gathers all rows of the new operation.
func (n *newOperation) write(p *baremetalv1.Plan, filled []plan.Filled) (err error) {
	if n.steps, err = stepRows(n.Op.ID, filled); err != nil {
		return err
	}
	before := n.Row
	before.Version, before.EventSeq = 0, 0
	created := operation.Decision{Op: n.Op, Notes: []operation.Note{{Kind: "created", Step: ""}}}
	events, err := eventParams(&OperationContext{Row: before}, created, n.Op.CreatedAt)
	if err != nil {
		return err
	}
	r := n.Row
	insert := dbsqlc.InsertOperationParams{
		OperationID: r.OperationID, TargetID: r.TargetID, RequestID: r.RequestID, RequestBody: r.RequestBody, Type: r.Type,
		Phase: r.Phase, Params: r.Params, PlanID: r.PlanID, CurrentStage: r.CurrentStage, WakeAt: r.WakeAt,
		EventSeq: r.EventSeq, Destructive: r.Destructive, Interrupts: r.Interrupts, CreatedAt: r.CreatedAt,
	}
	n.Writes = dbsqlc.Writes{
		Operations: []dbsqlc.InsertOperationParams{insert},
		Steps:      []dbsqlc.InsertStepsParams{insertSteps(r.OperationID, n.steps)},
		Current:    []dbsqlc.SetCurrentOperationParams{{OperationID: &r.OperationID, MachineID: r.TargetID}},
		Events:     []dbsqlc.InsertEventsParams{events},
	}
	if !p.GetUsed() {
		n.UsedPlans = []dbsqlc.MarkPlanUsedParams{{PlanID: r.PlanID, Now: &r.CreatedAt}}
	}
	return nil
}

// stepRows are the steps as they will be stored.
func stepRows(operationID string, steps []plan.Filled) (rows []dbsqlc.OperationStep, err error) {
	for i, f := range steps {
		spec, err := proto.MarshalOptions{Deterministic: true}.Marshal(f.Step)
		if err != nil {
			return nil, fmt.Errorf("serialize step: %w", err)
		}
		rows = append(rows, dbsqlc.OperationStep{
			OperationID: operationID, Idx: int32(i), Name: f.Step.GetName(), Kind: string(f.Kind), Spec: spec,
			TimeoutMs:  f.Timeout.Milliseconds(),
			MaxRetries: int32(f.Retries), State: string(operation.StepWaiting), Evidence: []byte("{}"),
		})
	}
	return rows, nil
}

func insertSteps(operationID string, rows []dbsqlc.OperationStep) dbsqlc.InsertStepsParams {
	p := dbsqlc.InsertStepsParams{OperationID: operationID}
	for _, r := range rows {
		p.Idxs = append(p.Idxs, r.Idx)
		p.Names = append(p.Names, r.Name)
		p.Kinds = append(p.Kinds, r.Kind)
		p.Specs = append(p.Specs, r.Spec)
		p.Timeouts = append(p.Timeouts, r.TimeoutMs)
		p.Retries = append(p.Retries, r.MaxRetries)
	}
	return p
}
