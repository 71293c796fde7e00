package workflow

import (
	"slices"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// TestOnlyAnOnboardingOfANewNodeIsApproved: what was in service, or failed on the way in, is not.
func TestOnlyAnOnboardingOfANewNodeIsApproved(t *testing.T) {
	fresh := []fleet.NodeState{
		fleet.Discovered,
		fleet.Pending,
		fleet.Installing,
		fleet.Installed,
		fleet.BootstrapIssued,
		fleet.Enrolling,
	}
	for _, s := range NodeStates() {
		v := Judge(ApproveNode, StageFacts{Kind: Onboarding, Machine: fleet.Facts{NodeState: s}})
		if v.Pass != slices.Contains(fresh, s) {
			t.Errorf("a node that is %s: %+v", s, v)
		}
	}
}

// TestWhatAClusterMeansForADrain: in every combination of the known facts.
func TestWhatAClusterMeansForADrain(t *testing.T) {
	for _, c := range []struct {
		in, drained, known bool
		cluster            string
		drain, release     string // codes, empty where the stage passes
		must               bool
	}{
		{false, false, false, "", "", "", false},
		{false, false, true, "a", "", "", false},
		{false, true, true, "a", "", "", false},
		{true, true, true, "a", "", "", false},
		{true, true, false, "a", "", "CLUSTER_NOT_FOUND", false},
		{true, false, true, "a", "STAGE_CHECK_FAILED", "", true},
		{true, false, false, "a", "CLUSTER_NOT_FOUND", "CLUSTER_NOT_FOUND", false},
		{true, false, false, "", "CLUSTER_NOT_CONFIGURED", "CLUSTER_NOT_CONFIGURED", false},
	} {
		f := StageFacts{Kind: Decommission, Cluster: c.cluster, ClusterKnown: c.known, Machine: fleet.Facts{
			Conditions: map[fleet.ConditionType]bool{fleet.InCustomerCluster: c.in, fleet.Drained: c.drained}}}
		if v := Judge(DrainNode, f); v.Code != c.drain || v.Pass != (c.drain == "") {
			t.Errorf("%+v: the drain says %+v", c, v)
		}
		if v := Judge(ForceRelease, f); v.Code != c.release || v.Pass != (c.release == "") {
			t.Errorf("%+v: the release says %+v", c, v)
		}
		if MustDrain(f) != c.must {
			t.Errorf("%+v: must drain %t", c, !c.must)
		}
	}
}

// TestWhatProvesACleanMachine: each mode passes with exactly its evidence, and fails without any one of it.
func TestWhatProvesACleanMachine(t *testing.T) {
	for provider, image := range map[string]string{"": evidence.ImageDigest, ProviderMAAS: evidence.Deployed} {
		for mode, keys := range map[Mode][]string{
			SoftReset: {evidence.BootIDAfter}, Reimage: {image}, StorageCleanup: {evidence.EraseMethod, image},
			FullDecommission: {evidence.EraseMethod},
		} {
			f := StageFacts{Kind: Decommission, Mode: mode, Provider: provider, Evidence: map[string]string{}}
			for _, key := range keys {
				f.Evidence[key] = "seen"
			}
			v := Judge(ValidateClean, f)
			if !v.Pass || v.Evidence["clean"] != strings.Join(keys, ",") {
				t.Errorf("%s of %q with %v: %+v", mode, provider, keys, v)
			}
			for _, key := range keys {
				delete(f.Evidence, key)
				if v := Judge(ValidateClean, f); v.Pass || !strings.Contains(v.Message, key) {
					t.Errorf("%s of %q without %s: %+v", mode, provider, key, v)
				}
				f.Evidence[key] = "seen"
			}
		}
	}
}

// TestWhatVerifiesANode: a live agent, the image that was written, and health checks that pass.
func TestWhatVerifiesANode(t *testing.T) {
	for name, c := range map[string]struct {
		live           bool
		written, image string
		unhealthy      []string
		pass, wait     bool
	}{
		"well":                     {true, "sha256:DD", "dd", nil, true, false},
		"nothing was written":      {true, "", "ee", nil, true, false},
		"the system does not say":  {true, "dd", "", nil, true, false},
		"another image":            {true, "dd", "ee", nil, false, false},
		"another image, unhealthy": {true, "dd", "ee", []string{"disk"}, false, false},
		"unhealthy":                {true, "dd", "dd", []string{"disk"}, false, true},
		"no session":               {false, "dd", "ee", nil, false, true},
	} {
		v := Judge(VerifyNode, StageFacts{Kind: Onboarding, AgentLive: c.live, AgentImage: c.image, Unhealthy: c.unhealthy,
			Evidence: map[string]string{evidence.ImageDigest: c.written}})
		if v.Pass != c.pass || v.Wait != c.wait {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

// TestPowerIsResolved: with the credentials, and for machines of MAAS with the region.
func TestPowerIsResolved(t *testing.T) {
	for _, provider := range []string{"", ProviderMAAS} {
		for _, region := range []bool{false, true} {
			for _, credentials := range []bool{false, true} {
				v := Judge(ResolvePower, StageFacts{Kind: Onboarding, Provider: provider, RegionKnown: region,
					CredentialsKnown: credentials})
				if v.Pass != (credentials && (region || provider != ProviderMAAS)) {
					t.Errorf("provider %q, region %t, credentials %t: %+v", provider, region, credentials, v)
				}
			}
		}
	}
}

// TestAQuarantinedNodeTakesNoNewAttempt: what stops the work is allowed, and what goes on with it is refused.
func TestAQuarantinedNodeTakesNoNewAttempt(t *testing.T) {
	w := Workflow{Kind: Onboarding, State: FailedManual, Plan: []string{ApproveNode, VerifyNode},
		Stage: VerifyNode, StageIdx: 1}
	f := Facts{Stage: StageFacts{Kind: Onboarding, Machine: fleet.Facts{NodeState: fleet.Quarantined}}}
	for _, a := range []Action{RetryStage, Resume, Rerun, RestartClean, Adopt} {
		if e, r := Act(w, a, f); r == nil || r.Reason != "MACHINE_QUARANTINED" || e.Attempt {
			t.Errorf("%s: %+v, %+v", a, e, r)
		}
	}
	w.State = FailedRetryable
	if e, r := Act(w, Cancel, f); r != nil || e.Workflow.State != Cancelled || e.Workflow.LastAction != Cancel {
		t.Errorf("cancel: %+v, %+v", e, r)
	}
	if e, r := Act(w, MarkManual, f); r != nil || e.Workflow.State != FailedManual || e.Workflow.LastAction != MarkManual {
		t.Errorf("mark: %+v, %+v", e, r)
	}
}

// TestAnActionTakenTwice: while its attempt waits or runs,
// the same action is a success without effect; others are refused.
func TestAnActionTakenTwice(t *testing.T) {
	for _, s := range []State{Pending, Running, Compensating} {
		w := Workflow{Kind: Decommission, Mode: SoftReset, State: s, LastAction: RetryStage,
			Plan: []string{DisableNode}, Stage: DisableNode}
		e, r := Act(w, RetryStage, Facts{OperationActive: true})
		if e.Nothing != (s != Compensating) || (r == nil) != e.Nothing {
			t.Errorf("%s: again: %+v, %+v", s, e, r)
		}
		if _, r := Act(w, Rerun, Facts{OperationActive: true}); r == nil || r.Reason != "WORKFLOW_ACTION_ILLEGAL" {
			t.Errorf("%s: another action: %+v", s, r)
		}
	}
}

// TestARefusalNamesWhatIsAllowed, or reports that nothing is.
func TestARefusalNamesWhatIsAllowed(t *testing.T) {
	for s, want := range map[State]string{
		Completed: "it has ended and takes no action", Cancelled: "it allows rerun, restart_clean",
		Running: "it allows cancel, mark_manual_intervention_required",
	} {
		_, r := Act(Workflow{State: s}, RetryStage, Facts{})
		if r == nil || !strings.HasSuffix(r.Message, "; "+want) || !strings.Contains(r.Message, strings.ToLower(string(s))) {
			t.Errorf("%s: %+v, want %q", s, r, want)
		}
	}
}

// TestWhatAnAttemptLeavesOnAWorkflow, by the step it is at and whether it was granted.
func TestWhatAnAttemptLeavesOnAWorkflow(t *testing.T) {
	plan := Names(Plan(Decommission, FullDecommission, Traits{BMC: true}))
	at := slices.Index(plan, CleanupStorage)
	w := Workflow{Kind: Decommission, Mode: FullDecommission, State: Running, Plan: plan, Stage: CleanupStorage,
		StageIdx: at,
		Failures: map[string]int{DrainNode: 2, CleanupStorage: 1}}
	granted := Follow(w, Attempt{Phase: "RUNNING", Step: "cleanup-storage", Granted: true})
	if !granted.Unclean || Follow(w, Attempt{Phase: "RUNNING", Step: "cleanup-storage"}).Unclean ||
		Follow(w, Attempt{Phase: "RUNNING", Step: "drain-node", Granted: true}).Unclean {
		t.Error("a machine is not clean from the grant of a stage that touches it, and from nothing else")
	}
	if granted.Failures[DrainNode] != 0 || granted.Failures[CleanupStorage] != 1 || w.Failures[DrainNode] != 2 {
		t.Errorf("failures %v, and before %v", granted.Failures, w.Failures)
	}
	if again := Follow(w, Attempt{Phase: "RUNNING", Step: "disable-node"}); again.Stage != CleanupStorage ||
		again.StageIdx != at {
		t.Errorf("the stage that opens an attempt takes it back to %s", again.Stage)
	}
	if back := Follow(w, Attempt{Phase: "RUNNING", Step: "drain-node"}); back.Stage != DrainNode {
		t.Errorf("an attempt that goes on from drain_node is at %s", back.Stage)
	}
	for s, want := range map[State]State{Pending: Completed, Running: Completed, Compensating: FailedManual} {
		granted.State = s
		if done := Follow(granted, Attempt{Phase: "SUCCEEDED"}); done.State != want || done.Unclean == Terminal(want) {
			t.Errorf("%s, succeeded: %s, unclean %t", s, done.State, done.Unclean)
		}
		if done := Follow(granted, Attempt{Phase: "CANCELED"}); done.State != Cancelled || !done.Unclean {
			t.Errorf("%s, cancelled: %s, unclean %t", s, done.State, done.Unclean)
		}
	}
	w.Unclean = false
	if Follow(w, Attempt{Phase: "SUCCEEDED"}).Unclean {
		t.Error("an attempt that changed nothing leaves the machine unclean")
	}
}

// TestWhereAResumeGoesOn: at the stage, at the one that it names, or at the first whose evidence is lost.
func TestWhereAResumeGoesOn(t *testing.T) {
	w := Workflow{Kind: Decommission, Mode: FullDecommission, Plan: Names(Plan(Decommission, FullDecommission, Traits{}))}
	if got := SafeStage(w, CleanupSecrets); got != CleanupStorage {
		t.Errorf("without evidence: %s", got)
	}
	w.Evidence = map[string]string{evidence.EraseMethod: "ata"}
	for stage, want := range map[string]string{CleanupSecrets: RemoveRecord, RetireNode: RetireNode,
		"unheard_of": "unheard_of"} {
		if got := SafeStage(w, stage); got != want {
			t.Errorf("%s: goes on from %s", stage, got)
		}
	}
	left := Names(Unproven(w.Stages(), w.Evidence))
	if slices.Contains(left, CleanupStorage) || len(left) != len(w.Plan)-1 {
		t.Errorf("with evidence of the erasure, a rerun has %v", left)
	}
	if kept := Unproven(w.Stages(), nil); len(kept) != len(w.Plan) {
		t.Errorf("without evidence, a rerun has %v", Names(kept))
	}
}

// TestWhichMachinesHaveAStage: the stages that hang on a machine's traits, for every combination of them.
func TestWhichMachinesHaveAStage(t *testing.T) {
	for i := range 16 {
		tr := Traits{Provider: "agent", BMC: i&1 > 0, GPU: i&2 > 0, Path: PathInstall}
		if i&4 > 0 {
			tr.Provider = ProviderMAAS
		}
		if i&8 > 0 {
			tr.Path = PathAdopt
		}
		maas := tr.Provider == ProviderMAAS
		for _, k := range []Kind{Onboarding, Decommission} {
			for _, m := range Modes(k) {
				plan, all := Names(Plan(k, m, tr)), m == FullDecommission
				for stage, want := range map[string]bool{
					ScrubGPU:     tr.GPU && (m == SoftReset || all),
					PowerOffNode: tr.BMC && !maas && all,
					PowerOffMAAS: maas && all,
					ResolvePower: k == Onboarding && (tr.BMC || maas),
					InstallNode:  m == Reimage || m == StorageCleanup || k == Onboarding && !maas && tr.Path == PathInstall,
				} {
					if slices.Contains(plan, stage) != want {
						t.Errorf("%s %s of %+v has %s: %t", k, m, tr, stage, !want)
					}
				}
				id := PlanID(k, m, tr)
				if strings.HasSuffix(id, "-maas") != maas || strings.HasPrefix(id, "onboard") != (k == Onboarding) {
					t.Errorf("%s %s of %+v is plan %q", k, m, tr, id)
				}
			}
		}
	}
}

// TestAPublishedPlanHasEveryStage that machines of its provider may have,
// and each kind of step becomes one of that kind.
func TestAPublishedPlanHasEveryStage(t *testing.T) {
	i := 0
	for _, provider := range []string{"agent", ProviderMAAS} {
		tr := Traits{Provider: provider, BMC: true, GPU: true, Path: PathInstall}
		for _, k := range []Kind{Onboarding, Decommission} {
			for _, m := range Modes(k) {
				want := 0
				for _, s := range Plan(k, m, tr) {
					want += len(s.Steps)
				}
				if p := Plans()[i]; len(p.GetSteps()) != want || p.GetPlanId() != PlanID(k, m, tr) {
					t.Errorf("plan %s has %d steps, want %d", p.GetPlanId(), len(p.GetSteps()), want)
				}
				i++
			}
		}
	}
	for kind, is := range map[string]func(*baremetalv1.Step) bool{
		"netboot":        func(s *baremetalv1.Step) bool { return s.GetNetboot() != nil },
		"repave":         func(s *baremetalv1.Step) bool { return s.GetRepave() != nil },
		"reboot":         func(s *baremetalv1.Step) bool { return s.GetReboot().GetMode() == "x" },
		"erase":          func(s *baremetalv1.Step) bool { return s.GetErase() != nil },
		"reset_devices":  func(s *baremetalv1.Step) bool { return s.GetResetDevices() != nil },
		"wait_for_agent": func(s *baremetalv1.Step) bool { return s.GetWaitForAgent() != nil },
		ProviderKind:     func(s *baremetalv1.Step) bool { return s.GetProviderAction().GetAction() == "x" },
		CheckKind:        func(s *baremetalv1.Step) bool { return s.GetWorkflowStage().GetStage() == "x" },
	} {
		if s := (StepOf{"n", kind, "x"}).step(); !is(s) || s.GetName() != "n" {
			t.Errorf("a step of kind %s is %v", kind, s)
		}
	}
}

// TestTheAdviceForAFailure names the action that helps after what its class is about.
func TestTheAdviceForAFailure(t *testing.T) {
	for class, want := range map[Class]Action{
		ClassConflict: RestartClean, ClassDisk: RetryStage, ClassPXE: RetryStage, ClassGone: Cancel, ClassUnknown: Resume,
		ClassMarked: Resume, ClassRefused: RetryStage, ClassRepeated: RetryStage,
	} {
		w := Workflow{State: FailedManual, FailureClass: class}
		a, text := Next(w, false)
		if a != want || !strings.Contains(text, strings.ToLower(string(want))) {
			t.Errorf("%s: %s, %q", class, a, text)
		}
		if got, same := Recommend(w, Offer{}); got != a || same != text {
			t.Errorf("%s: recommends %s, %q", class, got, same)
		}
		got, why := Recommend(w, Offer{Refused: map[Action]*fleet.Refusal{want: {Message: "mend this"}}})
		if got != "" || why != "mend this, then "+strings.ToLower(string(want)) {
			t.Errorf("%s, refused: recommends %s, %q", class, got, why)
		}
	}
}
