package rollout

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/domain/budget"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
	approvalstore "github.com/ingot-metal/ingot/controller/store/approval"
	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
)

// RolloutRequest asks for a rollout, or for its preview.
type RolloutRequest struct {
	RequestID string
	// Spec has its defaults filled in.
	Spec *baremetalv1.RolloutSpec
	// Machines are walks that together give what the filter matches, each machine once.
	Machines []machinestore.MachineFilter
	// Work is the work on each machine; its MachineID and RequestID are empty.
	Work operationstore.StartRequest
	// Digest is that of the preview; only for a creation.
	Digest         string
	Actor, Comment string
	// By is the caller, by whose rights the rollout goes on.
	By access.Caller
	// validates judges every machine as in maintenance.
	validates bool
}

// PreviewRollout returns the machines and the limits of a rollout.
func (s *Store) PreviewRollout(
	ctx context.Context, r RolloutRequest, now time.Time,
) (*baremetalv1.RolloutPreview, error) {
	p, err := s.foresee(ctx, r, now)
	if err != nil {
		return nil, fmt.Errorf("preview rollout: %w", err)
	}
	return p, nil
}

// preview is one that is being made.
type preview struct {
	store *Store
	q     *dbsqlc.Queries
	r     RolloutRequest
	// byID are the machines that were looked at; fit those that can be worked on.
	byID    map[string]*baremetalv1.RolloutMachine
	refused []*baremetalv1.RolloutMachine
	fit     []rollout.Machine
	places  map[string]budget.Place
	// takesService are the machines for which the work needs a slot of the budgets for interruptions.
	takesService map[string]bool
	// lists are the step lists by their content.
	lists map[string]int32
	// interrupting counts the machines in service that the rollout takes out of it.
	interrupting int
	// racks are the racks of the machines that name one.
	racks map[string]string
	// notAsked counts machines by what could not be asked about them.
	notAsked map[string]int
	out      *baremetalv1.RolloutPreview
}

func (s *Store) foresee(ctx context.Context, r RolloutRequest, now time.Time) (*baremetalv1.RolloutPreview, error) {
	p := &preview{
		store:        s,
		q:            s.db.Q,
		r:            r,
		byID:         map[string]*baremetalv1.RolloutMachine{},
		lists:        map[string]int32{},
		places:       map[string]budget.Place{},
		takesService: map[string]bool{},
		notAsked:     map[string]int{},
		racks:        map[string]string{},
		out:          &baremetalv1.RolloutPreview{Spec: r.Spec},
	}
	if r.Work.PlanID != "" {
		if _, err := catalogstore.GetPlan(ctx, s.db.Q, r.Work.PlanID); err != nil {
			return nil, err
		}
	}
	walks, err := s.walks(ctx, r, now)
	if err != nil {
		return nil, err
	}
	for _, f := range walks {
		if err := p.walk(ctx, f); err != nil {
			return nil, err
		}
	}
	rules, groups, _, err := budgetstore.BudgetWorld(ctx, p.q, &s.budgets.Counts, now)
	if err != nil {
		return nil, err
	}
	p.bound(rules)
	p.arrange()
	p.budgets(rules, groups, now)
	if p.out.Destructive {
		p.out.ApprovalPolicies, err = approvalstore.Demanding(ctx, s.db.Q, approvalWork(r, p.out), now)
		if err != nil {
			return nil, err
		}
	}
	p.out.NotAsked = remarks(p.notAsked)
	p.out.Digest, err = p.digest()
	return p.out, err
}

// approvalWork is the work of a rollout as approval policies judge it.
func approvalWork(r RolloutRequest, p *baremetalv1.RolloutPreview) approvalstore.Work {
	w := approvalstore.Work{Actor: r.Actor}
	for _, m := range p.GetMachines() {
		if m.GetState() == baremetalv1.RolloutMachine_PENDING {
			w.Machines = append(w.Machines, m.GetMachineId())
		}
	}
	return w
}

// walk looks at every machine that a filter matches.
func (p *preview) walk(ctx context.Context, f machinestore.MachineFilter) error {
	f.Limit = selectedAtOnce
	for {
		rows, err := p.store.machines.WalkRows(ctx, f)
		if err != nil {
			return err
		}
		for _, m := range rows {
			if err := p.look(ctx, m); err != nil {
				return err
			}
		}
		if err := rollout.MayHold(len(p.byID), "spec.filter"); err != nil {
			return err
		}
		if len(rows) < selectedAtOnce {
			return nil
		}
		f.AfterID = rows[len(rows)-1].MachineID
	}
}

// look asks whether the machine could be worked on now, and how.
func (p *preview) look(ctx context.Context, m dbsqlc.Machine) error {
	if p.byID[m.MachineID] != nil {
		return nil
	}
	place, err := budgetstore.PlaceOfMachine(m)
	if err != nil {
		return err
	}
	row := &baremetalv1.RolloutMachine{
		MachineId: m.MachineID, Domain: place.In(p.r.Spec.GetDomain()), State: baremetalv1.RolloutMachine_PENDING,
	}
	p.byID[m.MachineID] = row
	fit, err := p.store.fits(ctx, p.q, p.r.judged(m), p.r.Spec, p.r.kind(), p.r.Work)
	var f *failure.Error
	switch {
	case err == nil:
	case errors.As(err, &f) && f.Reason == "FLEET_FROZEN":
		return err
	case errors.As(err, &f) && workflowstore.RefusesMachine(f):
		row.State, row.Reason, row.Message = baremetalv1.RolloutMachine_SKIPPED, f.Reason, f.Message
		row.Code = int32(f.Kind.Code())
		p.refused = append(p.refused, row)
		return nil
	default:
		return fmt.Errorf("look at machine %s: %w", m.MachineID, err)
	}
	if m.Phase == string(fleet.Ready) {
		p.out.InService++
		_, workflow, _ := WorkflowOf(p.r.Spec) // its error was returned by fits
		if workflow || len(rollout.Stages(p.r.kind())) > 1 || plan.HarmOf(fit.Plan) >= kind.Interrupts {
			p.interrupting++
		}
	}
	if rack := place.In(rollout.RackDomain); rack != "" {
		p.racks[m.MachineID] = rack
	}
	p.fit = append(p.fit, rollout.Machine{ID: m.MachineID, Domain: row.GetDomain()})
	p.places[m.MachineID], p.takesService[m.MachineID] = place, fit.Interrupts
	for _, sentence := range fit.NotAsked {
		p.notAsked[sentence]++
	}
	row.StepList, err = p.stepList(ctx, fit.Plan, fit.Steps)
	return err
}

// fits checks all that the rollout does on the machine. Its preview and its start of the machine ask it. Each operation
// is checked on the machine as it is now, but for the phase, which the first of several changes.
func (s *Store) fits(
	ctx context.Context, q *dbsqlc.Queries, m dbsqlc.Machine, spec *baremetalv1.RolloutSpec, kind string,
	work operationstore.StartRequest,
) (all operationstore.Fit, err error) {
	if w, ok, err := WorkflowOf(spec); ok {
		if err != nil {
			return all, err
		}
		return s.workflows.Fits(ctx, q, m, w)
	}
	work.Judged = true // approval policies judge the rollout as a whole
	stages := rollout.Stages(kind)
	if len(stages) == 1 {
		return s.operations.Fits(ctx, q, m, work)
	}
	for _, t := range stages {
		fit, err := s.operations.Fits(ctx, q, m, stageWork(work, spec, t))
		if err != nil {
			return all, err
		}
		all.Steps, all.NotAsked = append(all.Steps, fit.Steps...), append(all.NotAsked, fit.NotAsked...)
		all.Interrupts = all.Interrupts || fit.Interrupts
		m.Phase = string(fleet.Maintenance)
	}
	all.Plan = &baremetalv1.Plan{PlanId: strings.ToLower(kind)}
	return all, nil
}

// maxRemarks bounds the sentences of one answer.
const maxRemarks = 20

// remarks returns the sentences with the number of machines each, the most frequent first.
func remarks(machines map[string]int) []string {
	all := slices.SortedFunc(maps.Keys(machines), func(a, b string) int {
		return cmp.Or(machines[b]-machines[a], strings.Compare(a, b))
	})
	out := make([]string, 0, min(len(all), maxRemarks))
	for _, sentence := range all[:min(len(all), maxRemarks)] {
		out = append(out, fmt.Sprintf("%s (machines: %d)", sentence, machines[sentence]))
	}
	return out
}

// judged returns the machine as the request judges it. Work that enters maintenance itself is judged where it begins.
func (r RolloutRequest) judged(m dbsqlc.Machine) dbsqlc.Machine {
	if !r.validates || r.Spec.GetEnterMaintenance() || len(rollout.Stages(r.kind())) > 1 {
		return m
	}
	return operationstore.Validated(m, r.Work.Type)
}

// kind is the stored type of the rollout.
func (r RolloutRequest) kind() string {
	switch {
	case r.Spec.GetAction() == baremetalv1.RolloutSpec_PROVISION && r.Spec.GetTest() != nil:
		return rollout.ProvisionTested
	case r.Spec.GetAction() == baremetalv1.RolloutSpec_PROVISION:
		return rollout.Provision
	}
	return string(r.Work.Type)
}

// stageWork is the work of one of several operations on a machine. Parameters belong to the one that installs.
func stageWork(
	r operationstore.StartRequest, spec *baremetalv1.RolloutSpec, t fleet.OperationType,
) operationstore.StartRequest {
	r.Type = t
	switch t {
	case fleet.Reimage:
	case fleet.TestHardware:
		r.Inputs, r.Params = kind.Inputs{Test: spec.GetTest()}, validate.TestParams(spec.GetTest())
		r.AfterInstall = true
	default:
		r.Inputs, r.Params = kind.Inputs{}, nil
	}
	return r
}

// stepList finds the list among those that there are, or adds it.
func (p *preview) stepList(ctx context.Context, pl *baremetalv1.Plan, steps []plan.Filled) (int32, error) {
	list := &baremetalv1.RolloutSteps{PlanId: pl.GetPlanId()}
	for _, f := range steps {
		step := proto.Clone(f.Step).(*baremetalv1.Step)
		step.TimeoutSeconds, step.MaxRetries = int32(f.Timeout/time.Second), int32(f.Retries)
		list.Steps = append(list.Steps, step)
	}
	raw, err := proto.MarshalOptions{Deterministic: true}.Marshal(list)
	if err != nil {
		return 0, fmt.Errorf("serialize steps: %w", err)
	}
	n, known := p.lists[string(raw)]
	if !known {
		n = int32(len(p.out.StepLists))
		p.lists[string(raw)] = n
		for _, step := range list.Steps {
			lost, err := catalogstore.DestructiveScripts(ctx, p.q, &baremetalv1.Plan{Steps: []*baremetalv1.Step{step}})
			if err != nil {
				return 0, err
			}
			if lost {
				list.DestructiveSteps = append(list.DestructiveSteps, step.GetName())
				p.out.Destructive = true
			}
		}
		p.out.StepLists = append(p.out.StepLists, list)
	}
	p.out.StepLists[n].Machines++
	return n, nil
}

// arrange puts the machines into order and waves.
func (p *preview) arrange() {
	ordered := rollout.Order(p.fit)
	p.fit = ordered
	for i, size := range rollout.Waves(p.spec(), len(ordered)) {
		wave := int32(i + 1)
		p.out.Waves = append(p.out.Waves, &baremetalv1.RolloutWave{
			Wave: wave, Tally: tallyMessage(rollout.Tally{Machines: size, Pending: size}),
		})
		for _, m := range ordered[:size] {
			p.byID[m.ID].Wave = wave
			p.out.Machines = append(p.out.Machines, p.byID[m.ID])
		}
		ordered = ordered[size:]
	}
	p.out.Machines = append(p.out.Machines, p.refused...)
}

// bound sets how many machines are under work at a time where neither the caller nor a budget sets it.
func (p *preview) bound(rules []budget.Rule) {
	if p.interrupting == 0 || p.r.Spec.GetMaxInFlight() > 0 || p.covered(rules) {
		return
	}
	inFlight, perRack := rollout.DefaultBound(len(p.fit), len(p.racks) == len(p.fit) && p.r.Spec.GetDomain() == "")
	p.out.DefaultInFlight, p.out.DefaultPerRack = int32(inFlight), int32(perRack)
	if perRack > 0 {
		for i, m := range p.fit {
			p.fit[i].Domain = p.racks[m.ID]
			p.byID[m.ID].Domain = p.racks[m.ID]
		}
	}
}

// covered reports whether each machine falls under a budget of interruptions.
func (p *preview) covered(rules []budget.Rule) bool {
	for _, place := range p.places {
		if !slices.ContainsFunc(rules, func(r budget.Rule) bool {
			return r.Harm == kind.Interrupts && r.Covers(place)
		}) {
			return false
		}
	}
	return true
}

// budgets reads which budgets leave less room than the rollout would use.
func (p *preview) budgets(rules []budget.Rule, groups []budget.Group, now time.Time) {
	harms := func(id string) (out []kind.Harm) {
		if p.out.Destructive {
			out = append(out, kind.Destroys)
		}
		if p.takesService[id] {
			out = append(out, kind.Interrupts)
		}
		return out
	}
	for _, u := range rollout.Bound(p.spec(), rules, groups, p.fit, p.places, harms, now) {
		p.out.Budgets = append(p.out.Budgets, &baremetalv1.RolloutBudget{
			Name: u.Rule.Name, Domain: u.Rule.Domain, Value: u.Value, Kind: string(u.Kind), Limit: int32(u.Limit),
			Wanted: int32(u.Wanted),
		})
	}
}

// spec returns how carefully the rollout goes.
func (p *preview) spec() rollout.Spec {
	return rolloutSpec(p.r.Spec).Bounded(int(p.out.GetDefaultInFlight()), int(p.out.GetDefaultPerRack()))
}

// digest is over everything that the preview promises.
func (p *preview) digest() (string, error) {
	h := sha256.New()
	part := func(b []byte) { fmt.Fprintf(h, "%d:%s", len(b), b) }
	marshal := proto.MarshalOptions{Deterministic: true}
	spec, err := marshal.Marshal(p.r.Spec)
	if err != nil {
		return "", fmt.Errorf("serialize spec: %w", err)
	}
	part(spec)
	part(fmt.Appendf(nil, "%d %d", p.out.GetDefaultInFlight(), p.out.GetDefaultPerRack()))
	for _, l := range p.out.StepLists {
		raw, err := marshal.Marshal(l)
		if err != nil {
			return "", fmt.Errorf("serialize steps: %w", err)
		}
		part(raw)
	}
	for _, m := range p.out.Machines {
		part(fmt.Appendf(nil, "%q %d %q %s %s %d", m.GetMachineId(), m.GetWave(), m.GetDomain(), m.GetState(), m.GetReason(),
			m.GetStepList()))
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// rolloutSpec is the part of a spec that decides.
func rolloutSpec(s *baremetalv1.RolloutSpec) rollout.Spec {
	out := rollout.Spec{
		Canary: int(s.GetCanary()), MaxInFlight: int(s.GetMaxInFlight()), MaxPerDomain: int(s.GetMaxPerDomain()),
		WaveGate: rolloutGate(s.GetWaveGate()), TotalGate: rolloutGate(s.GetTotalGate()),
		Soak: time.Duration(s.GetSoakSeconds()) * time.Second, CancelOnGate: s.GetOnGate() == "cancel",
	}
	for _, p := range s.GetPercents() {
		out.Percents = append(out.Percents, int(p))
	}
	return out
}

func rolloutGate(g *baremetalv1.RolloutGate) rollout.Gate {
	return rollout.Gate{Failures: int(g.GetFailures()), Percent: int(g.GetPercent())}
}
