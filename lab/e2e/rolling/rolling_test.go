package rolling

import (
	"fmt"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/lab/harness"
)

// stopLimit is what a controller may take to stop in peace: less than what its systemd unit allows.
const stopLimit = 25 * time.Second

// Three controllers are restarted one after the other, and then one is killed, under load.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	r := harness.NewTrio(t)
	l := startTraffic(t, r, 9)
	<-time.After(2 * time.Second)
	for i := range r.Controllers {
		l.enter("restarts")
		if took := r.Restart(i); took > stopLimit {
			t.Errorf("controller %d has taken %v to stop", i, took)
		}
	}
	l.enter(fmt.Sprintf("kill -9 of %d", 1))
	l.killed(1, r.Kill(1))
	<-time.After(2 * time.Second)
	r.Controllers[1].Start("")
	<-time.After(time.Second)
	l.judge(crowded)
}
