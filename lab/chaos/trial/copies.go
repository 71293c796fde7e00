package trial

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/lab/chaos/plan"
	"github.com/ingot-metal/ingot/lab/chaos/program"
	"github.com/ingot-metal/ingot/lab/process"
	"github.com/ingot-metal/ingot/lab/relay"
)

// saved is a copy of an agent's whole state directory: identity, certificates and memory, as a backup or an image of
// its disk has them.
type saved map[string][]byte

// save copies the directory while the agent stands still, and leaves it as it was: what a copy of a running disk may
// catch.
func (a *agentProgram) save() (s saved, err error) {
	if err := a.Freeze(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, a.Thaw()) }()
	s = saved{}
	return s, filepath.WalkDir(a.dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || path == a.ballast() {
			return err
		}
		name, err := filepath.Rel(a.dir, path)
		if err != nil {
			return err
		}
		s[name], err = os.ReadFile(path)
		return err
	})
}

// put makes the directory hold the copy and nothing else.
func (s saved) put(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("put a copy back: %w", err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("put a copy back: %w", err)
		}
	}
	for name, b := range s {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, b, 0o600)); err != nil {
			return fmt.Errorf("put a copy back: %w", err)
		}
	}
	return nil
}

// restore puts an older copy of the whole directory back: the one that an earlier run has left, or one of a moment ago.
func (a *agentProgram) restore(ctx context.Context, s plan.Strike) error {
	old := a.backup
	if old == nil || s.Stays {
		var err error
		if s.AtWork {
			a.awaitAsk(ctx)
		}
		if old, err = a.savedNow(); err != nil {
			return err
		}
		a.backup = old
	}
	each(a.ways(), (*relay.Relay).Heal)
	if s.AtWork && s.Stays { // what the agent reports of the work that the copy lacks is lost on its way
		each(a.ways(), func(w *relay.Relay) { w.FreezeWay(relay.Up) })
	}
	a.outdate(ctx, s)
	return a.comeBack(ctx, s, func() error {
		each(a.ways(), func(w *relay.Relay) { w.Cut(); w.Thaw() })
		return old.put(a.dir)
	})
}

// comeBack puts a copy in the place of an agent's memory and starts the agent, in half of the strikes over a slow
// network: what a controller decides when the agent opens its session is stored then before the agent has dropped that
// memory.
func (a *agentProgram) comeBack(ctx context.Context, s plan.Strike, put func() error) error {
	slow := s.Target%2 == 0
	if slow {
		each(a.ways(), func(w *relay.Relay) { w.Delay(latency) })
	}
	if err := a.down(put, ""); err != nil || !slow {
		return err
	}
	program.Rest(ctx, cloneStart)
	each(a.ways(), (*relay.Relay).Heal)
	return nil
}

// outdate waits until a copy of the memory is old: for a while, or until something was begun that the copy lacks; with
// Stays until that was done.
func (a *agentProgram) outdate(ctx context.Context, s plan.Strike) {
	if !s.AtWork {
		program.Rest(ctx, s.Length)
		return
	}
	before, err := a.c.readEffects(a.c.effects)
	_ = program.Until(ctx, workLimit, "an effect", func() bool { // it becomes old in any case
		now, nerr := a.c.readEffects(a.c.effects)
		return err != nil || nerr == nil && len(now) > len(before) && slices.ContainsFunc(now[len(before):],
			func(e sim.EffectRecord) bool {
				done := e.Kind != sim.KindRepave || e.Stage == sim.StageVerified
				return (a.c.o.Wide || e.MachineID == a.machine) && (done || !s.Stays)
			})
	})
	program.Rest(ctx, s.Length/8)
}

func (a *agentProgram) savedNow() (saved, error) {
	a.Busy.Lock()
	defer a.Busy.Unlock()
	return a.save()
}

// awaitAsk waits until the grant that the agent has asked for is on its way, if a command comes: a copy of this moment
// holds a command that was received, and is begun after it.
func (a *agentProgram) awaitAsk(ctx context.Context) {
	each(a.ways(), func(w *relay.Relay) { w.Delay(latency) })
	_ = program.Until(ctx, workLimit, "a grant on its way", func() bool { // a copy is taken in any case
		c, err := a.command(ctx)
		return err == nil && (c.GetState() == "ACKED" || c.GetState() == "GRANTED" &&
			time.Since(c.GetGrantedAt().AsTime()) < latency)
	})
}

// clone is a second process with a copy of an agent's state directory. It is not started again when it ends.
type clone struct {
	process *process.Process
	dir     string
}

// cloneStart is how long a second process takes until it has a session, on a machine that is not crowded.
const cloneStart = 700 * time.Millisecond

// duplicate starts a second process from a copy of the agent's directory, on its machine or on another one. The first
// runs meanwhile, or comes back later.
func (a *agentProgram) duplicate(ctx context.Context, s plan.Strike, machine string) (took bool, err error) {
	a.Busy.Lock()
	defer a.Busy.Unlock()
	if a.clone != nil {
		return false, nil
	}
	copied, err := a.save()
	if err != nil {
		return false, err
	}
	away := s.Stays && machine == a.machine
	if away {
		if err := a.Kill(); err != nil {
			return false, err
		}
	}
	err = a.startClone(copied, machine)
	a.elsewhere = a.elsewhere || machine != a.machine
	program.Rest(ctx, cloneStart+s.Length)
	took = strings.Contains(a.cloneLog(), `"session open"`)
	if away {
		err = errors.Join(err, a.Start(""))
	}
	return took, err
}

// cloneLog is what all clones of the agent have said; one that has said nothing leaves no log.
func (a *agentProgram) cloneLog() string {
	b, err := os.ReadFile(a.c.Path(a.Name + "-clone.log"))
	if err != nil {
		return ""
	}
	return string(b)
}

func (a *agentProgram) startClone(copied saved, machine string) error {
	c := &clone{dir: a.dir + "-clone"}
	if err := program.Empty(a.c.Path(a.Name + "-clone.log")); err != nil {
		return err
	}
	log, err := program.OpenLog(a.c.Path(a.Name + "-clone.log"))
	if err != nil {
		return err
	}
	defer log.Close() // the process has its own
	file := a.file("clone.yaml")
	if err := errors.Join(os.MkdirAll(c.dir, 0o700), copied.put(c.dir),
		os.WriteFile(file, a.configuration(c.dir, machine), 0o600)); err != nil {
		return err
	}
	c.process, err = process.Start(process.Config{
		Path: filepath.Join(a.c.bin, "ingot-agent"), Args: []string{"run", "--config", file},
		Env: append(a.Clock.Environment(), a.Env...), Output: log,
	})
	if err == nil {
		a.clone = c
	}
	return err
}

// cloneEnds is how long the older of two processes with one identity may take to end, once nothing is broken.
const cloneEnds = 20 * time.Second

// dropClones ends the clones, and names the agents whose clones were still there.
func (c *Trial) dropClones(ctx context.Context) (lingering []string, err error) {
	for _, a := range c.agents {
		elsewhere := a.elsewhere
		ended, derr := a.dropClone(ctx)
		err = errors.Join(err, derr)
		if !ended && !elsewhere {
			lingering = append(lingering, a.Name)
		}
	}
	return lingering, err
}

// dropClone waits for the clone to end by itself, as it must once the agent has a session of its own. It reports
// whether it did.
func (a *agentProgram) dropClone(ctx context.Context) (ended bool, err error) {
	c := a.clone
	if c == nil {
		return true, nil
	}
	a.clone = nil
	ended = program.Until(ctx, cloneEnds, "the clone to end", func() bool {
		select {
		case <-c.process.Gone():
			return true
		default:
			return false
		}
	}) == nil
	return ended, errors.Join(c.process.Kill(), os.RemoveAll(c.dir))
}
