package provideraction_test

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// TestADiskFailureIsDeployedOnce: cloud-init logs its search for a data source in every deployment.
func TestADiskFailureIsDeployedOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(maastest.Machine{Status: ms.Ready, FailDeploy: []string{"boot disk not found", "boot disk not found"}})
	r.must("deploy", nil)
	r.must("wait_deployed", map[string]string{"settle": "true"})
	for _, action := range []string{"classify_failure", "recover_deploy"} {
		if out := r.do(action, nil); out.Reason != baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH {
			t.Errorf("%s: %v %v %q", action, out.Outcome, out.Reason, out.Message)
		}
	}
	if n := r.region.Acted("POST deploy"); n != 1 {
		t.Errorf("deployed %d times", n)
	}
}

// TestARecoveryIsMadeOncePerOperation: a further command of the operation does not deploy once more.
func TestARecoveryIsMadeOncePerOperation(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	silent := "Node operation 'Deploying' timed out after 40 minutes."
	r.add(maastest.Machine{Status: ms.Ready, FailDeploy: []string{silent, silent, silent, silent}})
	r.must("deploy", nil)
	r.must("wait_deployed", map[string]string{"settle": "true"})
	for range 3 {
		if out := r.do("recover_deploy", nil); out.Outcome != fleetv1.CommandResult_FAILED ||
			out.Reason != baremetalv1.Reason_MAAS_FAILED {
			t.Errorf("%v %v %q", out.Outcome, out.Reason, out.Message)
		}
	}
	if n := r.region.Acted("POST deploy"); n != 2 {
		t.Errorf("deployed %d times", n)
	}
	// Another operation begins at the deployment, and may.
	if out := r.do("deploy", nil); out.Outcome != fleetv1.CommandResult_SUCCEEDED {
		t.Errorf("%v %v %q", out.Outcome, out.Reason, out.Message)
	}
}

// TestTestsThatFailedAreRunAgain: MAAS commissions nothing whose tests have failed before that is overridden.
func TestTestsThatFailedAreRunAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(maastest.Machine{Status: ms.New, FailTest: []string{"memtester", "memtester"}})
	r.must("commission", nil)
	if out := r.do("wait_ready", nil); out.Reason != baremetalv1.Reason_MAAS_FAILED {
		t.Fatalf("%v %v %q", out.Outcome, out.Reason, out.Message)
	}
	r.must("commission", nil)
	if n := r.region.Acted("POST commission"); n != 2 {
		t.Errorf("commissioned %d times", n)
	}
	if out := r.do("wait_ready", nil); out.Reason != baremetalv1.Reason_MAAS_FAILED {
		t.Fatalf("%v %v %q", out.Outcome, out.Reason, out.Message)
	}
	r.must("override_failed_testing", map[string]string{"comment": "the test is wrong"})
	r.must("wait_ready", nil)
	if n := r.region.Acted("POST override_failed_testing"); n != 2 {
		t.Errorf("overridden %d times", n)
	}
}
