package operation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/start"
	approvalstore "github.com/ingot-metal/ingot/controller/store/approval"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/store/startfacts"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/ids"
)

// StartRequest asks for one piece of work on one machine.
type StartRequest = start.Request

// Start creates an operation, or returns the one that the same request has made before. created says which.
func (s *Store) Start(
	ctx context.Context, r StartRequest, now time.Time,
) (_ *baremetalv1.Operation, created bool, _ error) {
	a, asked := pgtx.LockKey{MachineID: r.MachineID, RequestID: r.RequestID}, s.db.Now()
	end, repeat, err := s.repeats.Begin(ctx, a)
	if err != nil {
		return nil, false, fmt.Errorf("wait for the same request: %w", err)
	}
	defer end()
	if repeat {
		if op, err := s.Replay(ctx, s.db.Q, r); op != nil || err != nil {
			return op, false, err
		}
	}
	stored, err := s.store(ctx, change{key: a, now: now, asked: asked,
		decide: func(q *dbsqlc.Queries, f *preloaded, w *writes, now time.Time) (answer, error) {
			m, ok := f.machines[r.MachineID]
			if !ok {
				return answer{}, convert.MachineNotFound(r.MachineID)
			}
			if row, ok := f.requests[request{r.MachineID, r.RequestID}]; ok {
				op, err := s.repeated(ctx, q, r, row)
				return answer{op: op}, err
			}
			op, err := s.create(ctx, q, w, m, r, f, now)
			return answer{op: op, created: true}, err
		}})
	if err != nil {
		return nil, false, fmt.Errorf("start operation: %w", err)
	}
	return stored.op, stored.created, nil
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
	t := fleet.OperationType(row.Type)
	if diff := pgtx.Differing(start.NormalBody(t, row.PlanID, convert.JSONToMap(row.RequestBody)),
		start.NormalBody(t, row.PlanID, r.Body())); len(diff) > 0 {
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

// Create makes an operation in a transaction that holds the machine's lock.
func (s *Store) Create(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, now time.Time,
) (*baremetalv1.Operation, error) {
	w := &writes{}
	op, err := s.create(ctx, q, w, m, r, nil, now)
	if err != nil {
		return nil, err
	}
	return op, w.flush(ctx, q)
}

// create loads the facts of a start, admits it and gathers the rows of the operation. loaded has the rows that the
// transaction has read of the machine already; nil reads them.
func (s *Store) create(
	ctx context.Context, q *dbsqlc.Queries, w *writes, m dbsqlc.Machine, r StartRequest, loaded *preloaded, now time.Time,
) (*baremetalv1.Operation, error) {
	facts, err := s.load(ctx, q, m, r, loaded)
	if err != nil {
		return nil, err
	}
	fit, err := startfacts.Admit(ctx, q, facts)
	if err != nil {
		return nil, err
	}
	n, err := s.newOperation(ctx, q, m, r, fit, now)
	if err != nil {
		return nil, err
	}
	w.Append(n.Writes)
	err = w.special(ctx, q, fit.ApprovesNode,
		func() error { return approveByInstalling(ctx, q, m, r, n.Op.ID, now) })
	if err != nil {
		return nil, err
	}
	n.evaluate(ctx, s, q, w, m, loaded, now)
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

// newOperation is an operation of which the rows are still to be written.
type newOperation struct {
	writes
	Op    operation.Operation
	Row   dbsqlc.Operation // as it will be
	steps []dbsqlc.OperationStep
	job   *NewJob
}

func (n *newOperation) Message() *baremetalv1.Operation { return convert.OperationMessage(n.Row, n.Op) }

// newOperation gathers the rows of an operation that was admitted. Approval policies judge destructive work once more,
// under their lock: another start may have used up what they let one person do.
func (s *Store) newOperation(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, fit Fit, now time.Time,
) (*newOperation, error) {
	if fit.Judge {
		if err := approvalstore.Admit(ctx, q, approvalstore.WorkOn(m.MachineID, r.Actor), now); err != nil {
			return nil, err
		}
	}
	op := operation.Operation{
		ID: ids.New(ids.Operation), MachineID: m.MachineID, Type: r.Type, PlanID: fit.Plan.GetPlanId(),
		Phase: operation.Pending, WakeAt: now, CurrentStage: fit.Steps[0].Step.GetName(), Version: 1, CreatedAt: now,
		Destructive: fit.Destroys, Interrupts: fit.Interrupts,
	}
	params, err := pgtx.JSONMap(r.Params)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(r.Body())
	if err != nil {
		return nil, fmt.Errorf("serialize request: %w", err)
	}
	n := &newOperation{Op: op, Row: dbsqlc.Operation{
		OperationID: op.ID, TargetID: m.MachineID, RequestID: r.RequestID, RequestBody: body, Type: string(r.Type),
		Phase: string(op.Phase), Params: params, PlanID: op.PlanID, CurrentStage: op.CurrentStage, WakeAt: &now,
		Evidence: []byte("{}"), EventSeq: 1, Version: 1, CreatedAt: now, UpdatedAt: now, Destructive: op.Destructive,
		Interrupts: op.Interrupts,
	}}
	n.job = &NewJob{JobKey: JobKey{OperationID: op.ID, MachineID: m.MachineID, RequestID: r.RequestID}}
	pgtx.NotesOf(q).Note(n.job) // every operation has its job
	return n, n.write(fit.Plan, fit.Steps)
}

// InsertOperation writes the rows of a new operation. The transaction inserts its job before the commit.
func (s *Store) InsertOperation(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, fit Fit, now time.Time,
) (*newOperation, error) {
	n, err := s.newOperation(ctx, q, m, r, fit, now)
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
