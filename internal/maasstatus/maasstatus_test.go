package maasstatus_test

import (
	"slices"
	"testing"

	"github.com/canonical/gomaasclient/entity/node"

	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// TestEveryStatus holds the table against the numbers of MAAS's own client, and against what the states must be.
func TestEveryStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		theirs node.Status
		ours   maasstatus.Status
		name   string
		state  maasstatus.State
		moves  bool
	}{
		{node.StatusNew, maasstatus.New, "New", "New", false},
		{node.StatusCommissioning, maasstatus.Commissioning, "Commissioning", "Commissioning", true},
		{node.StatusFailedCommissioning, maasstatus.FailedCommissioning, "Failed commissioning", "Failed", false},
		{node.StatusMissing, maasstatus.Missing, "Missing", "Failed", false},
		{node.StatusReady, maasstatus.Ready, "Ready", "Ready", false},
		{node.StatusReserved, maasstatus.Reserved, "Reserved", "Allocated", false},
		{node.StatusDeployed, maasstatus.Deployed, "Deployed", "Deployed", false},
		{node.StatusRetired, maasstatus.Retired, "Retired", "Failed", false},
		{node.StatusBroken, maasstatus.Broken, "Broken", "Failed", false},
		{node.StatusDeploying, maasstatus.Deploying, "Deploying", "Deploying", true},
		{node.StatusAllocated, maasstatus.Allocated, "Allocated", "Allocated", false},
		{node.StatusFailedDeployment, maasstatus.FailedDeployment, "Failed deployment", "Failed", false},
		{node.StatusReleasing, maasstatus.Releasing, "Releasing", "Releasing", true},
		{node.StatusFailedReleasing, maasstatus.FailedReleasing, "Releasing failed", "Failed", false},
		{node.StatusDiskErasing, maasstatus.DiskErasing, "Disk erasing", "Releasing", true},
		{node.StatusFailedDiskErasing, maasstatus.FailedDiskErasing, "Failed disk erasing", "Failed", false},
		{node.StatusRescueMode, maasstatus.RescueMode, "Rescue mode", "Rescue", false},
		{node.StatusEnteringRescureMode, maasstatus.EnteringRescueMode, "Entering rescue mode", "Rescue", true},
		{node.StatusFailedEnteringRescueMode, maasstatus.FailedEnteringRescueMode, "Failed to enter rescue mode", "Failed",
			false},
		{node.StatusExitingRescueMode, maasstatus.ExitingRescueMode, "Exiting rescue mode", "Rescue", true},
		{node.StatusFailedExitingRescueMode, maasstatus.FailedExitingRescueMode, "Failed to exit rescue mode", "Failed",
			false},
		{node.StatusTesting, maasstatus.Testing, "Testing", "Testing", true},
		{node.StatusFailedTesting, maasstatus.FailedTesting, "Failed testing", "Failed", false},
	} {
		if int(c.theirs) != int(c.ours) {
			t.Errorf("%s is %d, MAAS says %d", c.name, c.ours, c.theirs)
		}
		row, ok := maasstatus.Of(c.ours)
		if !ok || row.Status != c.ours || row.Name != c.name || row.State != c.state || row.Moves != c.moves ||
			row.Means == "" {
			t.Errorf("status %d: %+v, want %s %s", c.ours, row, c.name, c.state)
		}
	}
	if len(maasstatus.Table()) != 23 {
		t.Errorf("%d rows, MAAS has 23 statuses", len(maasstatus.Table()))
	}
	for i, row := range maasstatus.Table() {
		if int(row.Status) != i || !slices.Contains(maasstatus.States(), row.State) {
			t.Errorf("row %d: %+v", i, row)
		}
	}
	for _, s := range []maasstatus.Status{-1, 23, 99} {
		if row, ok := maasstatus.Of(s); ok || row.State != maasstatus.StateUnknown {
			t.Errorf("status %d: %+v", s, row)
		}
	}
}
