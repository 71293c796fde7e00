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

// onLoops is how many of 10 installations are on loop devices.
const onLoops = 2

func runSeed(t *testing.T, seed uint64) string {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 22))
	m := newMachine(t, r)
	if r.IntN(3) == 0 {
		e := m.newErasure()
		res, said := e.run()
		end := e.judge(res, said)
		if t.Failed() {
			t.Logf("seed %d: erase by %s, rule %q, fault %q, %s, %v", seed, e.method, e.rule, e.fault, res.Message, res.Evidence)
		}
		return "erase: " + end
	}
	kind := "install: "
	if r.IntN(10) < onLoops {
		m.loops, kind = &loops{}, "install on loop devices: "
	}
	in := m.newInstall()
	in.drawFault()
	res, said := in.run()
	if m.loops != nil {
		m.loops.collect(m)
	}
	end := in.judge(res, said)
	if said && res.Outcome != fleetv1.CommandResult_SUCCEEDED && in.mustSucceed() {
		t.Errorf("nothing speaks against it, and it ended %s: %s", end, res.Message)
	}
	if t.Failed() {
		t.Logf("seed %d: rule %q, fault %q, stream %q, %s", seed, in.rule, in.fault, in.src.fault, res.Message)
	}
	return kind + end
}
