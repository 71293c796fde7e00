package machine

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/explain/rules"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/validate"
)

// normalsFor is how long measured durations are used.
const normalsFor = time.Minute

// normals keeps the normal durations for a minute.
type normals struct {
	mu   sync.Mutex
	at   time.Time
	last explain.Baselines
}

// durations measures how long steps take.
type durations interface {
	StepNormals(ctx context.Context) (explain.Baselines, error)
}

// get measures anew when a minute is over. A measurement that fails leaves the one before.
func (n *normals) get(ctx context.Context, store durations, now time.Time) (explain.Baselines, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.at.IsZero() && now.Sub(n.at) < normalsFor {
		return n.last, nil
	}
	got, err := store.StepNormals(ctx)
	if err != nil {
		return n.last, err
	}
	n.last, n.at = got, now
	return got, nil
}

// ExplainMachine implements MachineService.
func (s *Server) ExplainMachine(
	ctx context.Context, r *baremetalv1.ExplainMachineRequest,
) (*baremetalv1.ExplainMachineResponse, error) {
	if r.GetMachineId() != "" || r.GetOperationId() == "" {
		if err := validate.Key("machine_id", r.GetMachineId()); err != nil {
			return nil, err
		}
	}
	if r.GetOperationId() != "" {
		if err := validate.Key("operation_id", r.GetOperationId()); err != nil {
			return nil, err
		}
	}
	now := s.Clock.Now()
	facts, err := s.stores.Explain.ExplainFacts(ctx, r.GetMachineId(), r.GetOperationId(), now)
	if err != nil {
		return nil, err
	}
	measured, err := s.normals.get(ctx, s.stores.Explain, now)
	if err != nil {
		return nil, err
	}
	return explained(facts.Machine.GetMachineId(), rules.Explain(facts.WithBaselines(measured))), nil
}

// mostExplained is how many machines one answer explains at most, and without a page size.
const mostExplained = 100

// attentionFilter selects the machines that are explained without another filter.
const attentionFilter = "effective_state=ATTENTION"

// withoutShared leaves out the machines that are counted in shared causes.
const withoutShared = "attention_reason!=" + fleet.AttentionNotObserved

// explainPage is the page that a request asks for.
type explainPage struct {
	*baremetalv1.ExplainMachinesRequest
}

// GetPageSize implements service.PageRequest.
func (p explainPage) GetPageSize() int32 {
	size := p.ExplainMachinesRequest.GetPageSize()
	if size == 0 || size > mostExplained {
		return mostExplained
	}
	return size
}

// ExplainMachines implements MachineService.
func (s *Server) ExplainMachines(
	ctx context.Context, r *baremetalv1.ExplainMachinesRequest,
) (*baremetalv1.ExplainMachinesResponse, error) {
	text := cmp.Or(r.GetFilter(), attentionFilter)
	terms, err := query.Machines.Parse(text)
	if err != nil {
		return nil, err
	}
	// Machines of a caller with roles for some of them are not counted, so each has its own entry.
	caller, _ := call.Caller(ctx)
	_, restricted := caller.Within()
	shared := shares(terms) && !restricted
	if shared {
		left, err := query.Machines.Parse(withoutShared)
		if err != nil {
			return nil, err
		}
		terms = append(terms, left...)
	}
	list, err := s.Walk(ctx, "explained machines", text, terms, service.WalkStart{}, false)
	if err != nil {
		return nil, err
	}
	p, err := service.Page(ctx, s.Base, list, explainPage{r})
	if err != nil {
		return nil, err
	}
	out := &baremetalv1.ExplainMachinesResponse{NextPageToken: p.Next, TotalSize: p.Total}
	if shared && r.GetPageToken() == "" {
		if out.SharedCauses, err = s.sharedCauses(ctx, text); err != nil {
			return nil, err
		}
	}
	if out.Machines, err = s.explainEach(ctx, p.Rows); err != nil {
		return nil, err
	}
	return out, nil
}

// explainEach explains machines in their order, without those that have gone meanwhile.
func (s *Server) explainEach(ctx context.Context, all []*baremetalv1.Machine) ([]*baremetalv1.ExplainedMachine, error) {
	now := s.Clock.Now()
	found := s.explained.of(all, now)
	var ids []string
	for _, m := range all {
		if found[m.GetMachineId()] == nil {
			ids = append(ids, m.GetMachineId())
		}
	}
	facts, err := s.stores.Explain.ExplainFactsOf(ctx, ids, now)
	if err != nil {
		return nil, err
	}
	measured, err := s.normals.get(ctx, s.stores.Explain, now)
	if err != nil {
		return nil, err
	}
	for _, f := range facts {
		id := f.Machine.GetMachineId()
		found[id] = &baremetalv1.ExplainedMachine{
			Machine: f.Machine, Explanation: explained(id, rules.Explain(f.WithBaselines(measured))),
		}
		s.explained.keep(found[id], now)
	}
	var out []*baremetalv1.ExplainedMachine
	for _, m := range all {
		if e := found[m.GetMachineId()]; e != nil {
			out = append(out, e)
		}
	}
	return out, nil
}

func explained(machineID string, e explain.Explanation) *baremetalv1.ExplainMachineResponse {
	out := &baremetalv1.ExplainMachineResponse{
		MachineId: machineID, Summary: e.Summary, OperationId: e.OperationID, Step: e.Step, StepKind: e.StepKind,
		StepStartedAt: service.StampIfSet(e.StepStarted), WaitsOn: string(e.WaitsOn), WaitsFor: e.WaitsFor,
		Since:  service.StampIfSet(e.Since),
		Reason: e.Cause.Reason, Cause: e.Cause.Text, Facts: e.Cause.Facts,
		LastEvidence: e.LastEvidence, LastEvidenceAt: service.StampIfSet(e.LastEvidenceAt), NextAction: e.Next,
		NextActionAt:   service.StampIfSet(e.NextAt),
		StepP50Seconds: e.Normal.P50.Seconds(), StepP95Seconds: e.Normal.P95.Seconds(), StepSamples: int32(e.Normal.Samples),
		StepPopulation: e.Normal.Population, Stuck: e.Stuck, Rule: e.Rule,
	}
	for _, a := range e.Actions {
		out.OperatorActions = append(out.OperatorActions, a.Command)
		out.Actions = append(out.Actions, &baremetalv1.OperatorAction{Command: a.Command, Consequence: a.Consequence,
			Destructive: a.Destructive})
	}
	return out
}

const (
	// explainedFor is how long an explanation stands of a machine that does not change. Its work's progress is so old at
	// most.
	explainedFor = 5 * time.Second
	// mostKept bounds the explanations that are kept, and with them the memory: some 5 MB.
	mostKept = 1000
)

// explanations are those that were made last: many consoles ask about the same machines, and each answer takes some
// thirty statements.
type explanations struct {
	mu  sync.Mutex
	all map[string]explanation
}

type explanation struct {
	*baremetalv1.ExplainedMachine

	at time.Time
}

// of returns the known explanations of these machines, as they are, by machine_id. An answer must not be changed.
func (e *explanations) of(machines []*baremetalv1.Machine, now time.Time) map[string]*baremetalv1.ExplainedMachine {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := map[string]*baremetalv1.ExplainedMachine{}
	for _, m := range machines {
		known, ok := e.all[m.GetMachineId()]
		if ok && now.Sub(known.at) < explainedFor && known.GetMachine().GetVersion() == m.GetVersion() {
			out[m.GetMachineId()] = known.ExplainedMachine
		}
	}
	return out
}

// keep keeps an explanation that was made of what was read at a time or later.
func (e *explanations) keep(one *baremetalv1.ExplainedMachine, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.all) >= mostKept {
		maps.DeleteFunc(e.all, func(_ string, x explanation) bool { return at.Sub(x.at) >= explainedFor })
	}
	if e.all == nil || len(e.all) >= mostKept {
		e.all = map[string]explanation{}
	}
	e.all[one.GetMachine().GetMachineId()] = explanation{one, at}
}
