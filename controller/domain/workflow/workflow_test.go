package workflow_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

func working(s workflow.State) bool {
	return s == workflow.Pending || s == workflow.Running || s == workflow.Compensating
}

func sample(s workflow.State) workflow.Workflow {
	plan := workflow.Names(workflow.Plan(workflow.Decommission, workflow.FullDecommission, workflow.Traits{BMC: true}))
	return workflow.Workflow{
		ID: "wf-1", Kind: workflow.Decommission, Mode: workflow.FullDecommission, State: s, Plan: plan,
		Stage: workflow.DrainNode, StageIdx: 2,
		OperationID: "op-1", Attempts: 1,
	}
}

// drainedFacts let DrainNode be adopted.
func drainedFacts(stalled, active bool) workflow.Facts {
	return workflow.Facts{Stalled: stalled, OperationActive: active, Stage: workflow.StageFacts{
		Kind: workflow.Decommission, Machine: fleet.Facts{NodeState: fleet.Active},
	}}
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

// Our additions: the netboot path of an onboarding, and failures and cancels of work that stops short of retirement.
// Others are the modes that end active, and nodes that leave before they were ever in service.
var ours = map[workflow.Kind]map[workflow.State]string{
	workflow.Onboarding: {
		workflow.Pending:         "bootstrap_issued discovered pending installing installed",
		workflow.Running:         "bootstrap_issued discovered pending installing installed",
		workflow.Compensating:    "bootstrap_issued discovered pending installing installed enrolling quarantined",
		workflow.FailedRetryable: "bootstrap_issued discovered pending installing installed install_failed",
		workflow.FailedManual:    "bootstrap_issued discovered pending installing installed install_failed",
		workflow.Cancelled: "discovered pending bootstrap_issued quarantined retired deleted enrolling " +
			"install_failed active offline",
	},
	workflow.Decommission: {
		workflow.Pending:         "active offline quarantined draining retired",
		workflow.Compensating:    "active offline quarantined draining retired removing",
		workflow.FailedRetryable: "active offline quarantined", workflow.FailedManual: "active offline",
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
		id := string(s.Kind) + s.Name + s.Provider
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

// TestPlans: a plan ends with a step without a grant, so that a cancel can precede its end. Actions of a provider are
// only in plans of its machines, and those have no steps that need a BMC of ours.
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
				if !s.Wired || hasKind(s, "provider_action") {
					t.Errorf("%s %s has %s, which is not built, or not for it", k, m, s.Name)
				}
			}
			for _, s := range workflow.Plan(k, m, workflow.Traits{Provider: workflow.ProviderMAAS, BMC: true,
				Path: workflow.PathInstall}) {
				if !s.Wired || hasKind(s, "netboot") || hasKind(s, "repave") || hasKind(s, "erase") ||
					s.Name == workflow.PowerOffNode {
					t.Errorf("%s %s by MAAS has %s, which is not built, or not for it", k, m, s.Name)
				}
			}
		}
	}
}

func hasKind(s workflow.Stage, kind string) bool {
	return slices.ContainsFunc(s.Steps, func(o workflow.StepOf) bool { return o.Kind == kind })
}

// TestEveryReasonHasAClass: what operations can end with leads somewhere that can be left.
func TestEveryReasonHasAClass(t *testing.T) {
	for number, reason := range baremetalv1.Reason_name {
		class, retryable := workflow.Classify(reason)
		if class == "" {
			t.Errorf("%s has no class", reason)
		}
		if number >= 140 && number < 200 && !retryable && class == workflow.ClassDisagree &&
			!slices.Contains([]string{"AGENT_STATE_ROLLED_BACK", "CONFIG_DRIFT", "CONFIG_ROLLED_BACK", "CANCELED_BY_REQUEST",
				"SETTLED_BY_OPERATOR"}, reason) {
			t.Logf("%s is unclassified and needs a person", reason)
		}
	}
}

// TestTheSameFailureNeedsAPersonInTheEnd: retries are bounded, and the class names their subject.
func TestTheSameFailureNeedsAPersonInTheEnd(t *testing.T) {
	for step, want := range map[string]workflow.Class{
		"install-node": workflow.ClassInstall, "wait-for-agent-enrollment": workflow.ClassSeed,
		"validate-clean-node": workflow.ClassRepeated,
	} {
		w := sample(workflow.Running)
		w.Mode = workflow.Reimage
		w.Plan = workflow.Names(workflow.Plan(w.Kind, w.Mode, workflow.Traits{}))
		reasons := []string{"EXECUTION_FAILED", "STEP_TIMEOUT"}
		for i := range workflow.DefaultBound + 1 {
			w = workflow.Follow(w, workflow.Attempt{Phase: "RUNNING", Step: step})
			w = workflow.Follow(w, workflow.Attempt{Phase: "FAILED", Step: step, Reason: reasons[i%2], Message: "no"})
			last := i >= workflow.DefaultBound-1
			if (w.State == workflow.FailedManual) != last || last && w.FailureClass != want {
				t.Errorf("%s, failure %d: %s %s", step, i+1, w.State, w.FailureClass)
			}
			w = again(t, w, workflow.RetryStage)
		}
		// A person may try as often as he likes, and the count begins anew with a rerun, a clean start, or progress.
		for _, a := range []workflow.Action{workflow.Rerun, workflow.RestartClean} {
			fresh := again(t, workflow.Follow(w, workflow.Attempt{Phase: "FAILED", Step: step, Reason: "STEP_TIMEOUT"}), a)
			if fresh = workflow.Follow(fresh, workflow.Attempt{Phase: "FAILED", Step: step,
				Reason: "STEP_TIMEOUT"}); fresh.State != workflow.FailedRetryable {
				t.Errorf("%s, after %s: %s", step, a, fresh.State)
			}
		}
	}
}

func again(t *testing.T, w workflow.Workflow, a workflow.Action) workflow.Workflow {
	t.Helper()
	e, refusal := workflow.Act(w, a, drainedFacts(false, false))
	if refusal != nil || !e.Attempt {
		t.Fatalf("%s: %+v", a, refusal)
	}
	return e.Workflow
}

// Failures count by stage: one that a later attempt goes past is forgotten, one that it has not come to again is not.
func TestProgressForgetsTheFailuresBehindIt(t *testing.T) {
	w := sample(workflow.Running)
	fail := func(step string) {
		w = workflow.Follow(w, workflow.Attempt{Phase: "FAILED", Step: step, Reason: "STEP_TIMEOUT"})
	}
	for range workflow.DefaultBound - 1 {
		fail("cleanup-storage")
		w = again(t, w, workflow.RetryStage)
	}
	w = workflow.Follow(w, workflow.Attempt{Phase: "RUNNING", Step: "power-off-node"})
	for range workflow.DefaultBound - 1 {
		fail("power-off-node")
		w = again(t, w, workflow.RetryStage)
	}
	if w.Failures["cleanup_storage"] != 0 || w.Failures["power_off_node"] != workflow.DefaultBound-1 {
		t.Errorf("counted %v", w.Failures)
	}
	if fail("power-off-node"); w.State != workflow.FailedManual {
		t.Errorf("the fifth failure of a stage leads to %s", w.State)
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
		if workflow.Terminal(s) != (len(workflow.Transitions[s]) == 0) ||
			workflow.Terminal(s) != (len(workflow.Legal(s, true)) == 0) {
			t.Errorf("%s: terminal %v, ways out %v, actions %v", s, workflow.Terminal(s), workflow.Transitions[s],
				workflow.Legal(s, true))
		}
	}
}
