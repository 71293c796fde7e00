package cmdline

import (
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/rollback"
)

// TestWhatAnOperatorReadsOfAPendingChange: what waits, why it could not be undone, and the two ways out.
func TestWhatAnOperatorReadsOfAPendingChange(t *testing.T) {
	t.Parallel()
	pending := rollback.Guard{
		CommandID: "c1", State: rollback.GuardPending, Deadline: time.Minute, Hostname: "before", SetsFirewall: true,
		Network: &network.SavedNetwork{},
	}
	failed := pending
	failed.Error = "read-only file system"
	for _, c := range []struct {
		guard *rollback.Guard
		at    time.Duration
		want  []string
	}{
		{nil, 0, []string{"no configuration was ever applied"}},
		{&rollback.Guard{CommandID: "c1", State: rollback.GuardRolledBack}, 0, []string{"command c1 is rolled back"}},
		{&pending, 20 * time.Second, []string{"c1 is pending", "interfaces, host name, firewall", "in 40s", "--now",
			"--keep"}},
		{&pending, 2 * time.Minute, []string{"its time is up", "--now", "--keep"}},
		{&failed, 2 * time.Minute, []string{"repeated every 10 s: read-only file system", "--now", "--keep"}},
	} {
		got := guardText(c.guard, c.at)
		for _, w := range c.want {
			if !strings.Contains(got, w) {
				t.Errorf("%q is missing in:\n%s", w, got)
			}
		}
	}
}
