package workflow

import (
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

func moves(list []Move) string {
	var out []string
	for _, m := range list {
		out = append(out, string(m.To)+" by "+m.By)
	}
	return strings.Join(out, ", ")
}

// TestWhereANodeGoesWhenAStageBegins: every pair of a stage and a state that moves it; all others leave it where it is.
func TestWhereANodeGoesWhenAStageBegins(t *testing.T) {
	want := map[string]map[fleet.NodeState]string{
		DisableNode: {fleet.Active: "draining by workflow", fleet.Offline: "draining by workflow",
			fleet.Quarantined: "draining by workflow"},
		RetireNode:        {fleet.Draining: "retired by workflow"},
		RemoveRecord:      {fleet.Retired: "removing by workflow"},
		ApproveNode:       {fleet.BootstrapIssued: "enrolling by workflow", fleet.Discovered: "pending by admin"},
		InstallNode:       {fleet.Pending: "installing by workflow"},
		DeployViaMAAS:     {fleet.Pending: "installing by workflow"},
		WaitForEnrollment: {fleet.Installing: "installed by workflow"},
	}
	for _, s := range NodeStates() {
		if s != fleet.Draining && s != fleet.Retired && s != fleet.Removing && s != fleet.Deleted {
			want[RetireNode][s] = "retired by admin"
		}
	}
	for _, s := range catalogue {
		for _, from := range NodeStates() {
			if got := moves(At(s.Name, from)); got != want[s.Name][from] {
				t.Errorf("%s from %s: %q, want %q", s.Name, from, got, want[s.Name][from])
			}
		}
	}
}

// TestWhereANodeGoesWhenItsWorkflowEnds, from every state, by how it ended and whether the machine is clean.
func TestWhereANodeGoesWhenItsWorkflowEnds(t *testing.T) {
	onboarding := Workflow{Kind: Onboarding, Plan: []string{InstallNode}}
	soft := Workflow{Kind: Decommission, Mode: SoftReset}
	full := Workflow{Kind: Decommission, Mode: FullDecommission}
	in := func(w Workflow, s State, unclean bool) Workflow { w.State, w.Unclean = s, unclean; return w }
	back := "offline by workflow, active by system"
	for name, c := range map[string]struct {
		w    Workflow
		live bool
		want map[fleet.NodeState]string
	}{
		"onboarded": {in(onboarding, Completed, false), true, map[fleet.NodeState]string{
			fleet.Draining: back, fleet.Offline: "active by system", fleet.Installing: "installed by workflow, active by workflow",
			fleet.Installed: "active by workflow", fleet.Enrolling: "active by workflow"}},
		"reset": {in(soft, Reconciled, false), true, map[fleet.NodeState]string{
			fleet.Draining: back, fleet.Offline: "active by system", fleet.Installing: "installed by workflow, active by workflow",
			fleet.Installed: "active by workflow", fleet.Enrolling: "active by workflow"}},
		"removed": {in(full, Completed, false), true, map[fleet.NodeState]string{fleet.Removing: "deleted by workflow"}},
		"failed, agent up": {in(soft, FailedRetryable, false), true,
			map[fleet.NodeState]string{fleet.Draining: back, fleet.Removing: "retired by workflow"}},
		"failed, agent away": {in(soft, FailedManual, false), false,
			map[fleet.NodeState]string{fleet.Draining: "offline by workflow", fleet.Removing: "retired by workflow"}},
		"still running": {in(soft, Running, false), true, nil},
		"onboarding cancelled": {in(onboarding, Cancelled, false), false, map[fleet.NodeState]string{
			fleet.Enrolling: "quarantined by workflow", fleet.Installing: "quarantined by system", fleet.Installed: "quarantined by system",
			fleet.Draining: "offline by workflow", fleet.Removing: "retired by workflow"}},
		"reset cancelled": {in(soft, Cancelled, false), true,
			map[fleet.NodeState]string{fleet.Draining: back, fleet.Removing: "retired by workflow"}},
	} {
		for _, from := range NodeStates() {
			if got := moves(Ending(c.w, from, c.live)); got != c.want[from] {
				t.Errorf("%s from %s: %q, want %q", name, from, got, c.want[from])
			}
		}
	}
	for _, s := range []State{FailedRetryable, FailedManual, Cancelled} {
		for _, from := range NodeStates() {
			want := "quarantined by system"
			switch from {
			case fleet.Quarantined, fleet.Retired, fleet.Deleted:
				want = ""
			case fleet.Removing:
				want = "retired by workflow"
			}
			if got := moves(Ending(in(soft, s, true), from, true)); got != want {
				t.Errorf("%s and not clean, from %s: %q, want %q", s, from, got, want)
			}
		}
	}
	for _, from := range NodeStates() {
		want := ""
		if from == fleet.Retired {
			want = "offline by admin"
		}
		if got := moves(Resetting(soft, from)); got != want {
			t.Errorf("a clean start from %s: %q, want %q", from, got, want)
		}
		if got := Resetting(onboarding, from); got != nil {
			t.Errorf("a clean start of an onboarding from %s: %v", from, got)
		}
	}
}

// TestWhereAnAttemptMayGoOn, from every state of the node.
func TestWhereAnAttemptMayGoOn(t *testing.T) {
	for name, c := range map[string]struct {
		w  Workflow
		on []fleet.NodeState
	}{
		"onboarding": {Workflow{Kind: Onboarding}, []fleet.NodeState{fleet.Discovered, fleet.Pending, fleet.Installing, fleet.Installed,
			fleet.BootstrapIssued, fleet.Enrolling}},
		"reset": {Workflow{Kind: Decommission, Mode: SoftReset}, []fleet.NodeState{fleet.Active, fleet.Offline, fleet.Draining, fleet.Quarantined}},
		"removal": {Workflow{Kind: Decommission, Mode: FullDecommission},
			slices.DeleteFunc(NodeStates(), func(s fleet.NodeState) bool { return s == fleet.Deleted })},
	} {
		for _, s := range NodeStates() {
			r := Continuable(c.w, s, false)
			if may := slices.Contains(c.on, s); may != (r == nil) {
				t.Errorf("%s on a node that is %s: %+v", name, s, r)
			}
			if r := Continuable(c.w, s, true); s == fleet.Quarantined && (r == nil || r.Reason != "MACHINE_QUARANTINED") {
				t.Errorf("%s on a node that two machines answer for: %+v", name, r)
			}
		}
	}
}

// TestWhatACleanStartUndoes: it undoes the work that the stages up to the current one have begun at the provider, and
// the proof of later ones. Each action is done once. The attempt begins with them, after the stage that opens it.
func TestWhatACleanStartUndoes(t *testing.T) {
	plan := Plan(Onboarding, NoMode, Traits{Provider: ProviderMAAS, Path: PathInstall})
	w := Workflow{Kind: Onboarding, Provider: ProviderMAAS, State: FailedManual}
	for _, s := range plan {
		w.Plan = append(w.Plan, s.Name)
	}
	for i, s := range plan {
		w.Stage, w.StageIdx = s.Name, i
		want := map[string]bool{}
		for _, begun := range plan[:i+1] {
			for _, action := range begun.Undo {
				want[action] = true
			}
		}
		got := undoing(w)
		if len(got) != len(want) || slices.ContainsFunc(got, func(a string) bool { return !want[a] }) ||
			!slices.IsSorted(got) {
			t.Errorf("at %s: undoes %v, want %v", s.Name, got, want)
		}
		again := restart(w).Workflow
		stages := again.Attempting(false)
		if len(stages) != len(plan)+len(got) || stages[0].Name != plan[0].Name {
			t.Fatalf("at %s: the attempt has %d stages and begins with %s", s.Name, len(stages), stages[0].Name)
		}
		for j, action := range got {
			if u := stages[1+j]; u.Name != "undo_"+action || u.Provider != ProviderMAAS || !u.Wired ||
				u.Steps[0].Mode != action {
				t.Errorf("at %s: stage %d of the attempt is %+v", s.Name, j+1, u)
			}
		}
		if i == 0 && again.Evidence[undoDue] != strings.Join(got, ",") {
			t.Errorf("due %q", again.Evidence[undoDue])
		}
	}
	for _, s := range plan {
		if s.Gives == "" || len(s.Undo) == 0 {
			continue
		}
		w.Stage, w.StageIdx, w.Evidence = plan[0].Name, 0, map[string]string{s.Gives: "seen"}
		if got := undoing(w); !slices.Contains(got, s.Undo[0]) {
			t.Errorf("%s was done, and %v is undone", s.Name, got)
		}
	}
}

// TestThePublishedPlans: one for each kind, mode and provider, each with a name of its own and with steps.
func TestThePublishedPlans(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Plans() {
		if seen[p.GetPlanId()] || len(p.GetSteps()) == 0 || !p.GetBuiltIn() || p.GetDisplayName() == "" {
			t.Errorf("plan %v", p)
		}
		for _, s := range p.GetSteps() {
			if s.GetKind() == nil {
				t.Errorf("%s: step %s has no kind", p.GetPlanId(), s.GetName())
			}
		}
		seen[p.GetPlanId()] = true
	}
	for _, id := range []string{"onboard", "onboard-maas", "decommission-soft-reset",
		"decommission-full-decommission-maas"} {
		if !seen[id] {
			t.Errorf("no plan %s among %v", id, seen)
		}
	}
	if len(seen) != 2*(1+len(Modes(Decommission))) {
		t.Errorf("%d plans", len(seen))
	}
}

// TestModesOfAKind: an onboarding has none, a decommission always one.
func TestModesOfAKind(t *testing.T) {
	for _, m := range []Mode{NoMode, SoftReset, Reimage, FullDecommission, StorageCleanup, "OTHER"} {
		if got := Fits(Onboarding, m); got != (m == NoMode) {
			t.Errorf("an onboarding %q: %t", m, got)
		}
		if got := Fits(Decommission, m); got == (m == NoMode || m == "OTHER") {
			t.Errorf("a decommission %q: %t", m, got)
		}
		if Fits("OTHER", m) {
			t.Errorf("a kind that does not exist fits %q", m)
		}
	}
	for _, s := range States() {
		if got := Holds(s); got == (s == Completed || s == Reconciled || s == Cancelled) {
			t.Errorf("%s holds the machine: %t", s, got)
		}
	}
	for mode, want := range map[string]bool{SwitchOn: true, SwitchOff: true, "": false, "release": false} {
		if Switches(mode) != want {
			t.Errorf("%q switches: %t", mode, Switches(mode))
		}
	}
}

// TestWhatOfADriftBlocks: by the site's threshold.
func TestWhatOfADriftBlocks(t *testing.T) {
	for _, c := range []struct {
		threshold    Threshold
		text         string
		major, block bool
	}{
		{DriftAny, "x", false, true}, {DriftAny, "x", true, true}, {DriftAny, "", true, false},
		{DriftMajor, "x", false, false}, {DriftMajor, "x", true, true}, {DriftMajor, "", true, false},
		{DriftNone, "x", true, false},
	} {
		if got := DriftBlocks(c.threshold, c.text, c.major); got != c.block {
			t.Errorf("%+v: %t", c, got)
		}
	}
	if text, major := Drift(
		fleet.Active,
		Observation{State: "Deployed", HeldBy: "it belongs to eve there"},
	); !strings.Contains(
		text, "eve") ||
		!major {
		t.Errorf("a machine that somebody else has is %q, major %v", text, major)
	}
	if text, major := Drift(
		fleet.Active,
		Observation{State: "deployed", SystemID: "b", KnownID: "a"},
	); text == "" ||
		!major {
		t.Errorf("another system id: %q, major %t", text, major)
	}
}

// TestWhichFailuresAnotherTryMends, by their reasons.
func TestWhichFailuresAnotherTryMends(t *testing.T) {
	for reason, want := range map[string]Class{
		"CLUSTER_NOT_CONFIGURED": ClassRefused, "CLUSTER_ACCESS_DENIED": ClassRefused, "MAAS_AUTH_FAILED": ClassRefused,
		"MAAS_REFUSED": ClassRefused, "MAAS_MACHINE_GONE": ClassGone, "MAAS_STATUS_CONFLICT": ClassDisagree,
		"FLEET_FROZEN":   ClassRefused,
		"NEVER_HEARD_OF": ClassDisagree,
	} {
		if class, retryable := Classify(reason); class != want || retryable {
			t.Errorf("%s: %s, retryable %t", reason, class, retryable)
		}
	}
	for _, reason := range []string{"MAAS_UNREACHABLE", "MAAS_FAILED", "CLUSTER_UNREACHABLE"} {
		if _, retryable := Classify(reason); !retryable {
			t.Errorf("%s is not tried again", reason)
		}
	}
	for stage, want := range map[string]Class{
		InstallNode: ClassInstall, DeployViaMAAS: ClassInstall, WaitDeployed: ClassInstall,
		WaitForEnrollment: ClassSeed, RecoverDeploy: ClassSeed, WaitHardwareRun: ClassSeed, ApproveNode: ClassRepeated,
	} {
		w := Workflow{Stage: stage, Bound: 1}
		if to := w.failAs("MAAS_UNREACHABLE", "x"); to != FailedManual || w.FailureClass != want {
			t.Errorf("%s has failed too often: %s, %s", stage, to, w.FailureClass)
		}
	}
}
