package workflow

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	ev "github.com/ingot-metal/ingot/internal/evidence"
)

// TestAFailedDeploymentIsMadeAnew: the stages that wait for a deployment, or judge it, fail for its sake. Every way on
// makes it anew, as looking at it again would fail again.
func TestAFailedDeploymentIsMadeAnew(t *testing.T) {
	var plan []string
	for _, s := range catalogue {
		if s.Kind == Onboarding && s.of(ProviderMAAS) {
			plan = append(plan, s.Name)
		}
	}
	for _, stage := range []string{WaitDeployed, "classify_deploy_failure", RecoverDeploy} {
		for _, a := range []Action{Resume, RetryStage, Rerun, RestartClean} {
			evidence := map[string]string{}
			for _, s := range catalogue {
				if s.Gives != "" && s.Gives != ev.Deployed {
					evidence[s.Gives] = "held"
				}
			}
			held := len(evidence)
			w := Workflow{Kind: Onboarding, Provider: ProviderMAAS, State: FailedManual, Plan: plan, Evidence: evidence}
			w.at(stage)
			e, refused := Act(w, a, Facts{Stage: StageFacts{Machine: fleet.Facts{NodeState: fleet.Enrolling}}})
			if refused != nil {
				t.Fatalf("%s at %s: %v", a, stage, refused)
			}
			found := false
			for _, s := range e.Workflow.Attempting(e.Skip) {
				found = found || s.Name == DeployViaMAAS
			}
			if !found {
				t.Errorf("%s at %s deploys nothing: it goes on at %s", a, stage, e.Workflow.Stage)
			}
			if len(evidence) != held {
				t.Error("the stored workflow was changed")
			}
		}
	}
}
