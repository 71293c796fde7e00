package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/measure"
	"github.com/ingot-metal/ingot/lab/relay"
)

// fault is one fault to come.
type fault struct {
	at, length time.Duration
	kind       string
	target     int           // which host agent or controller; taken modulo their number
	step       time.Duration // of a clock
}

// weights are how often each kind of fault is drawn. The part behind the last dash names the target.
var weights = []struct {
	kind string
	n    int
}{
	{"kill-controller", 9},
	{"stop-controller", 5},
	{"pause-controller", 5},
	{"step-controller", 6},
	{"cut-database", 4},
	{"cut-client", 4},
	{"immediate-postgres", 6},
	{"kill-agent", 14},
	{"stop-agent", 6},
	{"pause-agent", 8},
	{"cut-agent", 12},
	{"step-agent", 5},
	{"kill-site", 7},
	{"stop-site", 3},
	{"pause-site", 4},
	{"cut-site", 6},
	{"step-site", 3},
}

func checkNames(only string) error {
	for kind := range strings.SplitSeq(only, ",") {
		if kind != "" && len(drawn(kind)) == 0 {
			return fmt.Errorf("--only: there is no fault %q", kind)
		}
	}
	return nil
}

// drawn returns the kinds that only names, as often as they are drawn; all for an empty only.
func drawn(only string) (out []string) {
	for _, w := range weights {
		if only == "" || slices.Contains(strings.Split(only, ","), w.kind) {
			out = append(out, slices.Repeat([]string{w.kind}, w.n)...)
		}
	}
	return out
}

// meanPause is how long it takes on average from the beginning of one fault to the next.
const meanPause = 2 * time.Second

// clockStep is by how much wall clocks are set, forward or back.
const clockStep = time.Hour

// draw returns the faults of a seed. One in five lasts so long that a silence is noticed.
func draw(seed uint64, duration time.Duration, hosts int, only string) []fault {
	rng := rand.New(rand.NewPCG(seed, 0x40))
	kinds := drawn(only)
	var out []fault
	for at := time.Second; ; {
		at += time.Duration(rng.Int64N(int64(2 * meanPause)))
		length := 200*time.Millisecond + time.Duration(rng.IntN(3000))*time.Millisecond
		if rng.IntN(5) == 0 {
			length = 8*time.Second + time.Duration(rng.IntN(17000))*time.Millisecond
		}
		x := fault{at: at, length: min(length, duration/3), kind: kinds[rng.IntN(len(kinds))], target: rng.IntN(2 * hosts),
			step: clockStep}
		if rng.IntN(2) == 0 {
			x.step = -clockStep
		}
		if at+x.length > duration {
			return out
		}
		out = append(out, x)
	}
}

// strike brings a fault about at its time, and returns when the target is back.
func (f *fleet) strike(ctx context.Context, x fault) error {
	program.Rest(ctx, x.at-(f.since()-f.working))
	if ctx.Err() != nil {
		return nil
	}
	what, at, _ := strings.Cut(x.kind, "-")
	r := check.Fault{Kind: x.kind, Begin: f.since()}
	if what == "step" {
		r.Detail = fmt.Sprintf("by %v", x.step)
	}
	controller := f.controllers[x.target%len(f.controllers)]
	agent := f.site
	if at == "agent" {
		agent = f.hosts[x.target%len(f.hosts)]
	}
	var err error
	switch {
	case at == "postgres":
		r.Target = "postgres"
		r.Took, err = f.database.stopImmediately(ctx, x.length/4)
	case at == "database":
		r.Target = controller.Name
		r.Took = cut(ctx, x.length, controller.database)
	case at == "client":
		r.Target = controller.Name
		r.Took = cut(ctx, x.length, controller.front)
	case at == "controller":
		r.Target = controller.Name
		r.Took, err = breakProgram(ctx, &controller.Program, what, x)
	case what == "cut":
		r.Target, r.Machine = agent.Name, agent.machine
		r.Took = cut(ctx, x.length, agent.ways()...)
	default:
		r.Target, r.Machine = agent.Name, agent.machine
		r.Took, err = breakProgram(ctx, &agent.Program, what, x)
	}
	r.End = f.since()
	f.fault(r)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", x.kind, r.Target, err)
	}
	return nil
}

// cut blocks relays for a while, and reports whether that met a connection.
func cut(ctx context.Context, length time.Duration, ways ...*relay.Relay) (took bool) {
	struck := func() (n int) {
		for _, w := range ways {
			n += w.Struck()
		}
		return n
	}
	before := struck()
	for _, w := range ways {
		w.Block()
	}
	program.Rest(ctx, length)
	for _, w := range ways {
		w.Heal()
	}
	return struck() > before
}

// stopLimit is how long a program may take to end after SIGTERM. Afterwards it is killed.
const stopLimit = 10 * time.Second

// breakProgram kills, stops or pauses a program, or steps its clock, and reports whether that was seen.
func breakProgram(ctx context.Context, p *program.Program, what string, x fault) (took bool, err error) {
	p.Busy.Lock()
	defer p.Busy.Unlock()
	switch what {
	case "kill":
		if err := p.Kill(); err != nil {
			return false, err
		}
		program.Rest(ctx, x.length/2)
		return true, p.Start("")
	case "stop":
		// One that does not end in time is killed, and is another fault.
		_ = p.Stop(stopLimit)
		program.Rest(ctx, x.length/2)
		return true, p.Start("")
	case "pause":
		err := p.Freeze()
		program.Rest(ctx, x.length)
		return measure.Stopped(p.Pid()), errors.Join(err, p.Thaw())
	case "step":
		err := p.Clock.Set(x.step)
		took := p.Clock.MappedBy(p.Pid())
		program.Rest(ctx, x.length)
		return took, errors.Join(err, p.Clock.Set(0))
	}
	return false, fmt.Errorf("no program can be broken by %s", what)
}

// heal ends every fault, and starts what does not run.
func (f *fleet) heal(ctx context.Context) error {
	errs := []error{f.database.start(ctx)}
	for _, p := range f.controllers {
		for _, w := range p.relays() {
			w.Heal()
		}
	}
	for _, p := range f.programs() {
		errs = append(errs, p.Thaw(), p.Clock.Set(0))
	}
	return errors.Join(errs...)
}
