//go:build rolling

package rolling

import (
	"os"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/lab/harness"
)

// TestRollingUpgrade rolls three controllers from an older version to this one and back, under load, and kills one
// where both versions run. INGOT_TEST_OLD_CONTROLLER names the older program; `make test-upgrade` builds it.
func TestRollingUpgrade(t *testing.T) {
	old := os.Getenv("INGOT_TEST_OLD_CONTROLLER")
	if old == "" {
		t.Fatal("INGOT_TEST_OLD_CONTROLLER names no program: run make test-upgrade")
	}
	r := harness.NewTrioOf(t, old)
	l := startTraffic(t, r, number(t, "INGOT_TEST_MACHINES", 12))
	t.Logf("schema of the old version: %d", r.SchemaVersion())
	<-time.After(10 * time.Second)
	roll := func(phase, program string) {
		for i, c := range r.Controllers {
			l.enter(phase)
			c.Use(program)
			t.Logf("%s: controller %d has stopped in %v, schema %d", phase, i, milli(r.Restart(i)), r.SchemaVersion())
			<-time.After(2 * time.Second)
			if i == 0 {
				// The only one of its version; what it has begun, the others go on with.
				l.enter(phase + ", kill -9")
				l.killed(i, r.Kill(i))
				<-time.After(5 * time.Second)
				c.Start("")
				<-time.After(2 * time.Second)
			}
		}
		<-time.After(3 * time.Second)
	}
	roll("upgrade", harness.Build(t).Controller)
	roll("downgrade", old)
	roll("upgrade again", harness.Build(t).Controller)
	l.judge(promised)
}
