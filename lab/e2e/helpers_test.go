package e2e

import (
	"context"
	"crypto/tls"
	"flag"
	"github.com/ingot-metal/ingot/agent/state"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/config"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/harness"
	"os"
	"testing"
	"time"
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

// How long a step may take, in seconds: where it may well run into its deadline, and where it must not even on a
// machine that does ten other things.
const (
	stepTime    = 8
	patientTime = 60
)

// patient gives the steps of plans the longer time.
func patient(c *config.Config) {
	for kind, s := range c.Steps {
		d := config.Duration{Duration: patientTime * time.Second}
		s.Timeout = &d
		c.Steps[kind] = s
	}
}

// isolateAt cuts the agent off the first time that it passes the failpoint. The agent itself goes on.
func isolateAt(m *harness.Machine, name string) {
	m.FP.Set(name, failpoint.Call(func(context.Context) error {
		m.Isolate()
		return nil
	}).At(1))
}

// lease is the length of a controller's lease in these tests.
const lease = 4 * time.Second

// agentCert is the certificate of an agent that has enrolled.
func agentCert(t *testing.T, m *harness.Machine) tls.Certificate {
	t.Helper()
	c, err := state.Dir(m.StateDir).Credentials()
	if err != nil {
		t.Fatal(err)
	}
	return c.TLS()
}

// atPoint calls fn the first time that the machine's agent passes the failpoint, then crashes the agent there.
func atPoint(m *harness.Machine, name string, fn func()) {
	m.FP.Set(name, failpoint.Call(func(context.Context) error {
		if fn != nil {
			fn()
		}
		return failpoint.ErrInjected
	}).At(1))
}

func failedState(w *baremetalv1.Workflow) bool {
	return w.GetState() == baremetalv1.Workflow_FAILED_RETRYABLE ||
		w.GetState() == baremetalv1.Workflow_FAILED_MANUAL_INTERVENTION
}

type stringer func() string

func (s stringer) String() string { return s() }
