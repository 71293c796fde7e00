package workflow_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/node"
	"github.com/ingot-metal/ingot/controller/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// What the requirements say of actions: the states in which each is legal. "stalled" is running whose task is stalled or
// lost.
var legal = map[workflow.Action]string{
	workflow.RetryStage:   "FAILED_RETRYABLE FAILED_MANUAL_INTERVENTION",
	workflow.Adopt:        "FAILED_RETRYABLE FAILED_MANUAL_INTERVENTION",
	workflow.Resume:       "FAILED_RETRYABLE FAILED_MANUAL_INTERVENTION stalled",
	workflow.Rerun:        "FAILED_RETRYABLE FAILED_MANUAL_INTERVENTION CANCELLED",
	workflow.RestartClean: "FAILED_RETRYABLE FAILED_MANUAL_INTERVENTION CANCELLED",
	workflow.Cancel:       "PENDING RUNNING FAILED_RETRYABLE FAILED_MANUAL_INTERVENTION",
	workflow.MarkManual:   "PENDING RUNNING FAILED_RETRYABLE FAILED_MANUAL_INTERVENTION COMPENSATING",
}

func working(s workflow.State) bool {
	return s == workflow.Pending || s == workflow.Running || s == workflow.Compensating
}

func wanted(s workflow.State, stalled bool, a workflow.Action) bool {
	in := strings.Fields(legal[a])
	return slices.Contains(in, string(s)) || stalled && working(s) && slices.Contains(in, "stalled")
}

func sample(s workflow.State) workflow.Workflow {
	plan := workflow.Names(workflow.Plan(workflow.Decommission, workflow.FullDecommission, workflow.Traits{BMC: true}))
	return workflow.Workflow{
		ID: "wf-1", Kind: workflow.Decommission, Mode: workflow.FullDecommission, State: s, Plan: plan, Stage: workflow.DrainNode, StageIdx: 2,
		OperationID: "op-1", Attempts: 1,
	}
}

// drainedFacts let DrainNode be adopted.
func drainedFacts(stalled, active bool) workflow.Facts {
	return workflow.Facts{Stalled: stalled, OperationActive: active, Stage: workflow.StageFacts{
		Kind: workflow.Decommission, Machine: fleet.Facts{NodeState: workflow.Active},
	}}
}

// TestEveryStateAndAction: what the table allows has an effect that the transitions allow; a repeat has none; all else is
// refused and names what is allowed.
func TestEveryStateAndAction(t *testing.T) {
	for _, s := range workflow.States() {
		for _, stalled := range []bool{false, true} {
			for _, active := range []bool{false, true} {
				for _, a := range workflow.Actions() {
					name := fmt.Sprintf("%s stalled=%v active=%v %s", s, stalled, active, a)
					w := sample(s)
					if got := slices.Contains(workflow.Legal(s, stalled), a); got != wanted(s, stalled, a) {
						t.Errorf("%s: legal %v", name, got)
					}
					e, refusal := workflow.Act(w, a, drainedFacts(stalled, active))
					switch {
					case e.Nothing:
						repeatIsFine(t, name, s, a, stalled, e)
					case wanted(s, stalled, a):
						if refusal != nil || e.Text == "" {
							t.Errorf("%s: %+v %v", name, e, refusal)
						}
						effectIsFine(t, name, s, a, active, e)
					case refusal == nil || refusal.Reason != "WORKFLOW_ACTION_ILLEGAL" || refusal.Message == "":
						t.Errorf("%s: not refused: %+v %v", name, e, refusal)
					}
				}
			}
		}
	}
}

// repeatIsFine: success without an effect is for what is under way or done.
func repeatIsFine(t *testing.T, name string, s workflow.State, a workflow.Action, stalled bool, e workflow.Effect) {
	t.Helper()
	ok := a == workflow.Cancel && (s == workflow.Compensating || s == workflow.Cancelled) || a == workflow.MarkManual && s == workflow.FailedManual ||
		a == workflow.Resume && !stalled && (s == workflow.Pending || s == workflow.Running)
	if !ok || e.Attempt || e.CancelOperation || e.Requeue || e.Workflow.State != s {
		t.Errorf("%s: %+v", name, e)
	}
}

func effectIsFine(t *testing.T, name string, from workflow.State, a workflow.Action, active bool, e workflow.Effect) {
	t.Helper()
	to := e.Workflow.State
	switch a {
	case workflow.Cancel:
		want := workflow.Cancelled
		if active {
			want = workflow.Compensating
		}
		if to != want || e.CancelOperation != active || e.Release == active {
			t.Errorf("%s: %+v", name, e)
		}
	case workflow.MarkManual:
		if to != workflow.FailedManual || e.CancelOperation != active || e.Workflow.FailureClass != workflow.ClassMarked {
			t.Errorf("%s: %+v", name, e)
		}
	default:
		if a == workflow.Resume && active {
			if !e.Requeue || e.Attempt || to != from {
				t.Errorf("%s: %+v", name, e)
			}
			return
		}
		if to != workflow.Pending || !e.Attempt || e.Workflow.Attempts != 2 || e.Workflow.LastAction != a {
			t.Errorf("%s: %+v", name, e)
		}
		// Pressed again, it does nothing.
		again, refusal := workflow.Act(e.Workflow, a, drainedFacts(false, true))
		if refusal != nil || !again.Nothing {
			t.Errorf("%s, again: %+v %v", name, again, refusal)
		}
	}
}

// TestActionsDoWhatTheySay, beyond their states.
func TestActionsDoWhatTheySay(t *testing.T) {
	w := sample(workflow.FailedRetryable)
	w.Stage, w.StageIdx = workflow.ValidateClean, slices.Index(w.Plan, workflow.ValidateClean)
	act := func(a workflow.Action) workflow.Effect {
		t.Helper()
		e, refusal := workflow.Act(w, a, drainedFacts(false, false))
		if refusal != nil {
			t.Fatal(refusal)
		}
		return e
	}
	if e := act(workflow.RetryStage); e.Workflow.Stage != workflow.ValidateClean {
		t.Errorf("retry goes to %s", e.Workflow.Stage)
	}
	if e := act(workflow.Resume); e.Workflow.Stage != workflow.CleanupStorage {
		t.Errorf("without evidence of an erasure, resume goes to %s", e.Workflow.Stage)
	}
	w.Evidence = map[string]string{evidence.EraseMethod: "ata"}
	if e := act(workflow.Resume); e.Workflow.Stage != workflow.ValidateClean {
		t.Errorf("with it, resume goes to %s", e.Workflow.Stage)
	}
	if e := act(workflow.Rerun); e.Workflow.Stage != w.Plan[0] || !e.Skip || e.Workflow.Evidence[evidence.EraseMethod] == "" {
		t.Errorf("rerun: %+v", e)
	}
	if e := act(workflow.RestartClean); e.Workflow.Stage != w.Plan[0] || e.Skip || len(e.Workflow.Evidence) != 0 || !e.Reset {
		t.Errorf("restart_clean: %+v", e)
	}
	if _, refusal := workflow.Act(w, workflow.Adopt, drainedFacts(false, false)); refusal == nil || refusal.Reason != "STAGE_CHECK_FAILED" {
		t.Errorf("a check that nothing shows was adopted: %v", refusal)
	}
	w.Stage, w.StageIdx = workflow.PowerOffNode, slices.Index(w.Plan, workflow.PowerOffNode)
	if _, refusal := workflow.Act(w, workflow.Adopt, drainedFacts(false, false)); refusal == nil {
		t.Error("a machine that is on was adopted as off")
	}
	f := drainedFacts(false, false)
	f.Stage.PowerOff, f.Stage.PowerSeenAt = true, "then"
	e, refusal := workflow.Act(w, workflow.Adopt, f)
	if refusal != nil || e.Workflow.Stage != workflow.RetireNode || !e.Workflow.Adopted || e.Workflow.Evidence[evidence.PowerOffSeenAt] != "then" {
		t.Errorf("adopt: %+v %v", e, refusal)
	}
	done := workflow.Follow(e.Workflow, workflow.Attempt{Phase: "RUNNING"})
	if done = workflow.Follow(done, workflow.Attempt{Phase: "SUCCEEDED"}); done.State != workflow.Reconciled {
		t.Errorf("what was adopted ends %s", done.State)
	}
}

// The mapping tables of the requirements: node states by workflow state.
var mapped = map[workflow.Kind]map[workflow.State]string{
	workflow.Onboarding: {
		workflow.Pending: "enrolling", workflow.Running: "enrolling", workflow.FailedRetryable: "enrolling",
		workflow.FailedManual: "enrolling quarantined", workflow.Completed: "active", workflow.Reconciled: "active",
	},
	workflow.Decommission: {
		workflow.Running: "active offline quarantined draining retired removing", workflow.FailedRetryable: "retired",
		workflow.FailedManual: "retired quarantined", workflow.Completed: "deleted",
	},
}

// What is ours besides: the netboot path of an onboarding, failures and cancels of work that stops short of retirement, the
// modes that end active, and nodes that leave before they were ever in service.
var ours = map[workflow.Kind]map[workflow.State]string{
	workflow.Onboarding: {
		workflow.Pending:         "bootstrap_issued discovered pending installing installed",
		workflow.Running:         "bootstrap_issued discovered pending installing installed",
		workflow.Compensating:    "bootstrap_issued discovered pending installing installed enrolling quarantined",
		workflow.FailedRetryable: "bootstrap_issued discovered pending installing installed install_failed",
		workflow.FailedManual:    "bootstrap_issued discovered pending installing installed install_failed",
		workflow.Cancelled:       "discovered pending bootstrap_issued quarantined retired deleted enrolling install_failed active offline",
	},
	workflow.Decommission: {
		workflow.Pending:         "active offline quarantined draining retired",
		workflow.Compensating:    "active offline quarantined draining retired removing",
		workflow.FailedRetryable: "active offline", workflow.FailedManual: "active offline",
		workflow.Cancelled: "active offline retired quarantined deleted",
	},
}

const neverActive = "discovered pending installing install_failed installed bootstrap_issued enrolling"

func goesWith(k workflow.Kind, m workflow.Mode, s workflow.State, n fleet.NodeState) bool {
	if k == workflow.Decommission && workflow.Terminal(s) {
		return (m == workflow.FullDecommission) == (n == "deleted") && (n == "active" || n == "deleted")
	}
	if n == "removing" {
		return m == workflow.FullDecommission && working(s)
	}
	if m == workflow.FullDecommission && (slices.Contains(strings.Fields(neverActive), string(n))) {
		return true
	}
	return slices.Contains(strings.Fields(mapped[k][s]+" "+ours[k][s]), string(n))
}

// TestEveryNodeStateAndWorkflowState: a pair that is in no table is a violation, and none that is in one.
func TestEveryNodeStateAndWorkflowState(t *testing.T) {
	pairs := 0
	for _, k := range []workflow.Kind{workflow.Onboarding, workflow.Decommission} {
		for _, m := range workflow.Modes(k) {
			for _, s := range workflow.States() {
				for _, n := range workflow.NodeStates() {
					pairs++
					text := workflow.Violation(workflow.Workflow{Kind: k, Mode: m, State: s}, n)
					if want := goesWith(k, m, s, n); (text == "") != want {
						t.Errorf("%s %s %s with node %s: %q, want fine %v", k, m, s, n, text, want)
					}
				}
			}
		}
	}
	if pairs != 5*8*17 {
		t.Errorf("%d pairs", pairs)
	}
	if got := len(workflow.NodeStates()); got != len(node.States()) {
		t.Errorf("%d node states, the table of nodes has %d", got, len(node.States()))
	}
}

// stagesRequired are the names that the requirements list.
const stagesRequired = `load_site_config resolve_power_credentials create_or_find_in_maas commission_node wait_for_ready
configure_storage apply_roce_phase2 ensure_pxe_interface_auto render_cloud_init deploy_via_maas wait_for_deployed
classify_deploy_failure recover_for_datasource_retry ensure_hardware_sync_configured wait_for_hardware_sync_healthy
wait_for_agent_enrollment;
disable_node force_release_allocations drain_node cleanup_storage scrub_gpu validate_clean_node load_site_config
release_maas_node power_off_maas_node retire_gpuaas_node remove_gpuaas_node_record cleanup_secrets remove_maas_record`

func TestCatalogueIsComplete(t *testing.T) {
	kinds := []workflow.Kind{workflow.Onboarding, workflow.Decommission}
	for i, list := range strings.Split(stagesRequired, ";") {
		for _, name := range strings.Fields(list) {
			if _, ok := workflow.Find(kinds[i], name); !ok {
				t.Errorf("%s has no stage %s", kinds[i], name)
			}
		}
	}
	seen := map[string]bool{}
	for _, s := range workflow.Catalogue() {
		id := string(s.Kind) + s.Name
		if seen[id] || s.Effect == "" || s.Check == "" || s.Compensation == "" || len(s.Steps) == 0 || len(s.Modes) == 0 {
			t.Errorf("%s: %+v", s.Name, s)
		}
		seen[id] = true
		judged := workflow.Judge(s.Name, workflow.StageFacts{Kind: s.Kind})
		if !s.Wired && (judged.Pass || judged.Code != "STAGE_NOT_WIRED") {
			t.Errorf("%s is not built, and its check says %+v", s.Name, judged)
		}
		for _, step := range s.Steps {
			if workflow.StageOf(s.Kind, step.Name) != s.Name {
				t.Errorf("step %s is of stage %s, found %s", step.Name, s.Name, workflow.StageOf(s.Kind, step.Name))
			}
		}
	}
}

// TestPlans: a plan ends with a step that nobody is granted, so that a cancel gets in before its end; MAAS's stages are in
// plans of its machines alone.
func TestPlans(t *testing.T) {
	for _, p := range workflow.Plans() {
		last := p.GetSteps()[len(p.GetSteps())-1]
		if last.GetWorkflowStage() == nil {
			t.Errorf("%s ends with %v", p.GetPlanId(), last)
		}
	}
	for _, k := range []workflow.Kind{workflow.Onboarding, workflow.Decommission} {
		for _, m := range workflow.Modes(k) {
			for _, s := range workflow.Plan(k, m, workflow.Traits{Provider: "agent", BMC: true, Path: workflow.PathInstall}) {
				if !s.Wired {
					t.Errorf("%s %s has %s, which is not built", k, m, s.Name)
				}
			}
		}
		last := workflow.Modes(k)
		if workflow.NotWired(workflow.Plan(k, last[len(last)-1], workflow.Traits{Provider: workflow.ProviderMAAS})) == "" {
			t.Errorf("%s by MAAS has nothing that is not built", k)
		}
	}
}

// TestEveryReasonHasAClass: what operations can end with leads somewhere that can be left.
func TestEveryReasonHasAClass(t *testing.T) {
	for number, reason := range baremetalv1.Reason_name {
		class, retryable := workflow.Classify(reason)
		if class == "" {
			t.Errorf("%s has no class", reason)
		}
		if number >= 140 && number < 200 && !retryable && class == workflow.ClassDisagree &&
			!slices.Contains([]string{"AGENT_STATE_ROLLED_BACK", "CONFIG_DRIFT", "CONFIG_ROLLED_BACK", "CANCELED_BY_REQUEST", "SETTLED_BY_OPERATOR"}, reason) {
			t.Logf("%s is unclassified and needs a person", reason)
		}
	}
}

// TestTheSameFailureNeedsAPersonInTheEnd: retries are bounded, and the class says what they were about.
func TestTheSameFailureNeedsAPersonInTheEnd(t *testing.T) {
	for step, want := range map[string]workflow.Class{
		"install-node": workflow.ClassInstall, "wait-for-agent-enrollment": workflow.ClassSeed, "validate-clean-node": workflow.ClassRepeated,
	} {
		w := sample(workflow.Running)
		w.Mode = workflow.Reimage
		w.Plan = workflow.Names(workflow.Plan(w.Kind, w.Mode, workflow.Traits{}))
		for i := range workflow.MaxRepeats {
			w.State = workflow.Running
			w = workflow.Follow(w, workflow.Attempt{Phase: "FAILED", Step: step, Reason: "EXECUTION_FAILED", Message: "no"})
			last := i == workflow.MaxRepeats-1
			if (w.State == workflow.FailedManual) != last || last && w.FailureClass != want {
				t.Errorf("%s, failure %d: %s %s", step, i+1, w.State, w.FailureClass)
			}
		}
	}
}

// TestStates: each can be reached, terminals have no way out, and no other state lacks a legal action.
func TestStates(t *testing.T) {
	reached := map[workflow.State]bool{workflow.Pending: true}
	for range workflow.States() {
		for from := range maps.Clone(reached) {
			for _, to := range workflow.Transitions[from] {
				reached[to] = true
			}
		}
	}
	for _, s := range workflow.States() {
		if !reached[s] {
			t.Errorf("%s cannot be reached", s)
		}
		if workflow.Terminal(s) != (len(workflow.Transitions[s]) == 0) || workflow.Terminal(s) != (len(workflow.Legal(s, true)) == 0) {
			t.Errorf("%s: terminal %v, ways out %v, actions %v", s, workflow.Terminal(s), workflow.Transitions[s], workflow.Legal(s, true))
		}
	}
}

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
		if _, refusal := node.Check(from, to, node.Trigger(m.By), node.Facts{ErasureRequired: true, ErasureVerified: true}); refusal != nil {
			t.Fatalf("the table of nodes refuses %s → %s by %s: %v", v.node, m.To, m.By, refusal)
		}
		v.node = m.To
	}
}

// event lets the attempt go on by one step, or end.
func (v *walker) event(t *testing.T, r *rand.Rand) {
	t.Helper()
	a := workflow.Attempt{Phase: "RUNNING", Step: workflow.StepName(v.w.Stage)}
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

// TestRandomWalk: 100,000 steps of events and actions in any order never come to a state without a legal way out, take
// only transitions that the tables have, and never leave a node in a state of work that no workflow owns.
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
		if v.w.State == workflow.Cancelled && v.node == workflow.Quarantined {
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
	k, m, n := workflow.Onboarding, workflow.NoMode, []fleet.NodeState{workflow.Discovered, workflow.BootstrapIssued}[r.IntN(2)]
	if r.IntN(3) > 0 {
		modes := workflow.Modes(workflow.Decommission)
		k, m, n = workflow.Decommission, modes[r.IntN(len(modes))], []fleet.NodeState{workflow.Active, workflow.Offline}[r.IntN(2)]
	}
	t := workflow.Traits{Provider: "agent", BMC: r.IntN(2) == 0, Path: workflow.DefaultPath(n)}
	plan := workflow.Names(workflow.Plan(k, m, t))
	return &walker{w: workflow.Workflow{Kind: k, Mode: m, State: workflow.Pending, Plan: plan, Stage: plan[0], Attempts: 1, OperationID: "op"}, node: n, active: true}
}

// leads says that one action or event, which may take several transitions at once, goes from one state to another.
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
