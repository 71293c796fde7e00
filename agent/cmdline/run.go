package cmdline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/config"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/installer"
	"github.com/ingot-metal/ingot/agent/pid1"
	"github.com/ingot-metal/ingot/agent/provider/fake"
	"github.com/ingot-metal/ingot/agent/site"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/gctune"
	"github.com/ingot-metal/ingot/internal/imagelayout"
	"github.com/ingot-metal/ingot/internal/obs"
	"github.com/ingot-metal/ingot/internal/obs/traces"
	"github.com/ingot-metal/ingot/internal/task"
)

// simPoll is how often a simulated host looks for a reboot that it did not order itself.
const simPoll = 500 * time.Millisecond

func (a app) run() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the agent",
		Args:  cobra.NoArgs,
		Long: `Run the agent until it is told to stop. With a bootstrap token it enrols first,
unless it is enrolled already.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.load()
			if err != nil {
				return err
			}
			if c.Role == agent.RoleSite {
				if err := becomeUser(c.Site.User, c.StateDir, c.Site.CacheDir); err != nil {
					return err
				}
			}
			bundle, err := o.bundle(c)
			if err != nil {
				return err
			}
			return a.runAgent(cmd.Context(), c, bundle)
		},
	}
	o.bindState(cmd)
	o.bindHost(cmd)
	o.bindToken(cmd)
	return cmd
}

func (a app) runAgent(ctx context.Context, c config.Config, bundle string) error {
	log, err := obs.NewLogger(os.Stderr, c.Log)
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	cfg, err := a.agentConfig(c, bundle, log, host.Config{})
	if err != nil {
		return err
	}
	if cfg.Traces, err = a.tracer(c, log); err != nil {
		return err
	}
	defer cfg.Traces.Close()
	// Ready is who can take orders; a controller that cannot be reached is no reason to be killed and restarted.
	cfg.Started = func() { notify(log, daemon.SdNotifyReady) }
	cfg.Connected = func() { notify(log, "STATUS="+connectedStatus) }
	cfg.Disconnected = func() { notify(log, "STATUS=not connected: looking for a controller") }
	return supervised(ctx, log, agent.New(cfg).Run)
}

// supervised runs fn with systemd's watchdog fed.
func supervised(ctx context.Context, log *slog.Logger, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	group, groupCtx := task.New(ctx)
	group.Go("watchdog", func(ctx context.Context) error { return feedWatchdog(ctx, log) })
	group.Go("headroom", gctune.Frugal)
	group.Go("agent", func(context.Context) error {
		defer cancel() // its end ends the watchdog too
		return fn(groupCtx)
	})
	err := group.Wait()
	notify(log, daemon.SdNotifyStopping)
	return err
}

// agentConfig turns the configuration into that of an agent.
func (a app) agentConfig(c config.Config, bundle string, log *slog.Logger, machine host.Config) (agent.Config, error) {
	if err := os.MkdirAll(c.StateDir, 0o700); err != nil {
		return agent.Config{}, fmt.Errorf("make state directory: %w", err)
	}
	cfg := agent.Config{
		StateDir:  c.StateDir,
		RunDir:    runDir(c),
		Role:      c.Role,
		Bundle:    bundle,
		Region:    c.Region,
		Provider:  c.Provider,
		Addresses: c.Addresses,
		Version:   a.version,
		BuildTime: buildTime(),
		Log:       log,
	}
	world := sim.WorldConfig{
		Dir: c.Sim.Dir, Script: c.Sim.Script, Delay: c.Sim.Delay, RepaveTime: c.Sim.RepaveTime, Recorder: c.Sim.Recorder,
	}
	if c.Proxy != "" {
		dial, err := transport.ViaProxy(c.Proxy, transport.NetDialer())
		if err != nil {
			return cfg, err
		}
		cfg.Dial = dial
	}
	if c.Role == agent.RoleSite && c.Sim.Dir != "" {
		p, err := fake.New(world)
		if err != nil {
			return cfg, err
		}
		cfg.Providers = site.Providers{p.Name(): p}
	}
	if c.Role == agent.RoleSite && c.Host != "sim" {
		cfg.Site = siteConfig(c)
	}
	if c.Host != "sim" {
		cfg.Host = agent.RealHost(machine)
		return cfg, nil
	}
	log.Warn("this machine is simulated", "simulated", true, "world", c.Sim.Dir, "sim_machine", c.Sim.MachineID)
	w, err := sim.OpenWorld(world)
	cfg.Host = agent.SimulatedHost(w, c.Sim.MachineID, simPoll)
	return cfg, err
}

// tracer writes the agent's spansto the destination in the configuration.
func (a app) tracer(c config.Config, log *slog.Logger) (*traces.Tracer, error) {
	hostname, err := os.Hostname()
	if err != nil {
		hostname = "" // spans have the agent's id
	}
	return traces.New(c.Traces, traces.Service{Name: "ingot-agent", Version: a.version, Instance: hostname, Log: log})
}

// runDir is that of the configuration, or what lives as long as the boot: of a simulated machine, of a service, or of
// any other process.
func runDir(c config.Config) string {
	switch own := os.Getenv("RUNTIME_DIRECTORY"); {
	case c.RunDir != "":
		return c.RunDir
	case c.Host == "sim":
		return filepath.Join(c.Sim.Dir, "run", c.Sim.MachineID)
	case own != "":
		return own
	}
	return filepath.Join("/run", filepath.Base(c.StateDir))
}

func siteConfig(c config.Config) *agent.SiteConfig {
	return &agent.SiteConfig{
		Interfaces: c.Site.Interfaces, TFTPDir: c.Site.TFTPDir, CacheDir: c.Site.CacheDir,
		CacheBytes: int64(c.Site.CacheSize),
		HTTPPort:   c.Site.HTTPPort, MediaPort: c.Site.MediaPort, BMCPoll: c.Site.BMCPoll,
	}
}

// runAsInit runs the agent on what the state disk holds.
func (a app) runAsInit(ctx context.Context, log *slog.Logger, sys *pid1.System) error {
	machine := host.Config{
		Rebooter:   func(context.Context, boot.RebootMode) error { return sys.Reboot() },
		Kexec:      func(context.Context) error { return sys.Kexec() },
		LoadModule: func(alias string) error { return pid1.LoadModule(log, alias) },
		Log:        log,
	}
	if boot := sys.Installer(); boot != nil {
		return installer.Run(ctx, installer.Config{
			Boot: *boot, StateDir: sys.StateDir(), Host: machine, Version: a.version, BuildTime: buildTime(), Log: log,
		})
	}
	c := config.Default()
	file := filepath.Join(sys.StateDir(), "agent.yaml")
	if _, err := os.Stat(file); err == nil {
		if c, err = config.Load(file); err != nil {
			return err
		}
	}
	c.StateDir = sys.StateDir()
	bundle, err := os.ReadFile(filepath.Join(sys.StateDir(), imagelayout.TokenFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read bootstrap token: %w", err)
	}
	cfg, err := a.agentConfig(c, string(bundle), log, machine)
	if err != nil {
		return err
	}
	if cfg.Traces, err = a.tracer(c, log); err != nil {
		return err
	}
	defer cfg.Traces.Close()
	if err := agent.New(cfg).Run(ctx); err != nil {
		return err
	}
	if ctx.Err() == nil {
		return errors.New("the agent ended by itself")
	}
	return nil
}

func notify(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd not notified", "state", state, "error", err)
	}
}

// feedWatchdog notifies systemd at half of its interval that the process is alive. It returns at once without one.
func feedWatchdog(ctx context.Context, log *slog.Logger) error {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every == 0 {
		return err
	}
	tick := clock.Real().NewTicker(every / 2)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C():
			notify(log, daemon.SdNotifyWatchdog)
		}
	}
}
