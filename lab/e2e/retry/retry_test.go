package retry

import (
	"fmt"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func TestMain(m *testing.M) { rig.Main(m) }

// start is one call that starts work, under a request id.
type start func(t *testing.T, c *harness.Client, machine, request string) (*baremetalv1.Operation, error)

// calls by the effect that a script lets fail.
var calls = map[string]start{
	"reboot": func(t *testing.T, c *harness.Client, machine, request string) (*baremetalv1.Operation, error) {
		return harness.Call(t, c.Machines().RebootMachine, &baremetalv1.RebootMachineRequest{MachineId: machine,
			RequestId: request, TimeoutSeconds: limit(request)})
	},
	"netboot": func(t *testing.T, c *harness.Client, machine, request string) (*baremetalv1.Operation, error) {
		return harness.Call(t, c.Machines().NetbootMachine, &baremetalv1.NetbootMachineRequest{MachineId: machine,
			RequestId: request, Mode: "PXE", TimeoutSeconds: limit(request)})
	},
	"repave": func(t *testing.T, c *harness.Client, machine, request string) (*baremetalv1.Operation, error) {
		return harness.Call(t, c.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{MachineId: machine,
			RequestId: request, ImageRef: "ubuntu-2204", TimeoutSeconds: limit(request)})
	},
	"hostname": func(t *testing.T, c *harness.Client, machine, request string) (*baremetalv1.Operation, error) {
		return harness.Call(t, c.Machines().ReconfigureMachine, &baremetalv1.ReconfigureMachineRequest{MachineId: machine,
			RequestId: request, TimeoutSeconds: limit(request), Config: &baremetalv1.NetReconfig{Hostname: "renamed",
				ConfirmTimeoutSeconds: 1}})
	},
}

// limit is how long each step may take, in seconds: short where the failure is that nothing comes, and long for the
// retry, which waits for a busy machine.
func limit(request string) int32 {
	if request == "first" {
		return rig.StepTime
	}
	return 60
}

// TestEveryFailureAndItsPlainRetry fails an operation of each kind in every way that the simulated machine knows, and
// calls again.
func TestEveryFailureAndItsPlainRetry(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	for effect, call := range calls {
		for _, mode := range sim.Modes() {
			t.Run(fmt.Sprint(effect, "-", mode), func(t *testing.T) {
				t.Parallel()
				script := fmt.Sprintf("%s:%s@1", effect, mode)
				if mode == sim.Late {
					script = fmt.Sprintf("%s:%s=%v@1", effect, mode, time.Second)
				}
				m := c.NewMachine(t, harness.MachineOptions{Script: script, Supervised: true})
				m.WaitConnected()
				rig.Maintenance(t, c.Client, m.ID)
				failsAndRetries(t, c, m, call)
			})
		}
	}
}

// failsAndRetries calls until the operation succeeds, at most twice, and holds that the machine is well then.
func failsAndRetries(t *testing.T, c *harness.Cluster, m *harness.Machine, call start) {
	op, err := call(t, c.Client, m.ID, "first")
	if err != nil {
		t.Fatal(err)
	}
	first := c.Wait(op.GetOperationId(), rig.Soon)
	code := first.GetError().GetCode()
	t.Logf("first: %s %s", first.GetPhase(), code)
	if first.GetPhase() == rig.Succeeded {
		return
	}
	again, err := call(t, c.Client, m.ID, "again")
	if harness.HasReason(err, "COMMAND_UNRESOLVED") {
		if code != "OUTCOME_UNKNOWN" {
			t.Fatalf("the first ended as %s, and its retry is refused: %v", code, err)
		}
		harness.Must(t, c.Admin().SettleCommand, &baremetalv1.SettleCommandRequest{MachineId: m.ID,
			CommandId: c.Machine(m.ID).GetStatus().GetUnresolvedCommandId(), Verdict: "did_not_happen", Comment: "of the test"})
		again, err = call(t, c.Client, m.ID, "again")
	}
	if err != nil {
		t.Fatalf("the first ended as %s, and its retry is refused: %v", code, err)
	}
	rig.Ended(t, c.Wait(again.GetOperationId(), 3*rig.Soon), rig.Succeeded, "")
	if st := c.Machine(m.ID).GetStatus(); st.GetAttentionReason() != "" || st.GetUnresolvedCommandId() != "" {
		t.Errorf("the retry of %s has succeeded, and the machine needs attention: %s (%s)", code, st.GetAttentionReason(),
			st.GetAttentionMessage())
	}
	rig.Clean(t, m.WaitQuiet(rig.Soon))
}
