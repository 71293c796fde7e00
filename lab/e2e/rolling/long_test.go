//go:build rolling

package rolling

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/lab/harness"
)

// number reads a number from the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestRollingLong restarts and kills three controllers under load, round after round. INGOT_TEST_ROUNDS and
// INGOT_TEST_MACHINES say how much.
func TestRollingLong(t *testing.T) {
	r := harness.NewTrio(t)
	l := startTraffic(t, r, number(t, "INGOT_TEST_MACHINES", 24))
	<-time.After(10 * time.Second)
	for round := range number(t, "INGOT_TEST_ROUNDS", 3) {
		l.enter("rolling restart")
		for i := range r.Controllers {
			took := r.Restart(i)
			t.Logf("round %d: controller %d has stopped in %v", round, i, milli(took))
			if took > stopLimit {
				t.Errorf("controller %d has taken %v to stop", i, took)
			}
			<-time.After(time.Second)
		}
		l.enter("calm after")
		<-time.After(3 * time.Second)
		for i := range r.Controllers {
			l.enter(fmt.Sprintf("kill -9 of %d", i))
			l.killed(i, r.Kill(i))
			<-time.After(5 * time.Second)
			r.Controllers[i].Start("")
			<-time.After(time.Second)
		}
		i := rand.IntN(len(r.Controllers))
		t.Logf("round %d: controller %d stands still", round, i)
		l.enter(standing)
		r.Controllers[i].Process.Stand()
		<-time.After(35 * time.Second)
		r.Controllers[i].Process.Continue()
		<-time.After(5 * time.Second)
	}
	l.judge(promised)
}
