package operation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	approvalstore "github.com/ingot-metal/ingot/controller/store/approval"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/incarnation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/store/startcheck"
)

// Fit is work that may begin on a machine.
type Fit struct {
	Plan  *baremetalv1.Plan
	Steps []plan.Filled
	// NotAsked lists what could not be known before the work, one sentence each.
	NotAsked []string
}

// ParamNotAsked is the parameter by which the answer of a dry run names what it could not ask, one sentence a line.
const ParamNotAsked = "not_asked"

// Load returns the request with what a start decides by, unless it holds that already. A call that asks several
// questions of one machine reads it once.
func (s *Store) Load(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest) (StartRequest, error) {
	if r.begun != nil {
		return r, nil
	}
	f := &preloaded{
		conditions: map[string][]dbsqlc.MachineCondition{}, executors: map[string][]dbsqlc.CandidatesForRow{},
		boots: map[string]dbsqlc.BootWorldsRow{},
	}
	reads := []func(*dbsqlc.Queries) error{
		func(q *dbsqlc.Queries) error { return f.readConditions(ctx, q, []string{m.MachineID}) },
		func(q *dbsqlc.Queries) (err error) { f.freeze, err = incarnation.FreezeSince(ctx, q); return err },
	}
	if !fleet.Housekeeping(r.Type) {
		p := dbsqlc.CandidatesForParams{
			Now: s.db.Now(), MachineIds: []string{m.MachineID}, OperationIds: []string{pgtx.StrVal(m.CurrentOperationID)},
			Sites: []string{m.Site},
		}
		reads = append(reads,
			func(q *dbsqlc.Queries) error { return f.readExecutors(ctx, q, p) },
			func(q *dbsqlc.Queries) error { return f.readBoots(ctx, q, p.MachineIds) },
		)
	}
	if err := q.Together(ctx, reads...); err != nil {
		return r, err
	}
	var err error
	f.freeze, err = incarnation.WithCause(ctx, q, f.freeze)
	r.begun = f
	return r, err
}

// Admissible asks what every kind of work is asked once its steps are known, operations and attempts of workflows
// alike. stage is nil outside of workflows. The request was loaded.
func (s *Store) Admissible(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, fit Fit, stage *workflow.StageFacts,
) (Fit, error) {
	spec, err := convert.SpecFromJSON(m.Spec)
	if err != nil {
		return fit, err
	}
	w := startcheck.World{
		Machine: m, Spec: spec, Conditions: r.begun.conditions[m.MachineID], Executors: r.begun.executors[m.MachineID],
		Boot: r.begun.boots[m.MachineID], Freeze: r.begun.freeze, Stage: stage, Now: s.db.Now(),
	}
	destroys, err := catalogstore.DestructiveScripts(ctx, q, fit.Plan)
	if err == nil && (destroys || r.Harm == kind.Destroys) && !r.Judged {
		err = approvalstore.Ask(ctx, q, approvalstore.WorkOn(m.MachineID, r.Actor), w.Now)
	}
	if err != nil {
		return fit, err
	}
	fit.NotAsked, err = startcheck.Check(ctx, q, w, startcheck.Work{
		Type: r.Type, PlanID: fit.Plan.GetPlanId(), Steps: fit.Steps, Agentless: r.Inputs.Agentless,
		Seed: r.Params["seed"] != "", AfterInstall: r.AfterInstall,
	})
	return fit, err
}

// unfitNow returns why the image cannot be installed for which the operation is about to leave the machine's system;
// nil for any other operation, and where it may.
func (l *OperationContext) unfitNow(ctx context.Context, q *dbsqlc.Queries) (*fleet.Refusal, error) {
	op := l.Snap.Op
	if operation.IsTerminal(op.Phase) || !startcheck.OnMetal(l.Machine, l.executors) {
		return nil, nil
	}
	i := op.CurrentStep
	for i < len(op.Steps)-1 && kind.Of(op.Steps[i].Kind).SetsNextBoot {
		i++
	}
	left := l.command != nil && int(l.command.StepIdx) == i
	if !kind.Of(op.Steps[i].Kind).WritesSystem || left {
		return nil, nil
	}
	step := &baremetalv1.Step{}
	if err := convert.ParseStep(l.steps[i].Spec, step); err != nil {
		return nil, err
	}
	return startcheck.Unfit(ctx, q, l.Machine.MachineID, l.spec, l.executors, step.GetRepave())
}

// Validated returns the machine as a call that only validates judges it: see fleet.ValidatedPhase.
func Validated(m dbsqlc.Machine, t fleet.OperationType) dbsqlc.Machine {
	m.Phase = string(fleet.ValidatedPhase(fleet.Phase(m.Phase), t))
	return m
}

// ValidateStart asks what Start asks, of a machine that is judged as in maintenance, and stores nothing. It returns the
// operation that would start, without an id; one that the same request has started before is returned as it is.
func (s *Store) ValidateStart(ctx context.Context, r StartRequest) (*baremetalv1.Operation, Fit, error) {
	op, fit, err := s.validateStart(ctx, r)
	return op, fit, pgtx.Wrap(err, "validate operation")
}

func (s *Store) validateStart(ctx context.Context, r StartRequest) (*baremetalv1.Operation, Fit, error) {
	q := s.db.Q
	if op, err := s.Replay(ctx, q, r); op != nil || err != nil {
		return op, Fit{}, err
	}
	m, err := q.GetMachine(ctx, r.MachineID)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, Fit{}, convert.MachineNotFound(r.MachineID)
	}
	if err != nil {
		return nil, Fit{}, fmt.Errorf("read machine: %w", err)
	}
	fit, err := s.Fits(ctx, q, Validated(m, r.Type), r)
	if err != nil {
		return nil, fit, err
	}
	return proposed(r, fit), fit, nil
}

// proposed returns the operation that a request would start, without an id.
func proposed(r StartRequest, fit Fit) *baremetalv1.Operation {
	params := maps.Clone(r.Params)
	if params == nil {
		params = map[string]string{}
	}
	params[ParamNotAsked] = strings.Join(fit.NotAsked, "\n")
	return &baremetalv1.Operation{
		MachineId: r.MachineID, RequestId: r.RequestID, PlanId: fit.Plan.GetPlanId(), Params: params,
		Type:         baremetalv1.Operation_OperationType(baremetalv1.Operation_OperationType_value[string(r.Type)]),
		CurrentStage: fit.Steps[0].Step.GetName(),
	}
}
