package e2e

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/harness"
)

// TestMAASReimage: a reimage of a machine that MAAS installs is a deployment by MAAS; plans of our own installer are
// refused.
func TestMAASReimage(t *testing.T) {
	t.Parallel()
	r := newMAASRig(t)
	id, mac := r.register(9)
	r.start(id, "in", baremetalv1.Workflow_ONBOARDING, 0)
	host := r.boot(id, mac)
	r.completes(id)
	if got := r.c.Machine(id).GetStatus().GetPhase(); got != baremetalv1.MachineStatus_MAINTENANCE {
		maintenance(t, r.c.Client, id)
	}
	for _, plan := range []string{"repave", "erase", "netboot-now"} {
		_, err := baremetalv1.NewRunServiceClient(r.c.Conn()).StartRun(t.Context(), &baremetalv1.StartRunRequest{
			MachineId: id, RequestId: plan, PlanId: plan,
			Params: map[string]map[string]string{"repave": {"image_ref": "debian-12"}}[plan],
		})
		if !harness.HasReason(err, "INVALID_FIELD") {
			t.Errorf("plan %s: %v", plan, err)
		}
	}
	op := harness.Must(t, r.c.Machines().ReimageMachine,
		&baremetalv1.ReimageMachineRequest{MachineId: id, RequestId: "anew", ImageRef: "jammy"})
	if op.GetPlanId() != "repave-maas" {
		t.Errorf("it runs plan %s", op.GetPlanId())
	}
	testkit.Eventually(t, soon, func() bool { return r.region.Acted("POST deploy") == 2 }, "no second deployment")
	if got := r.node(id); got != baremetalv1.NodeState_NODE_STATE_INSTALLING {
		t.Errorf("the node is %s while MAAS installs the machine", got)
	}
	if err := host.Stop(); err != nil {
		t.Fatal(err)
	}
	host = r.boot(id, mac)
	ended(t, r.c.Wait(op.GetOperationId(), soon), succeeded, "")
	if err := host.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := r.node(id); got != baremetalv1.NodeState_NODE_STATE_INSTALLED {
		t.Errorf("the node is %s after its reimage", got)
	}
	exit := harness.Must(t, r.c.Machines().ExitMaintenance,
		&baremetalv1.ExitMaintenanceRequest{MachineId: id, RequestId: "verified"})
	ended(t, r.c.Wait(exit.GetOperationId(), soon), succeeded, "")
	if got := r.node(id); got != baremetalv1.NodeState_NODE_STATE_ACTIVE {
		t.Errorf("the node is %s after the operator has taken it out of maintenance", got)
	}
	m, _ := r.region.ByMAC(mac)
	if m.Series != "jammy" || r.region.Acted("POST release") != 1 {
		t.Errorf("MAAS has deployed %s, after %d releases", m.Series, r.region.Acted("POST release"))
	}
}
