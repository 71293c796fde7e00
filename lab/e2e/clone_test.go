package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

// quarantined waits until the machine is, and returns the condition.
func quarantined(t *testing.T, c *harness.Cluster, id string) *baremetalv1.Condition {
	t.Helper()
	testkit.Eventually(t, rig.Soon, func() bool {
		return c.Machine(id).GetStatus().GetNodeState() == baremetalv1.NodeState_NODE_STATE_QUARANTINED
	}, "machine %s is not quarantined", id)
	return rig.Condition(c.Machine(id), "NeedsIntervention")
}

func TestACloneOfTheDiskIsQuarantined(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	rig.Maintenance(t, c.Client, m.ID)
	// The clone has the whole disk, on other hardware, and starts while the original runs.
	dir := t.TempDir()
	m.CloneDir(dir)
	clone := c.NewMachine(t, harness.MachineOptions{Stopped: true, World: m.World, SimID: "other-hardware",
		Change: func(a *agent.Config) {
			a.StateDir = dir
		}})
	clone.Config.Bundle = ""
	clone.Start()
	why := quarantined(t, c, m.ID)
	if why.GetReason() != "CLONE_DETECTED" || !strings.Contains(why.GetMessage(), "different hardware") {
		t.Errorf("condition %v", why)
	}
	_, err := harness.Call(t, c.Machines().RebootMachine,
		&baremetalv1.RebootMachineRequest{MachineId: m.ID, RequestId: "r"})
	if !harness.HasReason(err, "MACHINE_QUARANTINED") {
		t.Errorf("a reboot of a quarantined machine: %v", err)
	}
	harness.Must(t, c.Admin().ClearIntervention, &baremetalv1.ClearInterventionRequest{MachineId: m.ID,
		Comment: "wiped the clone"})
	if s := c.Machine(m.ID).GetStatus().GetNodeState(); s != baremetalv1.NodeState_NODE_STATE_ACTIVE {
		t.Errorf("node state %v after clearing", s)
	}
}

func TestAnOldBootThatComesBackIsQuarantined(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	// A snapshot of the running machine: its disk and its boot.
	snapshot := t.TempDir()
	if err := os.CopyFS(snapshot, os.DirFS(m.World.Dir())); err != nil {
		t.Fatal(err)
	}
	rig.Maintenance(t, c.Client, m.ID)
	rig.Ended(t, c.Wait(rig.Reboot(t, c.Client, m.ID, "r", rig.PatientTime).GetOperationId(), rig.Soon), rig.Succeeded, "")
	active := rig.Reboot(t, c.Client, m.ID, "r2", rig.PatientTime)
	m.Restart(func() {
		w, err := sim.OpenWorld(sim.WorldConfig{Dir: snapshot})
		if err != nil {
			t.Fatal(err)
		}
		m.Config.Host = agent.SimulatedHost(w, m.ID, 0)
	})
	why := quarantined(t, c, m.ID)
	if why.GetReason() != "CLONE_DETECTED" || !strings.Contains(why.GetMessage(), "older boot") {
		t.Errorf("condition %v", why)
	}
	op := c.Wait(active.GetOperationId(), rig.Soon)
	// It may ask for a grant between the moment at which the clone is known and the one at which its operation is ended.
	refused := slices.Contains([]string{"GRANT_REFUSED", "OUTCOME_UNKNOWN"}, op.GetError().GetCode()) &&
		strings.Contains(op.GetError().GetMessage(), "MACHINE_QUARANTINED")
	if op.GetPhase() != rig.Succeeded && op.GetError().GetCode() != "CLONE_DETECTED" && !refused {
		t.Errorf("the operation that was active: %v", op)
	}
}

func TestOrdinaryRebootsAreNotTakenForAClone(t *testing.T) {
	t.Parallel()
	c := harness.New(t, harness.Options{})
	m := c.NewMachine(t, harness.MachineOptions{})
	m.WaitConnected()
	boots := map[string]bool{c.Machine(m.ID).GetStatus().GetBootId(): true}
	for i := range 4 {
		before := c.Machine(m.ID).GetStatus().GetBootId()
		if i == 2 {
			c.Restart()
			c.WaitReady()
		}
		if err := m.World.Machine(m.ID).Reboot(t.Context(), effect.Cause{CommandID: harness.Outside},
			boot.RebootForced); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, rig.Soon, func() bool { return c.Machine(m.ID).GetStatus().GetBootId() != before },
			"the new boot is not seen")
		boots[c.Machine(m.ID).GetStatus().GetBootId()] = true
	}
	st := c.Machine(m.ID)
	if len(boots) != 5 || st.GetStatus().GetNodeState() != baremetalv1.NodeState_NODE_STATE_ACTIVE ||
		rig.Condition(st, "NeedsIntervention").GetStatus() {
		t.Errorf("%d boots, %v", len(boots), st.GetStatus())
	}
}
