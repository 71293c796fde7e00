package workflow_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// rows names the rows of the catalogue that have a trait, each once.
func rows(has func(workflow.Stage) bool) string {
	var out []string
	for _, s := range workflow.Catalogue() {
		name := strings.ToLower(string(s.Kind[:1])) + ":" + s.Name
		if has(s) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestWhatStagesAre: which change the machine, which open an attempt, which may be adopted, and which go on from
// another. Every row of a name agrees.
func TestWhatStagesAre(t *testing.T) {
	for name, c := range map[string]struct {
		has  func(workflow.Stage) bool
		want string
	}{
		"touches": {func(s workflow.Stage) bool { return s.Touches },
			"d:cleanup_storage d:install_node d:power_off_node d:reset_host d:scrub_gpu"},
		"opens": {func(s workflow.Stage) bool { return s.Opens },
			"d:disable_node d:remove_gpuaas_node_record o:approve_node"},
		"adoptable, not of MAAS": {func(s workflow.Stage) bool { return s.Adoptable && s.Provider != workflow.ProviderMAAS },
			"d:drain_node d:power_off_node d:wait_for_agent_enrollment o:wait_for_agent_enrollment"},
		"resumes elsewhere": {func(s workflow.Stage) bool { return s.ResumeAt != "" },
			"d:cleanup_secrets o:classify_deploy_failure o:ensure_hardware_sync_configured o:recover_for_datasource_retry " +
				"o:wait_for_agent_enrollment o:wait_for_deployed o:wait_for_hardware_sync_healthy o:wait_for_ready"},
		"undoes": {func(s workflow.Stage) bool { return len(s.Undo) > 0 },
			"d:install_node o:commission_node o:deploy_via_maas o:recover_for_datasource_retry"},
	} {
		if got := rows(c.has); got != c.want {
			t.Errorf("%s: %s\nwant %s", name, got, c.want)
		}
	}
	changes := map[string]bool{}
	for _, s := range workflow.Catalogue() {
		if before, seen := changes[string(s.Kind)+s.Name]; seen && before != s.Touches {
			t.Errorf("one row of %s changes the machine, and another does not", s.Name)
		}
		changes[string(s.Kind)+s.Name] = s.Touches
	}
}

// TestTheRowOfAStage: of the kind, and of the machine's provider where there are two.
func TestTheRowOfAStage(t *testing.T) {
	for _, c := range []struct {
		kind           workflow.Kind
		name, provider string
		want           string
	}{
		{workflow.Decommission, workflow.CleanupStorage, workflow.ProviderMAAS, "maas"},
		{workflow.Decommission, workflow.CleanupStorage, "agent", "not maas"},
		{workflow.Decommission, workflow.InstallNode, workflow.ProviderMAAS, "maas"},
		{workflow.Decommission, workflow.InstallNode, "", "not maas"},
		{workflow.Decommission, workflow.ScrubGPU, workflow.ProviderMAAS, "maas"},
		{workflow.Onboarding, workflow.InstallNode, "agent", "not maas"},
		{workflow.Onboarding, workflow.LoadSiteConfig, workflow.ProviderMAAS, "maas"},
		{workflow.Onboarding, workflow.ApproveNode, workflow.ProviderMAAS, ""},
	} {
		s, ok := workflow.FindFor(c.kind, c.name, c.provider)
		if !ok || s.Kind != c.kind || s.Name != c.name || s.Provider != c.want {
			t.Errorf("%s of %s, %q: %+v", c.name, c.kind, c.provider, s)
		}
	}
	for kind, name := range map[workflow.Kind]string{workflow.Onboarding: workflow.CleanupStorage,
		workflow.Decommission: workflow.ApproveNode} {
		if s, ok := workflow.Find(kind, name); ok {
			t.Errorf("%s has %+v", kind, s)
		}
		if got := workflow.StageOf(kind, workflow.StepName(name)); got != "" {
			t.Errorf("a step of %s belongs to %s", kind, got)
		}
	}
}

// TestWhichStagesAnAttemptHas: those from its stage on, after the one that opens it, and without proven ones where that
// is asked for.
func TestWhichStagesAnAttemptHas(t *testing.T) {
	w := sample(workflow.FailedRetryable)
	all := w.Plan
	for stage, want := range map[string][]string{
		all[0]:                       all,
		all[1]:                       all,
		all[3]:                       append([]string{all[0]}, all[3:]...),
		workflow.CleanupSecrets:      {workflow.RemoveRecord, workflow.CleanupSecrets},
		"a stage of another release": all,
	} {
		w.Stage = stage
		if got := workflow.Names(w.Attempting(false)); !slices.Equal(got, want) {
			t.Errorf("from %s: %v, want %v", stage, got, want)
		}
	}
	w.Stage, w.Evidence = all[0], map[string]string{evidence.EraseMethod: "ata"}
	want := slices.DeleteFunc(slices.Clone(all), func(n string) bool { return n == workflow.CleanupStorage })
	if got := workflow.Names(w.Attempting(true)); !slices.Equal(got, want) {
		t.Errorf("without what is proven: %v", got)
	}
	if got := workflow.Names(w.Attempting(false)); !slices.Equal(got, all) {
		t.Errorf("with all: %v", got)
	}
	if got := workflow.NotImplemented([]workflow.Stage{{Name: "a", Wired: true}, {Name: "b"}, {Name: "c"}}); got != "b" {
		t.Errorf("not built: %q", got)
	}
	if got := workflow.NotImplemented(workflow.Catalogue()); got != "" {
		t.Errorf("not built: %q", got)
	}
}

// TestTheTimeAndTheNameOfPublishedPlans: what a provider may take for what lasts, and what people read.
func TestTheTimeAndTheNameOfPublishedPlans(t *testing.T) {
	seconds := map[string]int32{}
	names := map[string]string{}
	for _, p := range workflow.Plans() {
		names[p.GetPlanId()] = p.GetDisplayName()
		for _, s := range p.GetSteps() {
			if n := s.GetTimeoutSeconds(); n != 0 {
				seconds[s.GetProviderAction().GetAction()] = n
			}
		}
	}
	if want := map[string]int32{"wait_ready": 7200, "wait_deployed": 7200, "recover_deploy": 7200, "erase": 86400,
		"wait_hardware_sync": 3600}; !maps.Equal(seconds, want) {
		t.Errorf("seconds %v", seconds)
	}
	for id, want := range map[string]string{
		"onboard": "Onboard", "onboard-maas": "Onboard, by MAAS", "decommission-soft-reset": "Decommission: soft reset",
		"decommission-full-decommission-maas": "Decommission: full decommission, by MAAS",
	} {
		if names[id] != want {
			t.Errorf("%s is called %q", id, names[id])
		}
	}
}

// TestAPassedCheckSaysWhatItSaw: the check in words, and its evidence.
func TestAPassedCheckSaysWhatItSaw(t *testing.T) {
	f := wellFacts(workflow.Decommission, workflow.FullDecommission)
	for stage, says := range map[string]string{
		workflow.DisableNode: "the phase is MAINTENANCE",
		workflow.DrainNode:   "condition InCustomerCluster is false or Drained is true",
	} {
		if v := workflow.Judge(stage, f); !v.Pass || v.Message != says {
			t.Errorf("%s: %+v", stage, v)
		}
	}
	if v := workflow.Judge(workflow.ForceRelease, f); v.Evidence["allocations"] != "none" {
		t.Errorf("held by nobody: %+v", v)
	}
	f.Machine.Conditions = map[fleet.ConditionType]bool{fleet.InCustomerCluster: true, fleet.Drained: true}
	f.Cluster, f.ClusterKnown = "c1", true
	if v := workflow.Judge(workflow.ForceRelease, f); !strings.HasPrefix(v.Evidence["allocations"], "cluster c1") {
		t.Errorf("in a cluster: %+v", v)
	}
	if v := workflow.Judge(workflow.DrainNode, f); v.Evidence["drained"] != "condition Drained" {
		t.Errorf("drained: %+v", v)
	}
	f.Machine.Phase = fleet.Ready
	if v := workflow.Judge(workflow.DisableNode, f); v.Pass || !strings.Contains(v.Message, "enter maintenance") {
		t.Errorf("in service: %+v", v)
	}
	off, _ := workflow.FindFor(workflow.Decommission, workflow.PowerOffMAAS, workflow.ProviderMAAS)
	if v := workflow.Observed(off, workflow.StageFacts{ProviderPower: "off"}); v.Evidence["provider_power"] != "off" {
		t.Errorf("off: %+v", v)
	}
}

// TestWhenAnObservationIsDrift: another machine under the same name, or a state that does not go with the node's.
func TestWhenAnObservationIsDrift(t *testing.T) {
	for name, c := range map[string]struct {
		node        fleet.NodeState
		seen        workflow.Observation
		text, major bool
	}{
		"as it should be": {fleet.Active,
			workflow.Observation{State: maasstatus.StateDeployed, SystemID: "a", KnownID: "a"}, false, false},
		"another machine": {fleet.Active,
			workflow.Observation{State: maasstatus.StateDeployed, SystemID: "b", KnownID: "a"}, true, true},
		"never known by a name": {fleet.Active,
			workflow.Observation{State: maasstatus.StateDeployed, SystemID: "b"}, false, false},
		"no name is seen": {fleet.Active,
			workflow.Observation{State: maasstatus.StateDeployed, KnownID: "a"}, false, false},
		"another, while it comes in": {fleet.Enrolling,
			workflow.Observation{State: maasstatus.StateReady, SystemID: "b", KnownID: "a"}, false, true},
		"released under us": {fleet.Active, workflow.Observation{State: maasstatus.StateReady}, true, true},
		"deploying, which may be passed": {fleet.Active, workflow.Observation{State: maasstatus.StateDeploying}, true,
			false},
	} {
		text, major := workflow.Drift(c.node, c.seen)
		if (text != "") != c.text || major != c.major {
			t.Errorf("%s: %q, major %t", name, text, major)
		}
	}
	marks := map[string]bool{}
	for _, o := range []workflow.Observation{{State: "Ready", SystemID: "a"}, {State: "Ready", SystemID: "b"},
		{State: "Failed", SystemID: "a"}} {
		marks[o.Mark()] = true
	}
	if len(marks) != 3 {
		t.Errorf("observations that differ have the marks %v", marks)
	}
	if got := workflow.Thresholds(); !slices.Equal(got,
		[]workflow.Threshold{workflow.DriftAny, workflow.DriftMajor, workflow.DriftNone}) {
		t.Errorf("thresholds %v", got)
	}
}

// TestAMachineThatIsNotCleanIsQuarantined: after a failure at a stage that changes it, and after one was begun at all.
func TestAMachineThatIsNotCleanIsQuarantined(t *testing.T) {
	for _, c := range []struct {
		state   workflow.State
		stage   string
		unclean bool
		want    bool
	}{
		{workflow.FailedRetryable, workflow.CleanupStorage, false, true},
		{workflow.FailedManual, workflow.CleanupStorage, false, true},
		{workflow.Cancelled, workflow.CleanupStorage, false, false},
		{workflow.Cancelled, workflow.DrainNode, true, true},
		{workflow.FailedRetryable, workflow.DrainNode, false, false},
		{workflow.FailedManual, workflow.DrainNode, true, true},
	} {
		w := sample(c.state)
		w.Stage, w.StageIdx, w.Unclean = c.stage, slices.Index(w.Plan, c.stage), c.unclean
		moves := workflow.Ending(w, fleet.Draining, false)
		if got := len(moves) > 0 && moves[0].To == fleet.Quarantined; got != c.want {
			t.Errorf("%+v: %v", c, moves)
		}
	}
}

// TestHowAMachineIsOnboardedWhenNobodySays: one that was given a token has a system already.
func TestHowAMachineIsOnboardedWhenNobodySays(t *testing.T) {
	for _, n := range workflow.NodeStates() {
		want := workflow.PathInstall
		if n == fleet.BootstrapIssued || n == fleet.Enrolling {
			want = workflow.PathAdopt
		}
		if got := workflow.DefaultPath(n); got != want {
			t.Errorf("%s: %s", n, got)
		}
	}
	for _, m := range workflow.Modes(workflow.Decommission) {
		if got := workflow.Destructive(workflow.Decommission, m); got == (m == workflow.SoftReset) {
			t.Errorf("%s loses data: %t", m, got)
		}
	}
}
