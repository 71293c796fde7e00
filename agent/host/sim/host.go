package sim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// Config identifies the world and the machine that this process runs on. The fields that WorldConfig has too mean the
// same.
type Config struct {
	Dir        string
	MachineID  string
	Script     string
	Delay      time.Duration
	RepaveTime time.Duration
	Clock      clock.Clock
	Crash      func()
	NoSync     bool

	// Rebooted is called once when the machine has gone down under this host: all processes on it would be dead now. An
	// agent that is a process of its own exits here. The owner of an agent in the same process stops it and starts another
	// with another New. It runs on a goroutine of its own.
	Rebooted func()
	// Poll is how often to look for a reboot that was not asked for here. 0: only those that this host asked for are
	// noticed by themselves, others at the next call.
	Poll time.Duration
}

// Host is a simulated machine as seen by the agent on it.
type Host struct {
	*Machine
	rebooted func()
	poll     time.Duration
	boot     int // Downs of the machine when this host was made
	down     chan struct{}
	downOnce sync.Once
	close    chan struct{}
	once     sync.Once
	watchers sync.WaitGroup
}

var _ host.Host = (*Host)(nil)

// New makes the view of one boot of the machine, which must be on. Close it when it is no longer used.
func New(cfg Config) (*Host, error) {
	w, err := OpenWorld(WorldConfig{
		Dir: cfg.Dir, Script: cfg.Script, Delay: cfg.Delay, RepaveTime: cfg.RepaveTime,
		Clock: cfg.Clock, Crash: cfg.Crash, NoSync: cfg.NoSync,
	})
	if err != nil {
		return nil, err
	}
	return w.Host(cfg.MachineID, cfg.Rebooted, cfg.Poll)
}

// Host is New for a world that is already open.
func (w *World) Host(machineID string, rebooted func(), poll time.Duration) (*Host, error) {
	h := &Host{Machine: w.Machine(machineID), rebooted: rebooted, poll: poll, down: make(chan struct{}),
		close: make(chan struct{})}
	st, err := w.State(machineID)
	if err != nil {
		return nil, err
	}
	if err := mustRun(&st); err != nil {
		return nil, err
	}
	h.boot = st.Downs
	h.check = h.alive
	if len(st.Pending) > 0 || poll > 0 {
		h.watch(h.untilNext(st))
	}
	return h, nil
}

// Down is closed when the machine has gone down under this host.
func (h *Host) Down() <-chan struct{} { return h.down }

// Close stops watching and waits for it to end, but not for a Rebooted call.
func (h *Host) Close() error {
	h.once.Do(func() { close(h.close) })
	h.watchers.Wait()
	return nil
}

// Reboot also watches for the end, to call Rebooted.
func (h *Host) Reboot(ctx context.Context, e effect.Cause, mode boot.RebootMode) error {
	err := h.Machine.Reboot(ctx, e, mode)
	st, readErr := h.world.State(h.id)
	// Also after an error: a scripted failure after the effect has an effect all the same.
	if readErr == nil && h.alive(&st) == nil && len(st.Pending) > 0 {
		h.watch(h.untilNext(st))
	}
	return errors.Join(err, readErr)
}

// alive refuses calls from a process that would have been killed.
func (h *Host) alive(st *MachineState) error {
	if st.Downs == h.boot && st.On {
		return nil
	}
	h.downOnce.Do(func() {
		close(h.down)
		if h.rebooted != nil {
			task.Background("rebooted "+h.id, h.rebooted)
		}
	})
	return fmt.Errorf("use %s: it went down under this process: %w", h.id, ErrDown)
}

// untilNext is when to look again; 0 is never.
func (h *Host) untilNext(st MachineState) time.Duration {
	next := h.poll
	for _, p := range st.Pending {
		d := max(p.Due.Sub(h.world.cfg.Clock.Now()), time.Nanosecond)
		if next == 0 || d < next {
			next = d
		}
	}
	return next
}

// watch looks at the machine after each wait until it has gone down or nothing is to come.
func (h *Host) watch(wait time.Duration) {
	h.watchers.Add(1)
	task.Background("simulated machine "+h.id, func() {
		defer h.watchers.Done()
		for h.stillUp(wait) {
			st, err := h.world.State(h.id)
			if err != nil {
				return // the directory has gone; calls will say so
			}
			if h.alive(&st) != nil {
				return
			}
			if wait = h.untilNext(st); wait == 0 {
				return
			}
		}
	})
}

func (h *Host) stillUp(wait time.Duration) bool {
	select {
	case <-h.close:
		return false
	case <-h.world.cfg.Clock.After(wait):
		return true
	}
}
