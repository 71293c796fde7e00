package trial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/chaos/plan"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/measure"
	"github.com/ingot-metal/ingot/lab/relay"
)

// afterWork is how long what follows on an effect may take: most of it is the longest reboot.
const afterWork = 800 * time.Millisecond

// armLimit is how long a run waits for a process that was armed to be at work again. Then it begins in any case.
const armLimit = 15 * time.Second

// arm starts processes with failpoints before the traffic: with a restart in its middle they would meet none of it.
func (r *attempt) arm(ctx context.Context) error {
	for _, s := range r.p.Strikes {
		if s.Armed() == "" || s.Alone() && !r.c.steppable {
			continue
		}
		f := check.Fault{Kind: s.Kind, Detail: s.Armed()}
		var p *program.Program
		var ready func() bool
		if strings.HasSuffix(s.Kind, "-controller") {
			c := r.c.controllers[s.Target%len(r.c.controllers)]
			p, ready = &c.Program, func() bool { return c.serves(ctx) }
		} else {
			a := r.c.agents[s.Target%len(r.c.agents)]
			p, ready = &a.Program, func() bool { return r.c.connected(ctx, a) }
		}
		f.Target = p.Name
		r.fault(f)
		if err := errors.Join(p.Kill(), p.Start(s.Armed())); err != nil {
			return fmt.Errorf("%s of %s: %w", s.Kind, f.Target, err)
		}
		// It may well die of its failpoint before that.
		_ = program.Until(ctx, armLimit, f.Target, ready)
	}
	return nil
}

// strike breaks something for a while. It returns when the process is back and the way is open.
func (r *attempt) strike(ctx context.Context, s plan.Strike) error {
	what, at, _ := cutLast(s.Kind, "-")
	if s.Suspends() {
		return r.suspend(ctx, s)
	}
	if s.Armed() != "" {
		// It strikes by itself; it is to stay armed until there was something to meet, and what follows on it.
		r.awaitWork(ctx, at, s.Target)
		program.Rest(ctx, afterWork+s.Length)
		return nil
	}
	if s.AtWork && !s.CopiesFirst() {
		r.awaitWork(ctx, at, s.Target)
		if !s.Stays {
			program.Rest(ctx, s.At/3)
		}
	} else {
		program.Rest(ctx, s.At-r.since())
	}
	f := check.Fault{Kind: s.Kind, Begin: r.since()}
	var err error
	switch {
	case at == "client" || at == "postgres" && isNetwork(what):
		p := r.c.controllers[s.Target%len(r.c.controllers)]
		f.Target = p.Name
		way := p.front
		if at == "postgres" {
			way = p.database
		}
		f.Took = breakWays(ctx, what, s.Length, way)
	case at == "agent" && isNetwork(what):
		a := r.c.agents[s.Target%len(r.c.agents)]
		f.Target = a.Name
		f.Took = breakWays(ctx, what, s.Length, a.ways()...)
	case at == "standby":
		f.Target = "postgres"
		f.Took, err = r.c.promoteStandby(ctx, s.Length)
	case at == "postgres":
		f.Target = at
		f.Took, err = r.c.breakPostgres(ctx, what, s.Length)
	case at == "controller":
		p := r.c.controllers[s.Target%len(r.c.controllers)]
		f.Target = p.Name
		f.Took, err = program.Break(ctx, &p.Program, what, s.Length, s.Step, s.Stays)
	default:
		a := r.c.agents[s.Target%len(r.c.agents)]
		f.Target, f.Machine = a.Name, a.machine
		f.Forgets = slices.Contains([]string{"forget", "rollback", "restore", "clone", "elsewhere"}, what)
		f.Took, err = a.strike(ctx, what, s)
	}
	if s.Step != 0 {
		f.Detail = fmt.Sprintf("by %v", s.Step.Round(time.Second))
	}
	f.End = r.since()
	r.fault(f)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", s.Kind, f.Target, err)
	}
	return nil
}

// workLimit is how long a fault waits for a machine to be at work.
const workLimit = 3 * time.Second

// awaitWork waits until an effect is asked for: on a machine that is slow today, most of the work lies behind the
// traffic.
func (r *attempt) awaitWork(ctx context.Context, at string, target int) {
	of := r.c.agents[target%len(r.c.agents)].machine
	anywhere := at != "agent" || r.c.o.Wide
	// The fault strikes in any case once the limit is over.
	ctx, cancel := context.WithTimeout(ctx, workLimit)
	defer cancel()
	for ; ctx.Err() == nil; program.Rest(ctx, workPoll) {
		seen, err := r.c.readEffects(r.c.effects)
		if err == nil && slices.ContainsFunc(seen, func(e sim.EffectRecord) bool { return anywhere || e.MachineID == of }) {
			return
		}
	}
}

// workPoll is how soon after an effect a fault strikes: before its report is stored.
const workPoll = 2 * time.Millisecond

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func isNetwork(what string) bool {
	switch what {
	case "cut", "flap", "swallow", "half-open-up", "half-open-down", "delay", "duplicate", "reorder", "lost-commit",
		"lost-answer":
		return true
	}
	return false
}

// latency of a slow network, in each direction.
const latency = 40 * time.Millisecond

// lostCommits is how many COMMITs there are for each that is lost.
const lostCommits = 3

// flapping is how long a flapping network holds.
const flapping = 130 * time.Millisecond

// breakWays reports whether the fault met anything.
func breakWays(ctx context.Context, what string, length time.Duration, ways ...*relay.Relay) (took bool) {
	struck := func() (n int) {
		for _, w := range ways {
			n += w.Struck()
		}
		return n
	}
	before := struck()
	for end := time.Now().Add(length); what == "flap" && time.Now().Before(end); program.Rest(ctx, flapping) {
		for _, w := range ways {
			w.Cut()
		}
	}
	for _, w := range ways {
		switch what {
		case "cut":
			w.Block()
		case "swallow":
			w.Freeze()
		case "half-open-up":
			w.FreezeWay(relay.Up)
		case "half-open-down":
			w.FreezeWay(relay.Down)
		case "delay":
			w.Delay(latency)
		case "reorder":
			w.Reorder(4 * latency)
		case "lost-commit":
			w.LoseCommits(lostCommits, relay.LostBoth)
		case "lost-answer":
			w.LoseCommits(lostCommits, relay.LostAnswer)
		case "duplicate":
			w.Abandon()
		}
	}
	program.Rest(ctx, length)
	for _, w := range ways {
		w.Heal()
	}
	return struck() > before
}

// ways lead from the agent to each controller.
func (a *agentProgram) ways() []*relay.Relay {
	var out []*relay.Relay
	for _, p := range a.c.controllers {
		out = append(out, p.fleet[a.index])
	}
	return out
}

// each does something to all of them.
func each(ways []*relay.Relay, do func(*relay.Relay)) {
	for _, w := range ways {
		do(w)
	}
}

func (c *Trial) breakPostgres(ctx context.Context, what string, length time.Duration) (took bool, err error) {
	c.db.Busy.Lock()
	defer c.db.Busy.Unlock()
	switch what {
	case "stop":
		err := c.db.Signal(syscall.SIGSTOP)
		program.Rest(ctx, length)
		return measure.Stopped(c.db.Pid()), errors.Join(err, c.db.Signal(syscall.SIGCONT))
	case "full":
		took, err := c.db.Fill()
		program.Rest(ctx, length)
		// It may have ended for want of room for its log.
		return took, errors.Join(err, c.db.Empty(), c.db.Start(ctx))
	}
	before := c.db.Pid()
	if err := c.db.Kill(); err != nil {
		return false, err
	}
	program.Rest(ctx, length/4)
	err = c.db.Start(ctx)
	return c.db.Pid() != before, err
}

// strike is program.Break with what can befall an agent's memory.
func (a *agentProgram) strike(ctx context.Context, what string, s plan.Strike) (took bool, err error) {
	switch what {
	case "forget":
		return true, a.down(a.forget, "")
	case "full":
		if !a.mounted {
			return false, nil
		}
		took, err := a.fill(ctx, s)
		program.Rest(ctx, s.Length)
		empty := func() error { return program.Empty(a.ballast()) }
		if s.Target%2 == 1 { // it begins again with what the full disk holds, and not with what it took for written
			return took, errors.Join(err, a.down(empty, ""))
		}
		return took, errors.Join(err, empty())
	case "restore":
		return true, a.restore(ctx, s)
	case "clone":
		return a.duplicate(ctx, s, a.machine)
	case "elsewhere":
		return a.duplicate(ctx, s, a.machine+"-elsewhere")
	case "lie":
		return a.lie(ctx, s)
	case "rollback":
		if err := a.down(a.copyMemory, ""); err != nil {
			return false, err
		}
		a.outdate(ctx, s)
		return true, a.comeBack(ctx, s, a.rollBack)
	}
	return program.Break(ctx, &a.Program, what, s.Length, s.Step, s.Stays)
}

// down does something to an agent that has been killed, and starts it again.
func (a *agentProgram) down(between func() error, failpoints string) error {
	a.Busy.Lock()
	defer a.Busy.Unlock()
	if err := a.Kill(); err != nil {
		return err
	}
	return errors.Join(between(), a.Start(failpoints))
}

// suspend suspends the machine of an agent; the rest of the run it has grants to ask for again.
func (r *attempt) suspend(ctx context.Context, s plan.Strike) error {
	a := r.c.agents[s.Target%len(r.c.agents)]
	if !r.c.steppable {
		return nil
	}
	slept, err := a.suspend(ctx, s)
	f := check.Fault{Kind: s.Kind, Target: a.Name, Machine: a.machine, Begin: r.since(), End: r.since(),
		Asleep: slept.asleep, Took: slept.asleep > 0}
	if f.Took {
		f.Begin, f.End = slept.begun.Sub(r.begun), slept.ended.Sub(r.begun)
		program.Rest(ctx, plan.Held+afterWork) // an agent that is healed is started again, and shows nothing then
	}
	r.fault(f)
	return err
}

// rightClocks resets the wall clocks. They stay wrong until all has come to rest, and nothing may need right ones.
func (c *Trial) rightClocks() error {
	var errs []error
	for _, p := range c.Programs() {
		errs = append(errs, p.Clock.Set(0))
	}
	return errors.Join(errs...)
}

// heal ends every fault but those of clocks, and waits until everything runs.
func (c *Trial) heal(ctx context.Context) error {
	for _, p := range c.controllers {
		for _, w := range p.relays() {
			w.Heal()
		}
	}
	errs := []error{c.db.Signal(syscall.SIGCONT), c.db.Empty(), c.db.Start(ctx)}
	for _, p := range c.controllers {
		errs = append(errs, p.Thaw(), p.Disarm())
	}
	for _, a := range c.agents {
		errs = append(errs, a.Thaw(), program.Empty(a.ballast()), a.Disarm())
	}
	return errors.Join(errs...)
}
