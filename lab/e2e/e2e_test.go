package e2e

import (
	"fmt"
	"testing"

	"github.com/ingot-metal/ingot/lab/harness"
)

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
