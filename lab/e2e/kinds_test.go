package e2e

import (
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// kind is one kind of operation, started on a machine in maintenance.
type kind struct {
	name string
	// housekeeping touches no machine.
	housekeeping bool
	// start returns the error too: a fenced or quarantined machine refuses.
	start func(t testing.TB, c *harness.Client, machineID, requestID string, seconds int32) (*baremetalv1.Operation, error)
}

var kinds = []kind{
	{name: "reboot-graceful", start: rebootIn("graceful")},
	{name: "reboot-force", start: rebootIn("force")},
	{name: "netboot", start: netboot(false)},
	{name: "netboot-now", start: netboot(true)},
	{name: "reimage", start: func(t testing.TB, c *harness.Client, m, r string, seconds int32) (*baremetalv1.Operation,
		error) {
		return harness.Call(t, c.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{
			MachineId: m, RequestId: r, ImageRef: "ubuntu-2204", TimeoutSeconds: seconds,
		})
	}},
	{name: "reconfigure", start: func(t testing.TB, c *harness.Client, m, r string, seconds int32) (*baremetalv1.Operation,
		error) {
		return harness.Call(t, c.Machines().ReconfigureMachine, &baremetalv1.ReconfigureMachineRequest{
			MachineId: m, RequestId: r, TimeoutSeconds: seconds, Config: &baremetalv1.NetReconfig{
				Hostname: "host-" + ids.New("h")[10:20], ConfirmTimeoutSeconds: 1, Firewall: &baremetalv1.FirewallPolicy{
					DefaultInput: "drop", Allow: []*baremetalv1.FirewallRule{{Protocol: "tcp", PortFrom: 22}},
				},
			},
		})
	}},
	{name: "enter-maintenance", housekeeping: true, start: func(t testing.TB, c *harness.Client, m, r string,
		seconds int32) (*baremetalv1.Operation, error) {
		return harness.Call(t, c.Machines().EnterMaintenance,
			&baremetalv1.EnterMaintenanceRequest{MachineId: m, RequestId: r})
	}},
	{name: "run-plan", start: func(t testing.TB, c *harness.Client, m, r string, seconds int32) (*baremetalv1.Operation,
		error) {
		run, err := harness.Call(t, baremetalv1.NewRunServiceClient(c.Conn()).StartRun, &baremetalv1.StartRunRequest{
			MachineId: m, RequestId: r, PlanId: testPlan, Params: map[string]string{"image_ref": "ubuntu-2204"},
		})
		if err != nil {
			return nil, err
		}
		return c.Operation(run.GetRunId()), nil
	}},
}

// housekeeping that must work whatever became of the machine.
var exitMaintenance = kind{name: "exit-maintenance", housekeeping: true,
	start: func(t testing.TB, c *harness.Client, m, r string, seconds int32) (*baremetalv1.Operation, error) {
		return harness.Call(t, c.Machines().ExitMaintenance, &baremetalv1.ExitMaintenanceRequest{MachineId: m, RequestId: r})
	}}

func rebootIn(mode string) func(testing.TB, *harness.Client, string, string, int32) (*baremetalv1.Operation, error) {
	return func(t testing.TB, c *harness.Client, m, r string, seconds int32) (*baremetalv1.Operation, error) {
		return harness.Call(t, c.Machines().RebootMachine, &baremetalv1.RebootMachineRequest{
			MachineId: m, RequestId: r, Mode: mode, TimeoutSeconds: seconds,
		})
	}
}

func netboot(now bool) func(testing.TB, *harness.Client, string, string, int32) (*baremetalv1.Operation, error) {
	return func(t testing.TB, c *harness.Client, m, r string, seconds int32) (*baremetalv1.Operation, error) {
		return harness.Call(t, c.Machines().NetbootMachine, &baremetalv1.NetbootMachineRequest{
			MachineId: m, RequestId: r, Mode: "PXE", Reboot: now, TimeoutSeconds: seconds,
		})
	}
}

const testPlan = "test-plan"

// makePlan stores a plan of four steps, with the limits of the server.
func makePlan(t testing.TB, c *harness.Client) {
	t.Helper()
	plan := &baremetalv1.Plan{PlanId: testPlan, DisplayName: "Of several steps", Steps: []*baremetalv1.Step{
		{Name: "next-boot", Kind: &baremetalv1.Step_Netboot{Netboot: &baremetalv1.SetNetboot{Mode: "HTTP"}}},
		{Name: "restart", Kind: &baremetalv1.Step_Reboot{Reboot: &baremetalv1.Reboot{}}},
		{Name: "write", Kind: &baremetalv1.Step_Repave{Repave: &baremetalv1.RepaveImage{Image: "debian-12"}}},
		{Name: "boot-it", Kind: &baremetalv1.Step_Reboot{Reboot: &baremetalv1.Reboot{Mode: "force"}}},
	}}
	harness.Must(t, baremetalv1.NewPlanServiceClient(c.Conn()).CreatePlan, &baremetalv1.CreatePlanRequest{Plan: plan})
}

// endLimit is when an operation with short steps must have ended, with all its retries, on a loaded machine.
const endLimit = 150 * time.Second

// TestARebootByItsBMC switches a machine off and on through its provider, whose system then has another boot id.
func TestARebootByItsBMC(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{Site: true})
	rig.Maintenance(t, c.Client, m.ID)
	op, err := rebootIn("bmc")(t, c.Client, m.ID, "r-1", rig.PatientTime)
	if err != nil {
		t.Fatal(err)
	}
	got := c.Wait(op.GetOperationId(), 2*rig.Soon)
	seen := got.GetEvidence()
	if got.GetPhase() != rig.Succeeded || seen[evidence.PowerOffSeenAt] == "" || seen[evidence.PowerOnSeenAt] == "" ||
		seen[evidence.BootIDAfter] == "" || seen[evidence.BootIDAfter] == seen[evidence.BootIDBefore] {
		t.Errorf("%v", got)
	}
}
