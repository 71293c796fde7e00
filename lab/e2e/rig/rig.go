package rig

import (
	"context"
	"crypto/tls"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/state"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/harness"
)

// Main lets many tests wait at once: they wait for deadlines far more than they compute.
func Main(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "10"); err != nil {
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
	Succeeded = baremetalv1.Operation_SUCCEEDED
	Failed    = baremetalv1.Operation_FAILED
	Canceled  = baremetalv1.Operation_CANCELED
)

// Soon is more than any short limit of the tests, under load.
const Soon = 90 * time.Second

// Clean fails the test when the machine's history contradicts itself.
func Clean(t *testing.T, h harness.History) {
	t.Helper()
	if p := h.Problems(); len(p) > 0 {
		t.Errorf("%v\n%v", p, h)
	}
}

// Ended fails the test unless the operation is in this phase, with this code where one is given.
func Ended(t *testing.T, o *baremetalv1.Operation, want baremetalv1.Operation_Phase, code string) {
	t.Helper()
	if o.GetPhase() != want || o.GetError().GetCode() != code {
		t.Fatalf("operation is %s with %v, want %s %s", o.GetPhase(), o.GetError(), want, code)
	}
}

// Maintenance takes a machine into maintenance.
func Maintenance(t *testing.T, c *harness.Client, id string) {
	t.Helper()
	op := harness.Must(t, c.Machines().EnterMaintenance,
		&baremetalv1.EnterMaintenanceRequest{MachineId: id, RequestId: "maintenance"})
	Ended(t, c.Wait(op.GetOperationId(), Soon), Succeeded, "")
}

// Reboot starts a reboot.
func Reboot(t *testing.T, c *harness.Client, id, request string, timeout int32) *baremetalv1.Operation {
	t.Helper()
	return harness.Must(t, c.Machines().RebootMachine,
		&baremetalv1.RebootMachineRequest{MachineId: id, RequestId: request, TimeoutSeconds: timeout})
}

func Condition(m *baremetalv1.Machine, kind string) *baremetalv1.Condition {
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
	StepTime    = 8
	PatientTime = 60
)

// IsolateAt cuts the agent off the first time that it passes the failpoint. The agent itself goes on.
func IsolateAt(m *harness.Machine, name string) {
	m.FP.Set(name, failpoint.Call(func(context.Context) error {
		m.Isolate()
		return nil
	}).At(1))
}

// Lease is the length of a controller's lease in these tests.
const Lease = 4 * time.Second

// AgentCert is the certificate of an agent that has enrolled.
func AgentCert(t *testing.T, m *harness.Machine) tls.Certificate {
	t.Helper()
	c, err := state.Dir(m.StateDir).Credentials()
	if err != nil {
		t.Fatal(err)
	}
	return c.TLS()
}

// AtPoint calls fn the first time that the machine's agent passes the failpoint, then crashes the agent there.
func AtPoint(m *harness.Machine, name string, fn func()) {
	m.FP.Set(name, failpoint.Call(func(context.Context) error {
		if fn != nil {
			fn()
		}
		return failpoint.ErrInjected
	}).At(1))
}

func FailedState(w *baremetalv1.Workflow) bool {
	return w.GetState() == baremetalv1.Workflow_FAILED_RETRYABLE ||
		w.GetState() == baremetalv1.Workflow_FAILED_MANUAL_INTERVENTION
}

type Stringer func() string

func (s Stringer) String() string { return s() }
