//go:build rolling

package rolling

import (
	"os"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/testkit"
	"github.com/ingot-metal/ingot/lab/harness"
)

// TestRollingUpgrade upgrades three controllers from an older version in two steps, under load: the schema, on which
// the older ones go on, then the controllers. It rolls them back and up again, and kills one where both versions run.
// INGOT_TEST_OLD_CONTROLLER names the older program; `make test-upgrade` builds it.
func TestRollingUpgrade(t *testing.T) {
	old := os.Getenv("INGOT_TEST_OLD_CONTROLLER")
	if old == "" {
		t.Fatal("INGOT_TEST_OLD_CONTROLLER names no program: run make test-upgrade")
	}
	r := harness.NewTrioOf(t, old)
	l := startTraffic(t, r, number(t, "INGOT_TEST_MACHINES", 12))
	before := r.SchemaVersion()
	<-time.After(10 * time.Second)
	l.enter("schema first")
	r.Controllers[0].Migrate(harness.Build(t).Controller)
	if now := r.SchemaVersion(); now <= before {
		t.Errorf("schema %d, and %d before", now, before)
	}
	t.Logf("schema of the old version: %d, and under it now: %d", before, r.SchemaVersion())
	<-time.After(10 * time.Second)
	r.Kill(2) // what it had begun, others of its version go on with under the new schema
	<-time.After(5 * time.Second)
	r.Controllers[2].Start("")
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
	db := r.Database()
	testkit.Eventually(t, time.Minute, func() bool {
		var left int
		if err := db.QueryRow(t.Context(), "SELECT count(*) FROM river_job WHERE queue = 'default'").Scan(&left); err != nil {
			t.Fatal(err)
		}
		return left == 0
	}, "jobs of the old version are left over")
}
