package maas_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
)

var (
	long       = flag.Bool("long", false, "run every fault at every request")
	randomRuns = flag.Int("random-runs", 16, "runs of several faults at random")
	seed       = flag.Uint64("seed", 22, "of the random runs")
)

// part is how many faults the short form has one of, but for those of requests that lose data in the main flows.
const part = 24

// inShort reports whether the short form has the ith fault of a flow.
func (f flow) inShort(x fault, i int) bool {
	main := f.name == "onboard" || f.name == "reimage" || f.name == "decommission"
	return x.loses() && main || i%part == 0
}

// requests returns what each command of a flow asks for when nothing goes wrong.
func (f flow) requests(t *testing.T) (steps [][]string) {
	t.Helper()
	r := newRig(t, f, nil)
	seen := 0
	r.began = func() {
		all := r.region.Requests("")
		var ops []string
		for _, q := range all[seen:] {
			ops = append(ops, q.Op)
		}
		if seen = len(all); r.commands > 1 {
			steps = append(steps, ops)
		}
	}
	end := f.run(r)
	r.commands++
	r.began()
	f.held(t, r, end, nil)
	if end != "done" {
		t.Fatalf("without a fault the end is %s", end)
	}
	return steps
}

// held reports the violations of a run.
func (f flow) held(t *testing.T, r *rig, end string, faults []fault) {
	t.Helper()
	r.hold()
	m, there := r.region.ByMAC(mac)
	vanished := false
	for _, x := range faults {
		vanished = vanished || x.kind == maastest.Vanish
	}
	switch {
	case end == "done" && !f.after(m, there):
		r.bad("the flow is done, and the machine is %+v (there: %t)", m, there)
	case end != "done" && !(end == "gone" && vanished):
		r.bad("the end is %s", end)
	}
	if len(r.wrong) > 0 {
		t.Errorf("%s under %v:\n%s", f.name, faults, strings.Join(r.trace, "\n"))
	}
}

// TestEveryFaultAtEveryRequest: each flow with each fault at each of its requests, one at a time.
func TestEveryFaultAtEveryRequest(t *testing.T) {
	t.Parallel()
	var runs, wrong atomic.Int64
	t.Cleanup(func() { t.Logf("%d runs of one fault, %d with something wrong", runs.Load(), wrong.Load()) })
	for _, f := range flows() {
		for i, x := range cases(f.requests(t)) {
			if !*long && !f.inShort(x, i) {
				continue
			}
			t.Run(f.name+"/"+x.String(), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, f, []fault{x})
				f.held(t, r, f.run(r), r.faults)
				runs.Add(1)
				if t.Failed() {
					wrong.Add(1)
				}
			})
		}
	}
}

// TestSeveralFaultsAtRandom: two to four faults in one run.
func TestSeveralFaultsAtRandom(t *testing.T) {
	t.Parallel()
	all := flows()
	possible := make([][]fault, len(all))
	for i, f := range all {
		possible[i] = cases(f.requests(t))
	}
	for n := range *randomRuns {
		rnd := rand.New(rand.NewPCG(*seed, uint64(n)))
		at := rnd.IntN(len(all))
		var faults []fault
		for range 2 + rnd.IntN(3) {
			x := possible[at][rnd.IntN(len(possible[at]))]
			x.step += rnd.IntN(2) // a step may be taken anew
			faults = append(faults, x)
		}
		t.Run(fmt.Sprintf("%d", n), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, all[at], faults)
			all[at].held(t, r, all[at].run(r), faults)
		})
	}
}
