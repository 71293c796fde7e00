package workflow_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// TestAnActionThatWasTakenDoesNothingMore: it succeeds, and has no second effect.
func TestAnActionThatWasTakenDoesNothingMore(t *testing.T) {
	for _, c := range []struct {
		state workflow.State
		last  workflow.Action
		again workflow.Action
	}{
		{workflow.Compensating, workflow.Cancel, workflow.Cancel},
		{workflow.Cancelled, workflow.Cancel, workflow.Cancel},
		{workflow.FailedManual, workflow.MarkManual, workflow.MarkManual},
		{workflow.Pending, workflow.Resume, workflow.Resume},
		{workflow.Running, workflow.Resume, workflow.Resume},
		{workflow.Running, "", workflow.Resume},
		{workflow.Pending, workflow.RetryStage, workflow.RetryStage},
		{workflow.Running, workflow.Rerun, workflow.Rerun},
	} {
		w := sample(c.state)
		w.LastAction = c.last
		e, refusal := workflow.Act(w, c.again, drainedFacts(false, true))
		if refusal != nil || !e.Nothing || e.Attempt || e.CancelOperation || e.Workflow.State != c.state {
			t.Errorf("%s while %s: %+v, %v", c.again, c.state, e, refusal)
		}
	}
}

// TestARefusedActionNamesTheOthers: also where there is one, and where there is none.
func TestARefusedActionNamesTheOthers(t *testing.T) {
	for state, says := range map[workflow.State]string{
		workflow.Compensating: "it allows mark_manual_intervention_required",
		workflow.Completed:    "it has ended and takes no action",
		workflow.Cancelled:    "it allows rerun, restart_clean",
	} {
		_, refusal := workflow.Act(sample(state), workflow.RetryStage, drainedFacts(false, false))
		if refusal == nil || !strings.Contains(refusal.Message, says) {
			t.Errorf("%s: %v, want %q", state, refusal, says)
		}
	}
}

// TestAnotherAttemptForgetsWhyTheLastOneFailed, and names the stage where it begins.
func TestAnotherAttemptForgetsWhyTheLastOneFailed(t *testing.T) {
	w := workflow.Follow(sample(workflow.Running), workflow.Attempt{Phase: "FAILED", Step: "drain-node",
		Reason: "CLUSTER_UNREACHABLE", Message: "m"})
	if w.State != workflow.FailedRetryable || w.Reason == "" || w.Message == "" || w.FailureClass == "" {
		t.Fatalf("%+v", w)
	}
	for a, says := range map[workflow.Action]string{
		workflow.RetryStage:   "stage drain_node is tried again",
		workflow.Rerun:        "begins again at disable_node",
		workflow.RestartClean: "begins again at disable_node",
	} {
		e, refusal := workflow.Act(w, a, drainedFacts(false, false))
		if refusal != nil || e.Workflow.Reason != "" || e.Workflow.Message != "" || e.Workflow.FailureClass != "" ||
			!strings.Contains(e.Text, says) {
			t.Errorf("%s: %+v, %v", a, e, refusal)
		}
	}
}

// TestACleanStartNamesWhatItUndoes: at the provider, and nothing where nothing was begun there.
func TestACleanStartNamesWhatItUndoes(t *testing.T) {
	for provider, want := range map[string]bool{workflow.ProviderMAAS: true, "agent": false} {
		traits := workflow.Traits{Provider: provider, BMC: true, Path: workflow.PathInstall}
		w := workflow.Workflow{Kind: workflow.Onboarding, Provider: provider, State: workflow.FailedManual,
			Plan: workflow.Names(workflow.Plan(workflow.Onboarding, workflow.NoMode, traits))}
		w.StageIdx = len(w.Plan) - 1
		w.Stage = w.Plan[w.StageIdx]
		f := drainedFacts(false, false)
		f.Stage.Machine.NodeState = fleet.Enrolling
		e, refusal := workflow.Act(w, workflow.RestartClean, f)
		if refusal != nil || strings.Contains(e.Text, "(abort, release)") != want {
			t.Errorf("%s: %+v, %v", provider, e, refusal)
		}
	}
}

// TestALateAttemptIsLookedAtAgainWhereverItsNodeIs: that begins nothing new on a machine that may not be changed.
func TestALateAttemptIsLookedAtAgainWhereverItsNodeIs(t *testing.T) {
	f := drainedFacts(true, true)
	f.Contested, f.Stage.Machine.NodeState = true, fleet.Quarantined
	if e, refusal := workflow.Act(sample(workflow.Running), workflow.Resume, f); refusal != nil || !e.Requeue ||
		e.Attempt {
		t.Errorf("under way: %+v, %v", e, refusal)
	}
	f.OperationActive = false
	if _, refusal := workflow.Act(sample(workflow.Running), workflow.Resume, f); refusal == nil ||
		refusal.Reason != "MACHINE_QUARANTINED" {
		t.Errorf("lost: %v", refusal)
	}
}

// TestWhatComesNext: for every state that an operator finds a workflow in.
func TestWhatComesNext(t *testing.T) {
	for _, c := range []struct {
		state   workflow.State
		stalled bool
		message string
		action  workflow.Action
		text    string
	}{
		{workflow.Pending, false, "", "", "wait: it is at stage drain_node"},
		{workflow.Running, false, "", "", "wait: it is at stage drain_node"},
		{workflow.Running, true, "", workflow.Resume, "nothing has looked at it for long"},
		{workflow.Compensating, true, "", workflow.Resume, "nothing has looked at it for long"},
		{workflow.Compensating, false, "", "", "wait: it is being cancelled"},
		{workflow.Cancelled, false, "", workflow.Rerun, "rerun it"},
		{workflow.Cancelled, true, "", workflow.Rerun, "rerun it"},
		{workflow.FailedRetryable, false, "no session", workflow.Resume, "resume: no session"},
		{workflow.FailedRetryable, false, "", workflow.Resume, "resume: another try may succeed"},
		{workflow.FailedManual, false, "", workflow.RetryStage, "look at the cause"},
		{workflow.Completed, true, "", "", ""},
	} {
		w := sample(c.state)
		w.Message = c.message
		if a, text := workflow.Next(w, c.stalled); a != c.action || !strings.HasPrefix(text, c.text) {
			t.Errorf("%s, stalled %t: %q, %q", c.state, c.stalled, a, text)
		}
	}
	w := sample(workflow.FailedManual)
	w.FailureClass = workflow.ClassNotWired
	if a, text := workflow.Next(w, false); a != workflow.Adopt {
		t.Errorf("the words begin with another action than %s: %s", a, text)
	}
}

// TestWhatAnAttemptsEndLeaves: states, failures, and whether the content of the machine is known.
func TestWhatAnAttemptsEndLeaves(t *testing.T) {
	success := workflow.Attempt{Phase: "SUCCEEDED", Step: "cleanup-secrets"}
	for _, unclean := range []bool{false, true} {
		w := sample(workflow.Running)
		w.Failures, w.Unclean, w.Reason, w.Message, w.FailureClass = map[string]int{"x": 1}, unclean, "R", "m",
			workflow.ClassCheck
		if got := workflow.Follow(w, success); got.State != workflow.Completed || got.Failures != nil || got.Unclean ||
			got.Reason != "" ||
			got.Message != "" || got.FailureClass != "" {
			t.Errorf("done: %+v", got)
		}
		w.State = workflow.Compensating
		if got := workflow.Follow(w, success); got.State != workflow.FailedManual ||
			got.FailureClass != workflow.ClassDisagree ||
			got.Message == "" || got.Unclean != unclean {
			t.Errorf("done before the cancel took hold: %+v", got)
		}
	}
	if got := workflow.Follow(sample(workflow.Pending),
		workflow.Attempt{Phase: "RUNNING", Step: "drain-node"}); got.State != workflow.Running {
		t.Errorf("under way: %s", got.State)
	}
	frozen := sample(workflow.FailedManual)
	got := workflow.Follow(frozen, workflow.Attempt{Phase: "FAILED", Step: "cleanup-storage", Reason: "STEP_TIMEOUT",
		Evidence: map[string]string{"a": "b"}, Granted: true})
	if got.State != workflow.FailedManual || got.Stage != frozen.Stage || got.Evidence != nil || got.Unclean ||
		got.Reason != "" {
		t.Errorf("frozen: %+v", got)
	}
}

// TestAWorkflowGoesThroughWhatOpensAnAttempt: on its way to a later stage that is no step back, and otherwise a step
// forward.
func TestAWorkflowGoesThroughWhatOpensAnAttempt(t *testing.T) {
	w := sample(workflow.Running)
	w.Failures = map[string]int{workflow.DrainNode: 1, workflow.DisableNode: 1}
	failed := workflow.Follow(w, workflow.Attempt{Phase: "FAILED", Step: "disable-node", Reason: "AGENT_UNAVAILABLE"})
	if failed.Stage != workflow.DrainNode || failed.Failures[workflow.DrainNode] != 2 ||
		w.Failures[workflow.DrainNode] != 1 {
		t.Errorf("at the opening stage: %+v, and before %v", failed, w.Failures)
	}
	removing := workflow.Follow(w, workflow.Attempt{Phase: "RUNNING", Step: workflow.StepName(workflow.RemoveRecord)})
	if removing.Stage != workflow.RemoveRecord || removing.StageIdx != slices.Index(w.Plan, workflow.RemoveRecord) ||
		len(removing.Failures) != 0 {
		t.Errorf("at the removal: %+v", removing)
	}
	proved := workflow.Follow(w, workflow.Attempt{Phase: "RUNNING", Step: "drain-node",
		Evidence: map[string]string{"drained": "yes"}})
	if proved.Evidence["drained"] != "yes" {
		t.Errorf("evidence %v", proved.Evidence)
	}
}

// TestAFailureThatNoTryMendsKeepsItsClass: however often it has failed.
func TestAFailureThatNoTryMendsKeepsItsClass(t *testing.T) {
	w := sample(workflow.Running)
	w.Failures = map[string]int{workflow.DrainNode: 99}
	if got := workflow.Follow(w, workflow.Attempt{Phase: "FAILED", Step: "drain-node",
		Reason: "DRAIN_BLOCKED"}); got.FailureClass != workflow.ClassRefused {
		t.Errorf("%+v", got)
	}
}

// TestWhatIsDueToBeUndoneStaysUntilItWasTaken: a further attempt takes it again, until one has come past the first
// stage.
func TestWhatIsDueToBeUndoneStaysUntilItWasTaken(t *testing.T) {
	traits := workflow.Traits{Provider: workflow.ProviderMAAS, BMC: true, Path: workflow.PathInstall}
	w := workflow.Workflow{Kind: workflow.Onboarding, Provider: workflow.ProviderMAAS, State: workflow.FailedManual,
		Plan: workflow.Names(workflow.Plan(workflow.Onboarding, workflow.NoMode, traits))}
	w.StageIdx = len(w.Plan) - 1
	w.Stage = w.Plan[w.StageIdx]
	f := drainedFacts(false, false)
	f.Stage.Machine.NodeState = fleet.Enrolling
	e, refusal := workflow.Act(w, workflow.RestartClean, f)
	if refusal != nil {
		t.Fatal(refusal)
	}
	undoes := func(w workflow.Workflow) bool {
		return slices.Contains(workflow.Names(w.Attempting(false)), "undo_release")
	}
	if !undoes(e.Workflow) {
		t.Fatal("nothing is undone")
	}
	for i, stage := range e.Workflow.Plan[:3] {
		got := workflow.Follow(e.Workflow, workflow.Attempt{Phase: "RUNNING", Step: workflow.StepName(stage)})
		if got.StageIdx != i || undoes(got) != (i == 0) {
			t.Errorf("at stage %d, %s: undoes %t", i, got.Stage, undoes(got))
		}
	}
	short := e.Workflow
	short.Plan = short.Plan[:1]
	if names := workflow.Names(short.Attempting(true)); !slices.Equal(names,
		[]string{workflow.ApproveNode, "undo_abort", "undo_release"}) {
		t.Errorf("a plan of one stage: %v", names)
	}
	short.Plan = []string{"a_stage_of_another_release"}
	if names := workflow.Names(short.Attempting(false)); len(names) != 0 {
		t.Errorf("a plan of no stage: %v", names)
	}
}

// TestWhatTheProviderShowsIsAdopted: where the provider shows a stage's result, and trying again would be refused for
// ever, that is adopted. It never is where another client has the machine.
func TestWhatTheProviderShowsIsAdopted(t *testing.T) {
	traits := workflow.Traits{Provider: workflow.ProviderMAAS, BMC: true, Path: workflow.PathInstall}
	plan := workflow.Names(workflow.Plan(workflow.Onboarding, workflow.NoMode, traits))
	for name, c := range map[string]struct {
		state  maasstatus.State
		heldBy string
		reason string
		want   workflow.Action
	}{
		"deployed by us": {maasstatus.StateDeployed, "", "MAAS_STATUS_CONFLICT", workflow.Adopt},
		"somebody else's": {maasstatus.StateDeployed, "it belongs to eve there", "MAAS_STATUS_CONFLICT",
			workflow.RetryStage},
		"released meanwhile": {maasstatus.StateReady, "", "MAAS_STATUS_CONFLICT", workflow.RetryStage},
		"another reason":     {maasstatus.StateDeployed, "", "MAAS_REFUSED", workflow.RetryStage},
	} {
		w := workflow.Workflow{Kind: workflow.Onboarding, Provider: workflow.ProviderMAAS, State: workflow.Running,
			Plan: plan, Attempts: 1}
		w = workflow.Follow(w, workflow.Attempt{Phase: "FAILED", Step: workflow.StepName(workflow.DeployViaMAAS),
			Reason: c.reason, Message: "no"})
		f := workflow.Facts{Stage: workflow.StageFacts{
			Kind: workflow.Onboarding, Provider: workflow.ProviderMAAS, ProviderState: c.state, ProviderHeldBy: c.heldBy,
			Machine: fleet.Facts{NodeState: fleet.Installing},
		}}
		o := workflow.Offer{Refused: map[workflow.Action]*fleet.Refusal{}}
		for _, a := range workflow.Legal(w.State, false) {
			if _, refused := workflow.Act(w, a, f); refused != nil {
				o.Refused[a] = refused
			} else {
				o.Legal = append(o.Legal, a)
			}
		}
		if got, text := workflow.Recommend(w, o); got != c.want {
			t.Errorf("%s: %q is recommended: %s", name, got, text)
		}
	}
}

// TestADeploymentIsLookedAtBeforeItsSystemIsWaitedFor: the machine may have been released while its system was awaited.
func TestADeploymentIsLookedAtBeforeItsSystemIsWaitedFor(t *testing.T) {
	traits := workflow.Traits{Provider: workflow.ProviderMAAS, BMC: true, Path: workflow.PathInstall}
	plan := workflow.Names(workflow.Plan(workflow.Onboarding, workflow.NoMode, traits))
	f := workflow.Facts{Stage: workflow.StageFacts{Kind: workflow.Onboarding,
		Machine: fleet.Facts{NodeState: fleet.Installing}}}
	for _, stage := range []string{workflow.WaitForEnrollment, "ensure_hardware_sync_configured",
		workflow.WaitHardwareRun} {
		w := workflow.Workflow{Kind: workflow.Onboarding, Provider: workflow.ProviderMAAS, State: workflow.Running,
			Plan: plan, Attempts: 1}
		w.Evidence = map[string]string{"maas_found": "found", "maas_commissioned": "true", "maas_ready": "true"}
		for _, s := range workflow.Catalogue() {
			if s.Gives != "" {
				w.Evidence[s.Gives] = "x"
			}
		}
		w = workflow.Follow(w, workflow.Attempt{Phase: "FAILED", Step: workflow.StepName(stage), Reason: "AGENT_UNAVAILABLE",
			Message: "no"})
		for _, a := range []workflow.Action{workflow.Resume, workflow.RetryStage} {
			e, refused := workflow.Act(w, a, f)
			if refused != nil || e.Workflow.Stage != workflow.WaitDeployed {
				t.Errorf("%s of %s goes on at %s: %v", a, stage, e.Workflow.Stage, refused)
			}
		}
	}
}

// TestAnAdoptedStageIsNotGoneBackTo: a later failure resumes where it was.
func TestAnAdoptedStageIsNotGoneBackTo(t *testing.T) {
	traits := workflow.Traits{Provider: workflow.ProviderMAAS, BMC: true, Path: workflow.PathInstall}
	plan := workflow.Names(workflow.Plan(workflow.Onboarding, workflow.NoMode, traits))
	w := workflow.Workflow{Kind: workflow.Onboarding, Provider: workflow.ProviderMAAS, State: workflow.Running, Plan: plan,
		Attempts: 1}
	w.Evidence = map[string]string{"maas_found": "found"}
	step := func(stage string) workflow.Attempt {
		return workflow.Attempt{Phase: "FAILED", Step: workflow.StepName(stage), Reason: "MAAS_STATUS_CONFLICT",
			Message: "no"}
	}
	f := workflow.Facts{Stage: workflow.StageFacts{
		Kind: workflow.Onboarding, Provider: workflow.ProviderMAAS, ProviderState: maasstatus.StateReady,
		Machine: fleet.Facts{NodeState: fleet.Installing},
	}}
	e, refused := workflow.Act(workflow.Follow(w, step(workflow.CommissionRun)), workflow.Adopt, f)
	if refused != nil {
		t.Fatal(refused)
	}
	w = workflow.Follow(e.Workflow, workflow.Attempt{
		Phase: "RUNNING", Step: workflow.StepName(workflow.WaitForReady), Evidence: map[string]string{"maas_ready": "true"},
	})
	e, refused = workflow.Act(workflow.Follow(w, step(workflow.DeployViaMAAS)), workflow.Resume, f)
	if refused != nil || e.Workflow.Stage != workflow.DeployViaMAAS {
		t.Errorf("it goes on at %s: %v", e.Workflow.Stage, refused)
	}
}
