package e2e

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// TestMAASReimage: a reimage of a machine that MAAS installs is a deployment by MAAS; plans of our own installer are
// refused.
func TestMAASReimage(t *testing.T) {
	t.Parallel()
	r := rig.NewMAAS(t)
	id, mac := r.Register(9)
	r.Start(id, "in", baremetalv1.Workflow_ONBOARDING, 0)
	host := r.Boot(id, mac)
	r.Completes(id)
	if got := r.C.Machine(id).GetStatus().GetPhase(); got != baremetalv1.MachineStatus_MAINTENANCE {
		rig.Maintenance(t, r.C.Client, id)
	}
	for _, plan := range []string{"repave", "erase", "netboot-now"} {
		_, err := baremetalv1.NewRunServiceClient(r.C.Conn()).StartRun(t.Context(), &baremetalv1.StartRunRequest{
			MachineId: id, RequestId: plan, PlanId: plan,
			Params: map[string]map[string]string{"repave": {"image_ref": "debian-12"}}[plan],
		})
		if !harness.HasReason(err, "INVALID_FIELD") {
			t.Errorf("plan %s: %v", plan, err)
		}
	}
	op := harness.Must(t, r.C.Machines().ReimageMachine,
		&baremetalv1.ReimageMachineRequest{MachineId: id, RequestId: "anew", ImageRef: "jammy"})
	if op.GetPlanId() != "repave-maas" {
		t.Errorf("it runs plan %s", op.GetPlanId())
	}
	testkit.Eventually(t, rig.Soon, func() bool { return r.Region.Acted("POST deploy") == 2 }, "no second deployment")
	if got := r.Node(id); got != baremetalv1.NodeState_NODE_STATE_INSTALLING {
		t.Errorf("the node is %s while MAAS installs the machine", got)
	}
	if err := host.Stop(); err != nil {
		t.Fatal(err)
	}
	host = r.Boot(id, mac)
	rig.Ended(t, r.C.Wait(op.GetOperationId(), rig.Soon), rig.Succeeded, "")
	if err := host.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := r.Node(id); got != baremetalv1.NodeState_NODE_STATE_INSTALLED {
		t.Errorf("the node is %s after its reimage", got)
	}
	exit := harness.Must(t, r.C.Machines().ExitMaintenance,
		&baremetalv1.ExitMaintenanceRequest{MachineId: id, RequestId: "verified"})
	rig.Ended(t, r.C.Wait(exit.GetOperationId(), rig.Soon), rig.Succeeded, "")
	if got := r.Node(id); got != baremetalv1.NodeState_NODE_STATE_ACTIVE {
		t.Errorf("the node is %s after the operator has taken it out of maintenance", got)
	}
	m, _ := r.Region.ByMAC(mac)
	if m.Series != "jammy" || r.Region.Acted("POST release") != 1 {
		t.Errorf("MAAS has deployed %s, after %d releases", m.Series, r.Region.Acted("POST release"))
	}
}
