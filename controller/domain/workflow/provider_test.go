package workflow_test

import (
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// expected has the statuses that MAAS may show by the requirements, by node state. It is "any" where they demand
// nothing, or where a node may be anything.
var expected = map[string]string{
	"discovered": "any", "pending": "any", "bootstrap_issued": "any", "install_failed": "any", "quarantined": "any",
	"deleted":    "any",
	"enrolling":  "New Commissioning Testing Ready Allocated Deploying Deployed",
	"installing": "New Commissioning Testing Ready Allocated Deploying Deployed",
	"installed":  "Deployed", "active": "Deployed", "offline": "Deployed",
	"reprovision":    "Deployed Ready Releasing Allocated Deploying",
	"migrating":      "Deployed Ready Releasing Allocated Deploying",
	"deprovisioning": "Deployed Ready Releasing Allocated Deploying",
	"draining":       "Deployed Ready Releasing Allocated Deploying",
	"retired":        "Deployed Ready", "removing": "Ready Releasing Absent",
}

// TestProviderDriftOfEveryPair: every node state with every state of the provider.
func TestProviderDriftOfEveryPair(t *testing.T) {
	pairs := 0
	for _, n := range workflow.NodeStates() {
		want, listed := expected[string(n)]
		if !listed {
			t.Errorf("nothing is said of %s", n)
		}
		for _, s := range maasstatus.States() {
			pairs++
			fine := want == "any" || s == maasstatus.StateUnknown || strings.Contains(" "+want+" ", " "+string(s)+" ")
			drift := workflow.ProviderDrift(n, s)
			if (drift == "") != fine {
				t.Errorf("%s with %s: %q, want fine %v", n, s, drift, fine)
			}
			if drift != "" && (!strings.Contains(drift, string(n)) || !strings.Contains(drift, string(s))) {
				t.Errorf("%q names neither", drift)
			}
		}
	}
	if pairs != 17*12 {
		t.Errorf("%d pairs", pairs)
	}
}

// TestAdoptingWhatMAASShows: a stage of MAAS that may be adopted is adopted on MAAS's word, and on no other.
func TestAdoptingWhatMAASShows(t *testing.T) {
	for stage, want := range map[string]string{
		workflow.CreateInMAAS:  "New Commissioning Testing Ready Allocated Deploying Deployed",
		workflow.CommissionRun: "Commissioning Testing Ready Allocated Deploying Deployed",
		workflow.WaitForReady:  "Ready Allocated Deploying Deployed",
		workflow.DeployViaMAAS: "Deploying Deployed", workflow.WaitDeployed: "Deployed", workflow.ReleaseMAAS: "Ready New",
		workflow.RemoveMAAS:    "Absent",
		workflow.RecoverDeploy: "", workflow.PowerOffMAAS: "",
	} {
		kind := workflow.Onboarding
		if _, ok := workflow.Find(kind, stage); !ok {
			kind = workflow.Decommission
		}
		row, _ := workflow.FindFor(kind, stage, workflow.ProviderMAAS)
		if row.Adoptable != (want != "" || stage == workflow.PowerOffMAAS) {
			t.Errorf("%s may be adopted: %v", stage, row.Adoptable)
		}
		for _, s := range append(maasstatus.States(), "") {
			v := workflow.Observed(row, workflow.StageFacts{Kind: kind, Provider: workflow.ProviderMAAS, ProviderState: s})
			if fine := s != "" && strings.Contains(" "+want+" ", " "+string(s)+" "); v.Pass != fine {
				t.Errorf("%s with %q: %+v", stage, s, v)
			}
		}
	}
	row, _ := workflow.FindFor(workflow.Decommission, workflow.PowerOffMAAS, workflow.ProviderMAAS)
	for power, want := range map[string]bool{"off": true, "on": false, "unknown": false, "": false} {
		if v := workflow.Observed(row, workflow.StageFacts{ProviderPower: power}); v.Pass != want {
			t.Errorf("power %q: %+v", power, v)
		}
	}
}
