package operation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/start"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/incarnation"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/store/startfacts"
)

// Fit is work that may begin on a machine.
type Fit = start.Record

// ParamNotAsked is the parameter by which the answer of a dry run names what it could not ask, one sentence a line.
const ParamNotAsked = "not_asked"

// Fits returns the work as it would begin on the machine now, or its refusal. Previews, offers and the start itself ask
// the same facts and the same rules.
func (s *Store) Fits(ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest) (Fit, error) {
	f, err := s.load(ctx, q, m, r, nil)
	if err != nil {
		return Fit{}, err
	}
	return startfacts.Admit(ctx, q, f)
}

// load reads the facts that every start is decided by, with the plan that the request runs. loaded has the rows that
// the transaction has read of the machine already; nil reads them.
func (s *Store) load(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, loaded *preloaded,
) (*start.Facts, error) {
	f, err := s.facts(ctx, q, m, r, loaded)
	if err != nil {
		return nil, err
	}
	f.Plan, err = s.catalog.UsedPlan(ctx, q, f.PlanID())
	return f, err
}

// Facts reads the facts that every start is decided by, but for the plan.
func (s *Store) Facts(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest,
) (*start.Facts, error) {
	return s.facts(ctx, q, m, r, nil)
}

func (s *Store) facts(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest, loaded *preloaded,
) (*start.Facts, error) {
	if loaded == nil {
		var err error
		if loaded, err = s.readStart(ctx, q, m, r); err != nil {
			return nil, err
		}
	}
	caller, _ := call.Caller(ctx) // none for work of the controller's own
	machine, err := startfacts.Machine(m, loaded.conditions[m.MachineID])
	machine.Freeze = loaded.freeze
	return &start.Facts{
		Now: s.db.Now(), Request: r, Caller: caller, Machine: machine,
		Agents: startfacts.Agents(loaded.executors[m.MachineID]), Boot: startfacts.Boot(loaded.boots[m.MachineID]),
		Defaults: s.catalog.Defaults, DefaultImage: s.catalog.DefaultImage,
	}, err
}

// readStart reads the rows that every start is decided by. An operation that touches no machine needs no agent.
func (s *Store) readStart(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, r StartRequest,
) (*preloaded, error) {
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
		return nil, err
	}
	var err error
	f.freeze, err = incarnation.WithCause(ctx, q, f.freeze)
	return f, err
}

// unfitNow returns why the image cannot be installed for which the operation is about to leave the machine's system;
// nil for any other operation, and where it may.
func (l *OperationContext) unfitNow(ctx context.Context, q *dbsqlc.Queries) (*fleet.Refusal, error) {
	op := l.Snap.Op
	if operation.IsTerminal(op.Phase) || !start.OnMetal(l.machine, l.agents) {
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
	known, err := startfacts.Installation(ctx, q, l.Machine.MachineID, step.GetRepave().GetImage())
	if err != nil {
		return nil, err
	}
	known.Spec, known.Agents = l.machine.Spec, l.agents
	return known.Unfit(step.GetRepave()), nil
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
