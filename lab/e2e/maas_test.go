package e2e

import (
	"testing"

	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
)

// TestMAASLife brings a machine in through MAAS, installs it anew, and takes it out again.
func TestMAASLife(t *testing.T) {
	t.Parallel()
	r := rig.NewMAAS(t)
	id, mac := r.Register(1)
	r.Start(id, "in", baremetalv1.Workflow_ONBOARDING, 0)
	host := r.Boot(id, mac)
	r.Completes(id)
	if got := r.Node(id); got != baremetalv1.NodeState_NODE_STATE_ACTIVE {
		t.Errorf("the node is %s after its onboarding", got)
	}
	testkit.Eventually(t, rig.Soon, func() bool {
		p := r.C.Machine(id).GetStatus().GetProvider()
		return p.GetState() == "Deployed" && p.GetDrift() == "" && p.GetDeployed() == "ubuntu/noble"
	}, "what MAAS says is not shown")
	if c := rig.Condition(r.C.Machine(id), "Provisioned"); c == nil || !c.GetStatus() {
		t.Errorf("Provisioned is %v", c)
	}

	r.Start(id, "again", baremetalv1.Workflow_DECOMMISSION, baremetalv1.Workflow_STORAGE_CLEANUP)
	testkit.Eventually(t, rig.Soon, func() bool { return r.Region.Acted("POST deploy") == 2 }, "no second deployment")
	if err := host.Stop(); err != nil {
		t.Fatal(err)
	}
	host = r.Boot(id, mac)
	r.Completes(id)
	if got := r.Node(id); got != baremetalv1.NodeState_NODE_STATE_ACTIVE {
		t.Errorf("the node is %s after the storage cleanup", got)
	}

	r.Start(id, "out", baremetalv1.Workflow_DECOMMISSION, baremetalv1.Workflow_FULL_DECOMMISSION)
	r.Completes(id)
	if err := host.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, there := r.Region.ByMAC(mac); there {
		t.Error("MAAS still has the machine")
	}
	for op, want := range map[string]int{"POST machines": 1, "POST commission": 1, "POST deploy": 2, "POST release": 2,
		"POST power_off": 0, "DELETE machine": 1} {
		if got := r.Region.Acted(op); got != want {
			t.Errorf("%s acted %d times, want %d", op, got, want)
		}
	}
}

// TestMAASDrift: an unexpected state in MAAS is a condition. It starts nothing.
func TestMAASDrift(t *testing.T) {
	t.Parallel()
	r := rig.NewMAAS(t)
	id, mac := r.Register(2)
	r.Start(id, "in", baremetalv1.Workflow_ONBOARDING, 0)
	r.Boot(id, mac)
	r.Completes(id)
	m, _ := r.Region.ByMAC(mac)
	before := len(r.C.OperationsOf(id))
	drifts := func(state string, want bool) {
		t.Helper()
		testkit.Eventually(t, rig.Soon, func() bool {
			got := r.C.Machine(id)
			d := rig.Condition(got, "ProviderDrift")
			return got.GetStatus().GetProvider().GetState() == state && d != nil && d.GetStatus() == want
		}, "no drift %v to %s: %v", want, state, r.C.Machine(id).GetStatus())
	}
	r.Region.Change(m.SystemID, func(m *maastest.Machine) { m.Status = ms.Broken })
	drifts("Failed", true)
	r.Region.Change(m.SystemID, func(m *maastest.Machine) { m.Status = ms.Deployed })
	drifts("Deployed", false)
	r.Region.Fail(maastest.Fault{Op: "GET machines", Kind: maastest.Busy, Times: -1})
	testkit.Eventually(t, rig.Soon, func() bool {
		p := r.C.Machine(id).GetStatus().GetProvider()
		return p.GetState() == "Unknown" && p.GetReason() == "MAAS_UNREACHABLE"
	}, "a region that does not answer is not shown")
	if d := rig.Condition(r.C.Machine(id), "ProviderDrift"); d.GetStatus() {
		t.Error("a region that does not answer counts as drift")
	}
	r.Region.Mend()
	r.Region.Lose(m.SystemID)
	drifts("Absent", true)
	if after := len(r.C.OperationsOf(id)); after != before {
		t.Errorf("%d operations were opened by what MAAS said", after-before)
	}
}
