package disks

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
)

var (
	runsFlag  = flag.Int("runs", 24, "how many seeds TestRandomDisks runs")
	firstFlag = flag.Uint64("first-seed", 1, "the first of them")
)

// outcomes counts the ends of runs.
type outcomes struct {
	mu  sync.Mutex
	all map[string]int
}

func (o *outcomes) add(what string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all[what]++
}

// TestRandomDisks: see the package's comment.
func TestRandomDisks(t *testing.T) {
	t.Parallel()
	ends := &outcomes{all: map[string]int{}}
	t.Run("seeds", func(t *testing.T) {
		for i := range uint64(*runsFlag) {
			seed := *firstFlag + i
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				ends.add(runSeed(t, seed))
			})
		}
	})
	var lines []string
	for what, n := range ends.all {
		lines = append(lines, fmt.Sprintf("%4d %s", n, what))
	}
	slices.Sort(lines)
	for _, l := range lines {
		t.Log(l)
	}
}

func runSeed(t *testing.T, seed uint64) string {
	t.Helper()
	m := newMachine(t, rand.New(rand.NewPCG(seed, 22)))
	if m.r.IntN(3) == 0 {
		e := m.newErasure()
		res, said := e.run()
		end := e.judge(res, said)
		if t.Failed() {
			t.Logf("seed %d: erase by %s, rule %q, fault %q, %s, %v", seed, e.method, e.rule, e.fault, res.Message, res.Evidence)
		}
		return "erase: " + end
	}
	in := m.newInstall()
	in.drawFault()
	res, said := in.run()
	end := in.judge(res, said)
	if said && res.Outcome != fleetv1.CommandResult_SUCCEEDED && in.mustSucceed() {
		t.Errorf("nothing speaks against it, and it ended %s: %s", end, res.Message)
	}
	if t.Failed() {
		t.Logf("seed %d: rule %q, fault %q, stream %q, %s", seed, in.rule, in.fault, in.src.fault, res.Message)
	}
	return "install: " + end
}
