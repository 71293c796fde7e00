package disks

import (
	"bufio"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
)

var (
	runsFlag  = flag.Int("runs", 24, "how many seeds TestRandomDisks runs")
	firstFlag = flag.Uint64("first-seed", 1, "the first of them")
	endedFlag = flag.String("ended", "", "a file with the seeds that have passed, which are not run again")
)

// outcomes are the ends of the runs that have passed, by seed, and the file that keeps them.
type outcomes struct {
	mu   sync.Mutex
	all  map[uint64]string
	file *os.File // nil: none
}

func openOutcomes(t *testing.T) *outcomes {
	t.Helper()
	o := &outcomes{all: map[uint64]string{}}
	if *endedFlag == "" {
		return o
	}
	var err error
	if o.file, err = os.OpenFile(*endedFlag, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.file.Close(); err != nil {
			t.Error(err)
		}
	})
	for lines := bufio.NewScanner(o.file); lines.Scan(); {
		number, end, _ := strings.Cut(lines.Text(), " ")
		if seed, err := strconv.ParseUint(number, 10, 64); err == nil {
			o.all[seed] = end
		}
	}
	return o
}

func (o *outcomes) passed(seed uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, ok := o.all[seed]
	return ok
}

func (o *outcomes) add(t *testing.T, seed uint64, end string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all[seed] = end
	if o.file != nil {
		if _, err := fmt.Fprintf(o.file, "%d %s\n", seed, end); err != nil {
			t.Error(err)
		}
	}
}

// table counts the ends.
func (o *outcomes) table() []string {
	counts := map[string]int{}
	for _, end := range o.all {
		counts[end]++
	}
	var lines []string
	for end, n := range counts {
		lines = append(lines, fmt.Sprintf("%4d %s", n, end))
	}
	slices.Sort(lines)
	return append(lines, fmt.Sprintf("%4d runs have passed", len(o.all)))
}

// TestRandomDisks: see the package's comment.
func TestRandomDisks(t *testing.T) {
	t.Parallel()
	ends := openOutcomes(t)
	t.Run("seeds", func(t *testing.T) {
		for i := range uint64(*runsFlag) {
			seed := *firstFlag + i
			if ends.passed(seed) {
				continue
			}
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				if end := runSeed(t, seed); !t.Failed() {
					ends.add(t, seed, end)
				}
			})
		}
	})
	for _, line := range ends.table() {
		t.Log(line)
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
			t.Logf("seed %d: erase by %s, rule %q, protected %q, fault %q, %s, %v", seed, e.method, e.rule, e.protected, e.fault,
				res.Message, res.Evidence)
			for _, u := range m.units {
				t.Logf("%s: names %q, serial %q, WWN %q, model %q, %d bytes", u.label, u.names, u.Serial, u.WWN, u.Model, u.Size())
			}
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
		t.Logf("seed %d: rule %q, protected %q, fault %q, stream %q, %s", seed, in.rule, in.protected, in.fault, in.src.fault,
			res.Message)
	}
	return kind + end
}
