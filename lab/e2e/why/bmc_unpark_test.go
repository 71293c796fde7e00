package why

import (
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
)

// TestAParkedBMCIsAskedAgain: a BMC that refused its credentials is left alone until an admin allows another attempt. A
// machine without a BMC has none that could be.
func TestAParkedBMCIsAskedAgain(t *testing.T) {
	t.Parallel()
	r := newWhyRig(t)
	id, service := r.withBMC(t, "later", bmc.Faults{WrongPassword: 403})
	testkit.Eventually(t, rig.Soon,
		func() bool { return rig.Condition(r.Machine(id), "BMCReachable").GetReason() == "BMC_AUTH_FAILED" },
		"nothing is refused")
	service.SetPassword("later")
	if code, out := r.Ingot("bmc", "unpark", id, "--comment", "the directory was down"); code != 0 {
		t.Fatalf("unpark: %d %s", code, out)
	}
	testkit.Eventually(t, rig.Soon, func() bool { return rig.Condition(r.Machine(id), "BMCReachable").GetStatus() },
		"the BMC is not asked again")
	if code, out := r.Ingot("audit", id); code != 0 || !strings.Contains(out, "UNPARK_BMC") {
		t.Errorf("the audit log: %d %s", code, out)
	}
	bare := r.Register(&baremetalv1.Machine{}).GetMachineId()
	if code, out := r.Ingot("bmc", "unpark", bare); code == 0 || !strings.Contains(out, "NO_BMC") &&
		!strings.Contains(out, "--bmc-endpoint") {
		t.Errorf("unpark without a BMC: %d %s", code, out)
	}
}
