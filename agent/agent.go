package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ingot-metal/ingot/agent/dispatch"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/session"
	"github.com/ingot-metal/ingot/agent/site"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/obs/traces"
	"github.com/ingot-metal/ingot/internal/task"
)

// Roles of an agent.
const (
	RoleHost = "host"
	RoleSite = "site"
	// RoleInstaller is that of a netbooted system, for one operation.
	RoleInstaller = "installer"
)

// errHostDown: the simulated machine under this agent went down.
var errHostDown = errors.New("the machine went down")

// HostFactory returns the machine for one boot. A simulated one calls down when it goes down under the agent; release
// is called when the boot is over.
type HostFactory func(ctx context.Context, down func()) (h host.Host, release func() error, err error)

// Config is what an Agent needs. StateDir and Host are required.
type Config struct {
	StateDir string
	// RunDir is a directory that lives as long as the machine's boot, for what was started in it. None: that is not kept.
	RunDir string
	// InMemory keeps the database, not the identity, in memory. For benchmarks.
	InMemory bool
	Host     HostFactory
	// Role is used until enrolment has given one; "" means host.
	Role string
	// Bundle is the bootstrap token; it is used when the state directory holds no identity.
	Bundle string
	Region string
	// Provider is the machine's provider, as reported at enrolment.
	Provider string
	// Providers are the adapters of the site role.
	Providers site.Providers
	// Site is what a site agent serves and drives by itself, beside Providers; nil means nothing.
	Site *SiteConfig
	// Addresses replaces the fleet addresses that enrolment gave.
	Addresses []string

	Version   string
	BuildTime time.Time
	Log       *slog.Logger
	Clock     clock.Clock
	// Boottime is the clock of the grant window.
	Boottime func() time.Duration
	Dial     transport.Dialer
	// Boot is the base URL of the boot server of the machine's site, without a slash at its end. For the installer.
	Boot string
	// Network is pid1.NetworkFile of the systems that an installer writes, on networks without DHCP; nil writes no such
	// file.
	Network []byte
	// Traces writes this agent's spans; nil writes none.
	Traces *traces.Tracer
	// Failpoints are armed for this agent alone; nil means the process's.
	Failpoints *failpoint.Scope
	// Started is called once, when the state is open and nothing but the network is waited for; it may be nil.
	Started func()
	// Connected is called after every Welcome; it may be nil.
	Connected func()
	// Disconnected is called when a session has ended; it may be nil.
	Disconnected func()

	// These have defaults; tests shorten them.
	RebootSettle   time.Duration
	RebootPoll     time.Duration
	ResendEvery    time.Duration
	GrantWait      time.Duration
	InventoryEvery time.Duration
	// NoInventory leaves the inventory out, Quiet the log lines of commands. For benchmarks.
	NoInventory bool
	Quiet       bool
}

// Agent is one agent.
type Agent struct {
	cfg       Config
	store     *state.Store
	simulated bool // as of the last boot
}

// New makes an Agent; it touches nothing.
func New(cfg Config) *Agent {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if cfg.Clock == nil {
		cfg.Clock = clock.Real()
	}
	if cfg.Boottime == nil {
		cfg.Boottime = clock.Boottime
	}
	if cfg.Dial == nil {
		cfg.Dial = transport.NetDialer()
	}
	if cfg.Role == "" {
		cfg.Role = RoleHost
	}
	if cfg.InventoryEvery == 0 {
		cfg.InventoryEvery = time.Hour
	}
	return &Agent{cfg: cfg}
}

// Run runs the agent until ctx ends.
func (a *Agent) Run(ctx context.Context) (err error) {
	if a.cfg.Failpoints != nil {
		ctx = failpoint.With(ctx, a.cfg.Failpoints)
	}
	release, err := state.Claim(a.cfg.StateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, release()) }()
	a.store, err = state.Open(ctx, state.Config{Dir: a.cfg.StateDir, InMemory: a.cfg.InMemory})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.store.Close()) }()
	if err := a.store.Doubt(ctx); err != nil && !errors.Is(err, state.ErrStorageFull) {
		return err
	}
	if a.cfg.Started != nil {
		a.cfg.Started()
	}
	for {
		again, err := a.next(ctx, a.boot(ctx))
		if !again || err != nil {
			return err
		}
	}
}

// next decides what follows the end of a boot.
func (a *Agent) next(ctx context.Context, err error) (again bool, _ error) {
	switch {
	case errors.Is(err, errHostDown):
		a.store = a.store.Reopen()
		a.cfg.Log.Info("simulated machine went down; the agent starts again with it")
		return ctx.Err() == nil, nil
	case errors.Is(err, state.ErrRolledBack):
		a.store = a.store.Reopen()
		return true, a.forget(ctx)
	case ctx.Err() != nil && !errors.Is(err, session.ErrSuperseded):
		return false, nil
	}
	return false, err
}

// forget replaces the state id after a rollback of the memory to an old copy.
func (a *Agent) forget(ctx context.Context) error {
	now := a.cfg.Clock.Now()
	id, err := a.store.NewStateID(ctx, now, func(c state.Command, stateID string) ([]byte, error) {
		return dispatch.LostResult(c.ID, stateID, a.simulated, now)
	})
	if err != nil {
		return fmt.Errorf("take a new state id: %w", err)
	}
	a.cfg.Log.Error("the state directory is an old copy of itself; open commands are given up", "state_id", id)
	return nil
}

// boot is one life of the agent on one boot of its machine.
func (a *Agent) boot(ctx context.Context) (err error) {
	store := a.store
	ctx, kill := context.WithCancelCause(ctx)
	defer kill(nil)
	h, closeHost, err := a.cfg.Host(ctx, func() {
		store.Fence() // first, so that whatever still runs can no longer write
		kill(errHostDown)
	})
	if err != nil {
		return cause(ctx, fmt.Errorf("find the machine: %w", err))
	}
	defer func() { err = errors.Join(err, closeHost()) }()
	l, err := a.newLife(ctx, h, store)
	if err != nil {
		return cause(ctx, err)
	}
	group, ctx := task.New(ctx)
	l.run(group)
	err = group.Wait()
	return cause(ctx, err)
}

// cause prefers the machine's end over whatever broke because of it.
func cause(ctx context.Context, err error) error {
	// The machine may be found down, or the state fenced, before its end has been told.
	if errors.Is(context.Cause(ctx), errHostDown) || errors.Is(err, sim.ErrDown) || errors.Is(err, state.ErrFenced) {
		return errHostDown
	}
	return err
}
