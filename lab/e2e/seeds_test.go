package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/lab/e2e/rig"
	"github.com/ingot-metal/ingot/lab/harness"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run this seed of TestSeeds and no other")
	seedsFlag = flag.Int("seeds", 500, "how many seeds TestSeeds runs")
	firstFlag = flag.Uint64("first-seed", 1, "the first of them")
)

// seeds to run: INGOT_SEED is the same as -seed.
func seeds(t *testing.T) []uint64 {
	one := *seedFlag
	if s := os.Getenv("INGOT_SEED"); s != "" && one == 0 {
		var err error
		if one, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("INGOT_SEED: %v", err)
		}
	}
	if one != 0 {
		return []uint64{one}
	}
	var out []uint64
	for i := range *seedsFlag {
		out = append(out, *firstFlag+uint64(i))
	}
	return out
}

// TestSeeds runs operations under faults that are drawn from a seed: crashes of the agent and of the controller, faults
// of the host, cut and frozen connections, lost and repeated messages, lost and rolled-back memories, cancels at any
// moment. Whatever happens, the history must hold.
func TestSeeds(t *testing.T) {
	lab := &seedLab{faults: harness.ArmControllers(t), c: harness.New(t, harness.Options{}), outcomes: map[string]int{},
		drawn: map[string]int{}}
	makePlan(t, lab.c.Client)
	lab.wire = harness.NewWire(t, lab.c)
	all := seeds(t)
	t.Run("run", func(t *testing.T) {
		for _, seed := range all {
			t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
				t.Parallel()
				defer func() {
					if t.Failed() {
						t.Logf("run this one again: go test ./lab/e2e -run 'TestSeeds$' -seed %d", seed)
					}
				}()
				lab.run(t, seed)
			})
		}
	})
	t.Logf("%d seeds; operations ended: %v; drawn: %v; controller faults: %v", len(all), lab.outcomes, lab.drawn,
		lab.faults.Struck())
}

type seedLab struct {
	faults *harness.ControllerFaults
	c      *harness.Cluster
	wire   *harness.Wire

	restarting sync.Mutex
	mu         sync.Mutex
	outcomes   map[string]int
	drawn      map[string]int
}

func (l *seedLab) count(into map[string]int, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	into[what]++
}

// plan is what a seed stands for.
type plan struct {
	site   bool
	script string
	wired  bool
	kinds  []kind
	// before each operation, and while it runs, at these times after its start
	during [][]happening
}

// happening is one fault at one time.
type happening struct {
	after time.Duration
	what  string
	do    func(r *seedRun)
}

func draw(seed uint64) plan {
	rng := rand.New(rand.NewPCG(seed, 77))
	p := plan{site: rng.IntN(3) == 0, wired: rng.IntN(4) == 0}
	if rng.IntN(5) < 2 {
		p.script = drawScript(rng)
	}
	for range 1 + rng.IntN(2) {
		p.kinds = append(p.kinds, kinds[rng.IntN(len(kinds))])
		var h []happening
		for range rng.IntN(4) {
			h = append(h, drawHappening(rng))
		}
		slices.SortStableFunc(h, func(a, b happening) int { return int(a.after - b.after) })
		p.during = append(p.during, h)
	}
	return p
}

func drawScript(rng *rand.Rand) string {
	effects := []string{"reboot", "netboot", "repave", "reconfig"}
	modes := []string{"fail-before", "fail-after", "crash-before", "crash-after", "late=700ms", "late=4s", "never", "lie"}
	var faults []string
	for _, i := range rng.Perm(len(effects))[:1+rng.IntN(3)] {
		mode := modes[rng.IntN(len(modes))]
		faults = append(faults, fmt.Sprintf("%s:%s@%d", effects[i], mode, 1+rng.IntN(2)))
	}
	return strings.Join(faults, ",")
}

func (p plan) String() string {
	var names []string
	for i, k := range p.kinds {
		s := k.name
		for _, h := range p.during[i] {
			s += fmt.Sprintf(" +%v:%s", h.after.Round(time.Millisecond), h.what)
		}
		names = append(names, s)
	}
	return fmt.Sprintf("site=%v wired=%v script=%q: %s", p.site, p.wired, p.script, strings.Join(names, "; "))
}

// drawHappening: most of an operation's life is over within 200 ms.
func drawHappening(rng *rand.Rand) happening {
	h := happening{after: time.Duration(rng.IntN(200)) * time.Millisecond}
	long := time.Duration(50+rng.IntN(1500)) * time.Millisecond
	nth := uint64(1 + rng.IntN(2))
	restart := rng.IntN(2) == 0 // which everybody suffers from
	agentPoints, controllerPoints := harness.AgentPoints(), harness.ControllerPoints()
	agentPoint, controllerPoint := agentPoints[rng.IntN(len(agentPoints))],
		controllerPoints[rng.IntN(len(controllerPoints))]
	switch n := rng.IntN(100); {
	case n < 24:
		h.after = 0
		h.what, h.do = "crash at "+agentPoint, func(r *seedRun) { r.m.FP.Set(agentPoint, failpoint.Error().At(nth)) }
	case n < 30:
		h.what, h.do = "crash", func(r *seedRun) { r.m.Crash() }
	case n < 48:
		h.after = 0
		h.what, h.do = "fault at "+controllerPoint, func(r *seedRun) { r.l.faults.Order(controllerPoint) }
	case n < 58:
		h.what, h.do = "cut", func(r *seedRun) { r.m.Cut() }
	case n < 64:
		h.what, h.do = "isolation", func(r *seedRun) { r.isolate(long) }
	case n < 74:
		h.what, h.do = "cancel", func(r *seedRun) { r.cancel() }
	case n < 80:
		h.what, h.do = "memory loss", func(r *seedRun) { r.m.Restart(r.m.ForgetEverything) }
	case n < 84:
		h.what, h.do = "copy", func(r *seedRun) { r.m.Restart(func() { r.copied = r.m.CopyMemory() }) }
	case n < 90:
		h.what, h.do = "roll back", func(r *seedRun) { r.rollBack() }
	case n < 97:
		h.what, h.do = "repeated look", func(r *seedRun) { r.look() }
	case n < 99 || !restart:
		h.what, h.do = "cut database", func(r *seedRun) { r.l.cutDatabase() }
	default:
		h.what, h.do = "controller restart", func(r *seedRun) { r.l.restart(r.t) }
	}
	return h
}

// seedRun is one machine's run.
type seedRun struct {
	t      *testing.T
	l      *seedLab
	m      *harness.Machine
	op     string
	copied harness.Copy
}

func (l *seedLab) run(t *testing.T, seed uint64) {
	p := draw(seed)
	t.Logf("seed %d: %v", seed, p)
	o := harness.MachineOptions{Site: p.site, Script: p.script, Supervised: true, RepaveTime: 20 * time.Millisecond,
		Stopped: true}
	if p.wired {
		o.Address = l.wire.Address()
	}
	r := &seedRun{t: t, l: l, m: l.c.NewMachine(t, o)}
	if p.wired {
		l.wire.Listen(r.m, noisy(rand.New(rand.NewPCG(seed, 78)), rand.New(rand.NewPCG(seed, 79))))
	}
	r.m.Start()
	r.m.WaitConnected()
	r.operation(kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == "enter-maintenance" })], "enter", nil)
	for i, k := range p.kinds {
		r.operation(k, fmt.Sprint("work-", i), p.during[i])
	}
	r.operation(exitMaintenance, "exit", nil)
	r.atRest()
}

// noisy loses, repeats and delays messages.
func noisy(up, down *rand.Rand) harness.Hooks {
	verdict := func(rng *rand.Rand) harness.Verdict {
		switch n := rng.IntN(100); {
		case n < 8:
			return harness.Verdict{}
		case n < 30:
			return harness.Verdict{Copies: 2 + rng.IntN(2)}
		case n < 45:
			return harness.Verdict{Copies: 1, Delay: time.Duration(rng.IntN(60)) * time.Millisecond}
		}
		return harness.Pass
	}
	var a, b sync.Mutex
	return harness.Hooks{
		FromAgent: func(m *fleetv1.AgentMessage) harness.Verdict {
			a.Lock()
			defer a.Unlock()
			v := verdict(up)
			if m.GetGrantRequest() != nil {
				v.Copies = min(v.Copies, 1) // an agent never repeats a number; who does has been rolled back
			}
			return v
		},
		FromController: func(*fleetv1.ControllerMessage) harness.Verdict {
			b.Lock()
			defer b.Unlock()
			return verdict(down)
		},
	}
}

// operation runs one operation among its happenings, and waits for its end.
func (r *seedRun) operation(k kind, request string, during []happening) {
	r.t.Helper()
	begin := time.Now()
	var rest []happening
	for _, h := range during {
		r.l.count(r.l.drawn, strings.Fields(h.what)[0])
		if h.after == 0 {
			h.do(r)
			continue
		}
		rest = append(rest, h)
	}
	op, err := k.start(r.t, r.l.c.Client, r.m.ID, request, rig.StepTime)
	if err != nil {
		r.refused(k, err)
		return
	}
	r.op = op.GetOperationId()
	for _, h := range rest {
		<-time.After(time.Until(begin.Add(h.after)))
		h.do(r)
	}
	got := r.l.c.Wait(r.op, endLimit)
	r.l.count(r.l.outcomes, strings.TrimSpace(got.GetPhase().String()+" "+got.GetError().GetCode()))
	if k.housekeeping && got.GetPhase() != rig.Succeeded && got.GetPhase() != rig.Canceled {
		r.t.Errorf("%s ended as %v", k.name, got)
	}
}

// refused: only a machine that is fenced or quarantined may refuse work.
func (r *seedRun) refused(k kind, err error) {
	s := r.l.c.Machine(r.m.ID).GetStatus()
	fenced := harness.HasReason(err, "COMMAND_UNRESOLVED") && s.GetUnresolvedCommandId() != ""
	quarantined := harness.HasReason(err, "MACHINE_QUARANTINED")
	// The fence may have been lifted since by a late result.
	if !fenced && !quarantined && !harness.HasReason(err, "COMMAND_UNRESOLVED") || k.housekeeping {
		r.t.Errorf("start %s: %v", k.name, err)
	}
	r.l.count(r.l.outcomes, "refused")
}

// atRest checks the history, lifts the fence, and checks that nothing that was finished has changed.
func (r *seedRun) atRest() {
	h := r.m.WaitQuiet(endLimit)
	rig.Clean(r.t, h)
	if !r.m.Running() {
		r.t.Errorf("the agent ended with %v", r.m.End())
	}
	id := h.Machine.GetStatus().GetUnresolvedCommandId()
	if id != "" {
		_, err := harness.Call(r.t, r.l.c.Admin().SettleCommand, &baremetalv1.SettleCommandRequest{
			MachineId: r.m.ID, CommandId: id, Verdict: "did_not_happen", Comment: "the agent keeps no record of it",
		})
		// A late result may have come first.
		if err != nil && !harness.HasReason(err, "NOTHING_TO_SETTLE") {
			r.t.Errorf("settle: %v", err)
		}
		r.l.count(r.l.outcomes, "fenced")
	}
	later := r.m.History()
	if got := later.Machine.GetStatus().GetUnresolvedCommandId(); got != "" {
		r.t.Errorf("still fenced over %s after settling %s", got, id)
	}
	for _, p := range h.Changed(later) {
		r.t.Error(p)
	}
}

func (r *seedRun) cancel() {
	_, err := harness.Call(r.t, r.l.c.Machines().CancelOperation, &baremetalv1.CancelOperationRequest{OperationId: r.op})
	if err != nil && !harness.HasReason(err, "OPERATION_FINISHED") && !harness.HasReason(err, "CANCEL_TOO_LATE") {
		r.t.Errorf("cancel: %v", err)
	}
}

func (r *seedRun) isolate(d time.Duration) {
	r.m.Isolate()
	<-time.After(d)
	r.m.Rejoin()
}

// rollBack goes back to a copy of the memory from before, or from now when there is none.
func (r *seedRun) rollBack() {
	r.m.Restart(func() {
		if r.copied == nil {
			r.copied = r.m.CopyMemory()
			return
		}
		r.m.RollBack(r.copied)
	})
}

// look is what a repeated job does.
func (r *seedRun) look() {
	r.l.restarting.Lock()
	st := r.l.c.Controller().Store()
	r.l.restarting.Unlock()
	for range 3 {
		if _, err := st.Operations.Decide(context.Background(), r.op, operation.Evaluate{}, time.Now()); err != nil {
			r.t.Logf("look: %v", err) // a fault that was ordered, or a controller that is going
		}
	}
}

func (l *seedLab) cutDatabase() {
	l.restarting.Lock()
	defer l.restarting.Unlock()
	l.c.Database().Cut()
}

func (l *seedLab) restart(t *testing.T) {
	l.restarting.Lock()
	defer l.restarting.Unlock()
	l.c.Restart()
}

func TestDrawingIsStable(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(2000) {
		a, b := draw(seed), draw(seed)
		if a.String() != b.String() {
			t.Fatalf("seed %d is %v and %v", seed, a, b)
		}
		for _, d := range a.during {
			for _, h := range d {
				seen[strings.Fields(h.what)[0]]++
			}
		}
	}
	if len(seen) < 10 {
		t.Errorf("drawn: %v", slices.Sorted(maps.Keys(seen)))
	}
}
