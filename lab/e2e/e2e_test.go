package e2e

import (
	"fmt"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

func TestARebootFromEndToEnd(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	for _, site := range []bool{false, true} {
		t.Run(fmt.Sprintf("site=%v", site), func(t *testing.T) {
			m := c.NewMachine(t, harness.MachineOptions{Site: site})
			m.WaitConnected()
			rig.Maintenance(t, c.Client, m.ID)
			op := c.Wait(rig.Reboot(t, c.Client, m.ID, "r1", rig.PatientTime).GetOperationId(), rig.Soon)
			rig.Ended(t, op, rig.Succeeded, "")
			if op.GetEvidence()["boot_id_before"] == "" ||
				op.GetEvidence()["boot_id_before"] == op.GetEvidence()["boot_id_after"] {
				t.Errorf("evidence %v", op.GetEvidence())
			}
			// One for each transaction that has changed it: created, sent, granted, ended.
			if v := op.GetVersion(); v > 4 {
				t.Errorf("a reboot took %d transactions", v)
			}
			rig.Clean(t, m.WaitQuiet(rig.Soon))
		})
	}
}

// A simulated machine writes over its own system: its agent stays, and starts from another image each time.
func TestSimulatedMachinesStartFromAnotherImage(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	for i, image := range []string{"ubuntu-2204", "ubuntu-2404", "ubuntu-2404", "ubuntu-2204"} {
		op := harness.Must(t, c.Machines().ReimageMachine, &baremetalv1.ReimageMachineRequest{MachineId: m.ID,
			RequestId: fmt.Sprint("image-", i), ImageRef: image, TimeoutSeconds: rig.PatientTime})
		rig.Ended(t, c.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	}
}
