package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/dispatch"
	"github.com/ingot-metal/ingot/agent/enroll"
	"github.com/ingot-metal/ingot/agent/session"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/pki"
	"github.com/ingot-metal/ingot/internal/task"
)

// agent is one member of the fleet.
type agent struct {
	f       *Fleet
	spec    Spec
	dial    transport.Dialer
	dir     state.Dir
	machine *machine
	// memory is replaced at each boot.
	memory atomic.Pointer[memory]
	who    state.Identity
	runner atomic.Pointer[session.Runner]
	// welcomed is closed by the first Welcome.
	welcomed chan struct{}
	sessions atomic.Int64
	events   atomic.Int64
}

// run enrols the agent where it has no identity, and lives until ctx ends.
func (a *agent) run(ctx context.Context) error {
	if err := a.enrol(ctx); err != nil {
		return err
	}
	for {
		err := a.boot(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, errDown):
			a.f.reboots.Add(1)
			a.memory.Store(a.memory.Load().reopen())
		case errors.Is(err, state.ErrRolledBack):
			// The memory is younger than the controller's: identities were kept, and this is another process.
			a.memory.Store(a.memory.Load().reopen())
			if err := a.forget(); err != nil {
				return err
			}
		default:
			// As a service manager would. One session more is opened than was lost, which those who count notice.
			a.f.restarts.Add(1)
			a.f.log.Warn("agent ended; it is started again", "machine_id", a.spec.Name, "error", err)
			a.memory.Store(a.memory.Load().reopen())
			wait(ctx, restartAfter)
		}
	}
}

// restartAfter is how long an agent that has ended by itself rests.
const restartAfter = time.Second

func (a *agent) forget() error {
	now := clock.Real().Now()
	return a.memory.Load().newStateID(func(id, old string) ([]byte,
		error) {
		return dispatch.LostResult(id, old, true, now)
	}, now)
}

func (a *agent) enrol(ctx context.Context) (err error) {
	a.who, err = a.dir.Identity()
	if !errors.Is(err, state.ErrNotEnrolled) {
		return err
	}
	bundle, err := pki.ParseBundle(a.spec.Bundle)
	if err != nil {
		return fmt.Errorf("enrol %s: %w", a.spec.Name, err)
	}
	if err := os.MkdirAll(string(a.dir), 0o700); err != nil {
		return fmt.Errorf("enrol %s: %w", a.spec.Name, err)
	}
	cfg := enroll.Config{Dir: a.dir, Dial: a.dial, Clock: clock.Real(), Log: a.f.log}
	a.who, err = enroll.Enroll(ctx, cfg, bundle, enroll.Machine{
		BootID: a.machine.bootID, HardwareFingerprint: a.machine.fingerprint(), Version: version,
	})
	if err == nil {
		a.f.enrolled.Add(1)
	}
	return err
}

const version = "fleet"

// boot is one life of the agent on one boot of its machine.
func (a *agent) boot(ctx context.Context) error {
	memory := a.memory.Load()
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	bootID := a.machine.boot(func() {
		memory.fence() // first, so that whatever still runs can no longer write
		kill(errDown)
	})
	log := a.f.log.With(slog.String("agent_id", a.who.AgentID))
	d := dispatch.New(dispatch.Config{
		Store: memory, Resolve: a.machine.resolve, AgentID: a.who.AgentID, BootID: bootID, Simulated: true,
		Log: log, Clock: clock.Real(), Boottime: clock.Boottime, Quiet: true,
	})
	began := clock.Boottime()
	r := session.New(session.Config{
		Store: memory, Dir: a.dir, Dispatcher: d, Addresses: a.addresses, Dial: a.dial, Log: log, Clock: clock.Real(),
		Hello: func(context.Context) (*fleetv1.Hello, error) { return a.hello(bootID), nil },
		Heartbeat: func() *fleetv1.Heartbeat {
			return &fleetv1.Heartbeat{BootId: bootID, UptimeMs: (clock.Boottime() - began).Milliseconds()}
		},
		Reenroll: func(ctx context.Context) error {
			return enroll.Reenroll(ctx, enroll.Config{Dir: a.dir, Dial: a.dial, Clock: clock.Real(), Log: a.f.log})
		},
		Welcomed: func(*fleetv1.Welcome) { a.greeted() },
	})
	a.runner.Store(r)
	group, ctx := task.New(ctx)
	group.Go("dispatcher", d.Run)
	group.Go("session", func(ctx context.Context) error { return errors.Join(r.Run(ctx), ctx.Err()) })
	err := group.Wait()
	if errors.Is(context.Cause(ctx), errDown) {
		return errDown
	}
	return err
}

func (a *agent) greeted() {
	if a.sessions.Add(1) == 1 {
		close(a.welcomed)
	}
	a.f.opened.Add(1)
}

func (a *agent) connected() bool {
	r := a.runner.Load()
	return r != nil && r.Connected()
}

func (a *agent) addresses() ([]string, error) {
	if len(a.f.cfg.Addresses) > 0 {
		// Neighbours begin with different controllers.
		at := a.spec.Index % len(a.f.cfg.Addresses)
		return append(append([]string{}, a.f.cfg.Addresses[at:]...), a.f.cfg.Addresses[:at]...), nil
	}
	return a.who.FleetAddresses, nil
}

func (a *agent) hello(bootID string) *fleetv1.Hello {
	return &fleetv1.Hello{
		Version: version, Roles: []string{a.who.Role}, Capabilities: capabilities(), BootId: bootID,
		HardwareFingerprint: a.machine.fingerprint(), Simulated: true, Hostname: a.spec.Name,
	}
}

func (a *agent) buffered() int64 {
	n, err := a.memory.Load().BufferedEvents(context.Background())
	if err != nil {
		return 0 // between two boots; the next look counts them
	}
	return n
}

// report buffers a numbered inventory. Each differs from the one before, so that each leaves a row of its own. An agent
// between two boots reports from the next.
func (a *agent) report(ctx context.Context) error {
	for {
		err := a.reportOnce(ctx)
		if !errors.Is(err, state.ErrFenced) {
			return err
		}
		wait(ctx, time.Millisecond)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (a *agent) reportOnce(ctx context.Context) error {
	memory := a.memory.Load()
	id, err := memory.StateID(ctx)
	if err != nil {
		return err
	}
	n := a.events.Load() + 1
	err = memory.Append(ctx, &fleetv1.Event{Body: &fleetv1.Event_Inventory{Inventory: &fleetv1.InventoryReport{
		MachineId: a.spec.Name, Hash: fmt.Sprintf("%s/%d", id, n),
		Document: fmt.Appendf(nil, `{"simulated":true,"report":%d}`, n),
	}}}, clock.Real().Now())
	if err == nil {
		a.events.Store(n)
	}
	return err
}
