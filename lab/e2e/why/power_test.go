package why

import (
	"testing"

	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
	"github.com/ingot-metal/ingot/lab/bmc"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// TestPowerOffAndOn: an operator switches a machine through its BMC, or through its provider, and it counts when it was
// read back. A machine in service is not switched off.
func TestPowerOffAndOn(t *testing.T) {
	t.Parallel()
	r := newWhyRig(t)
	t.Run("by its BMC", func(t *testing.T) {
		id, _ := r.withBMC(t, "right", bmc.Faults{})
		for _, c := range []struct{ line, key string }{
			{"on", "power_on_seen_at"}, {"off", "power_off_seen_at"}, {"off", "power_off_seen_at"}, {"on", "power_on_seen_at"},
		} {
			if code, out := r.Ingot("power", c.line, id); code != 0 {
				t.Fatalf("power %s: exit code %d\n%s", c.line, code, out)
			}
			if op := r.OperationsOf(id)[0]; op.GetEvidence()[c.key] == "" || op.GetPlanId() != "power-"+c.line {
				t.Errorf("%s: %v", c.line, op)
			}
		}
		op := harness.Must(t, r.Machines().ExitMaintenance,
			&baremetalv1.ExitMaintenanceRequest{MachineId: id, RequestId: "out"})
		rig.Ended(t, r.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
		_, err := baremetalv1.NewRunServiceClient(r.Conn()).StartRun(t.Context(),
			&baremetalv1.StartRunRequest{MachineId: id, RequestId: "off", PlanId: "power-off"})
		if !harness.HasReason(err, "WRONG_PHASE") {
			t.Errorf("a machine in service: %v", err)
		}
	})
	t.Run("by MAAS", func(t *testing.T) {
		x := r.maas(t, &maastest.Machine{Status: ms.Deployed, Power: "off"}) // MAAS starts no machine without an owner
		x.Region.Change(x.systemID, func(m *maastest.Machine) { m.Annotations = map[string]string{"ingot-machine": x.id} })
		rig.Maintenance(t, r.Client, x.id)
		for _, want := range []string{"on", "off"} {
			if code, out := r.Ingot("power", want, x.id); code != 0 {
				t.Fatalf("power %s: exit code %d\n%s", want, code, out)
			}
			if m, _ := x.Region.Get(x.systemID); m.Power != want || x.Region.Acted("POST power_"+want) != 1 {
				t.Errorf("MAAS reads %s, want %s", m.Power, want)
			}
		}
	})
}
