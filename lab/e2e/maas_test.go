package e2e

import (
	"testing"

	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// TestMAASLife brings a machine in through MAAS, installs it anew, and takes it out again.
func TestMAASLife(t *testing.T) {
	t.Parallel()
	r := newMAASRig(t)
	id, mac := r.register(1)
	r.start(id, "in", baremetalv1.Workflow_ONBOARDING, 0)
	host := r.boot(id, mac)
	r.completes(id)
	if got := r.node(id); got != baremetalv1.NodeState_NODE_STATE_ACTIVE {
		t.Errorf("the node is %s after its onboarding", got)
	}
	testkit.Eventually(t, soon, func() bool {
		p := r.c.Machine(id).GetStatus().GetProvider()
		return p.GetState() == "Deployed" && p.GetDrift() == "" && p.GetDeployed() == "ubuntu/noble"
	}, "what MAAS says is not shown")
	if c := condition(r.c.Machine(id), "Provisioned"); c == nil || !c.GetStatus() {
		t.Errorf("Provisioned is %v", c)
	}

	r.start(id, "again", baremetalv1.Workflow_DECOMMISSION, baremetalv1.Workflow_STORAGE_CLEANUP)
	testkit.Eventually(t, soon, func() bool { return r.region.Acted("POST deploy") == 2 }, "no second deployment")
	if err := host.Stop(); err != nil {
		t.Fatal(err)
	}
	host = r.boot(id, mac)
	r.completes(id)
	if got := r.node(id); got != baremetalv1.NodeState_NODE_STATE_ACTIVE {
		t.Errorf("the node is %s after the storage cleanup", got)
	}

	r.start(id, "out", baremetalv1.Workflow_DECOMMISSION, baremetalv1.Workflow_FULL_DECOMMISSION)
	r.completes(id)
	if err := host.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, there := r.region.ByMAC(mac); there {
		t.Error("MAAS still has the machine")
	}
	for op, want := range map[string]int{"POST machines": 1, "POST commission": 1, "POST deploy": 2, "POST release": 2,
		"POST power_off": 0, "DELETE machine": 1} {
		if got := r.region.Acted(op); got != want {
			t.Errorf("%s acted %d times, want %d", op, got, want)
		}
	}
}

// TestMAASDrift: what MAAS says and nobody expects is a condition. It starts nothing.
func TestMAASDrift(t *testing.T) {
	t.Parallel()
	r := newMAASRig(t)
	id, mac := r.register(2)
	r.start(id, "in", baremetalv1.Workflow_ONBOARDING, 0)
	r.boot(id, mac)
	r.completes(id)
	m, _ := r.region.ByMAC(mac)
	before := len(r.c.OperationsOf(id))
	drifts := func(state string, want bool) {
		t.Helper()
		testkit.Eventually(t, soon, func() bool {
			got := r.c.Machine(id)
			d := condition(got, "ProviderDrift")
			return got.GetStatus().GetProvider().GetState() == state && d != nil && d.GetStatus() == want
		}, "no drift %v to %s: %v", want, state, r.c.Machine(id).GetStatus())
	}
	r.region.Change(m.SystemID, func(m *maastest.Machine) { m.Status = ms.Broken })
	drifts("Failed", true)
	r.region.Change(m.SystemID, func(m *maastest.Machine) { m.Status = ms.Deployed })
	drifts("Deployed", false)
	r.region.Fail(maastest.Fault{Op: "GET machines", Kind: maastest.Busy, Times: -1})
	testkit.Eventually(t, soon, func() bool {
		p := r.c.Machine(id).GetStatus().GetProvider()
		return p.GetState() == "Unknown" && p.GetReason() == "MAAS_UNREACHABLE"
	}, "a region that does not answer is not shown")
	if d := condition(r.c.Machine(id), "ProviderDrift"); d.GetStatus() {
		t.Error("a region that does not answer counts as drift")
	}
	r.region.Mend()
	r.region.Lose(m.SystemID)
	drifts("Absent", true)
	if after := len(r.c.OperationsOf(id)); after != before {
		t.Errorf("%d operations were opened by what MAAS said", after-before)
	}
}
