package workflow_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// walker is a workflow and its node in a random walk.
type walker struct {
	w      workflow.Workflow
	node   fleet.NodeState
	active bool // the attempt's operation
}

var reasons = slices.Sorted(maps.Values(baremetalv1.Reason_name))

func (v *walker) move(t *testing.T, moves []workflow.Move) {
	t.Helper()
	for _, m := range moves {
		from, to := node.Parse(string(v.node)), node.Parse(string(m.To))
		if _, refusal := node.Check(from, to, node.Trigger(m.By),
			node.Facts{ErasureRequired: true, ErasureVerified: true}); refusal != nil {
			t.Fatalf("the table of nodes refuses %s → %s by %s: %v", v.node, m.To, m.By, refusal)
		}
		v.node = m.To
	}
}

// event lets the attempt go on by one step, or end.
func (v *walker) event(t *testing.T, r *rand.Rand) {
	t.Helper()
	a := workflow.Attempt{Phase: "RUNNING", Step: workflow.StepName(v.w.Stage), Granted: r.IntN(2) == 0}
	switch r.IntN(12) {
	case 0:
		a.Phase, a.Reason = "FAILED", reasons[r.IntN(len(reasons))]
	case 1:
		a.Phase = "CANCELED"
	case 2:
		if v.w.State == workflow.Compensating {
			a.Phase = "CANCELED"
			break
		}
		a.Phase = "SUCCEEDED"
		for _, stage := range v.w.Plan[v.w.StageIdx:] {
			v.move(t, workflow.At(stage, v.node))
		}
	default:
		i := min(v.w.StageIdx+r.IntN(2), len(v.w.Plan)-1)
		a.Step = workflow.Steps([]workflow.Stage{mustFind(v.w.Kind, v.w.Plan[i])})[0].GetName()
		for _, stage := range v.w.Plan[v.w.StageIdx : i+1] {
			v.move(t, workflow.At(stage, v.node))
		}
	}
	v.w = workflow.Follow(v.w, a)
	if a.Phase != "RUNNING" {
		v.active = false
		v.move(t, workflow.Ending(v.w, v.node, r.IntN(2) == 0))
	}
}

func mustFind(k workflow.Kind, name string) workflow.Stage {
	s, _ := workflow.Find(k, name)
	return s
}

func (v *walker) act(t *testing.T, a workflow.Action, r *rand.Rand) {
	t.Helper()
	f := drainedFacts(r.IntN(4) == 0, v.active)
	f.Stage.Machine.NodeState, f.Stage.Kind, f.Stage.AgentLive, f.Stage.PowerOff = v.node, v.w.Kind, true, true
	e, refusal := workflow.Act(v.w, a, f)
	if refusal != nil || e.Nothing {
		return
	}
	if e.Reset {
		v.move(t, workflow.Resetting(e.Workflow, v.node))
	}
	v.w = e.Workflow
	if e.Attempt {
		v.active = true
		if s := workflow.From(v.w.Stages(), v.w.Stage)[0]; s.Opens {
			v.move(t, workflow.At(s.Name, v.node))
		}
	}
	if e.Release || e.CancelOperation && v.w.State == workflow.FailedManual {
		v.active = false
		v.move(t, workflow.Ending(v.w, v.node, true))
	}
}

// TestRandomWalk: 100,000 steps of events and actions in any order never reach a state without a legal exit, and take
// only transitions of the tables. They never leave a node in a state of work without a workflow.
func TestRandomWalk(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 2026))
	ended := map[workflow.State]int{}
	var v *walker
	for range 100_000 {
		if v == nil {
			v = newWalker(r)
		}
		was := v.w.State
		if v.active && r.IntN(3) > 0 {
			v.event(t, r)
		} else {
			v.act(t, workflow.Actions()[r.IntN(len(workflow.Actions()))], r)
		}
		if was != v.w.State && !leads(was, v.w.State, 3) {
			t.Fatalf("%s → %s", was, v.w.State)
		}
		if workflow.Terminal(v.w.State) {
			if text := workflow.Violation(v.w, v.node); text != "" {
				t.Fatal(text)
			}
			ended[v.w.State]++
			v = nil
			continue
		}
		if v.w.State == workflow.Cancelled && v.node == fleet.Quarantined {
			v = nil // an admin clears it, and it is in service
			continue
		}
		if len(workflow.Legal(v.w.State, false)) == 0 {
			t.Fatalf("no way out of %s", v.w.State)
		}
		if text := workflow.Violation(v.w, v.node); text != "" {
			t.Fatal(text)
		}
		if v.w.State == workflow.Cancelled && node.InProgress(node.Parse(string(v.node))) {
			t.Fatalf("cancelled, and the node is left %s", v.node)
		}
	}
	if ended[workflow.Completed] < 100 || ended[workflow.Reconciled] == 0 {
		t.Errorf("the walk ended in %v", ended)
	}
}

func newWalker(r *rand.Rand) *walker {
	k, m, n := workflow.Onboarding, workflow.NoMode, []fleet.NodeState{fleet.Discovered,
		fleet.BootstrapIssued}[r.IntN(2)]
	if r.IntN(3) > 0 {
		modes := workflow.Modes(workflow.Decommission)
		k, m, n = workflow.Decommission, modes[r.IntN(len(modes))],
			[]fleet.NodeState{fleet.Active, fleet.Offline}[r.IntN(2)]
	}
	t := workflow.Traits{Provider: "agent", BMC: r.IntN(2) == 0, Path: workflow.DefaultPath(n)}
	plan := workflow.Names(workflow.Plan(k, m, t))
	return &walker{w: workflow.Workflow{Kind: k, Mode: m, State: workflow.Pending, Plan: plan, Stage: plan[0], Attempts: 1,
		OperationID: "op"}, node: n, active: true}
}

// leads reports whether one action or event, which may take several transitions at once, goes from one state to
// another.
func leads(from, to workflow.State, most int) bool {
	if most == 0 {
		return false
	}
	for _, next := range workflow.Transitions[from] {
		if next == to || leads(next, to, most-1) {
			return true
		}
	}
	return false
}
