package e2e

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/harness"
)

// TestMain lets many tests wait at once: they wait for deadlines far more than they compute.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil {
		panic(err)
	}
	removeFiles, err := testkit.FilesInMemory()
	if err != nil {
		panic(err)
	}
	if err := testkit.OwnServer(); err != nil {
		panic(err)
	}
	code := testkit.Run(m)
	harness.RemoveBinaries()
	removeFiles()
	os.Exit(code)
}

const (
	succeeded = baremetalv1.Operation_SUCCEEDED
	failed    = baremetalv1.Operation_FAILED
	canceled  = baremetalv1.Operation_CANCELED
)

// soon is more than any short limit of the tests, under load.
const soon = 90 * time.Second

// clean fails the test when the machine's history contradicts itself.
func clean(t *testing.T, h harness.History) {
	t.Helper()
	if p := h.Problems(); len(p) > 0 {
		t.Errorf("%v\n%v", p, h)
	}
}

// ended fails the test unless the operation is in this phase, with this code where one is given.
func ended(t *testing.T, o *baremetalv1.Operation, want baremetalv1.Operation_Phase, code string) {
	t.Helper()
	if o.GetPhase() != want || o.GetError().GetCode() != code {
		t.Fatalf("operation is %s with %v, want %s %s", o.GetPhase(), o.GetError(), want, code)
	}
}

// maintenance takes a machine into maintenance.
func maintenance(t *testing.T, c *harness.Client, id string) {
	t.Helper()
	op := harness.Must(t, c.Machines().EnterMaintenance,
		&baremetalv1.EnterMaintenanceRequest{MachineId: id, RequestId: "maintenance"})
	ended(t, c.Wait(op.GetOperationId(), soon), succeeded, "")
}

// reboot starts a reboot.
func reboot(t *testing.T, c *harness.Client, id, request string, timeout int32) *baremetalv1.Operation {
	t.Helper()
	return harness.Must(t, c.Machines().RebootMachine,
		&baremetalv1.RebootMachineRequest{MachineId: id, RequestId: request, TimeoutSeconds: timeout})
}

func condition(m *baremetalv1.Machine, kind string) *baremetalv1.Condition {
	for _, c := range m.GetStatus().GetConditions() {
		if c.GetType() == kind {
			return c
		}
	}
	return &baremetalv1.Condition{Type: kind}
}

func TestARebootFromEndToEnd(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	for _, site := range []bool{false, true} {
		t.Run(fmt.Sprintf("site=%v", site), func(t *testing.T) {
			m := c.NewMachine(t, harness.MachineOptions{Site: site})
			m.WaitConnected()
			maintenance(t, c.Client, m.ID)
			op := c.Wait(reboot(t, c.Client, m.ID, "r1", patientTime).GetOperationId(), soon)
			ended(t, op, succeeded, "")
			if op.GetEvidence()["boot_id_before"] == "" ||
				op.GetEvidence()["boot_id_before"] == op.GetEvidence()["boot_id_after"] {
				t.Errorf("evidence %v", op.GetEvidence())
			}
			clean(t, m.WaitQuiet(soon))
		})
	}
}
