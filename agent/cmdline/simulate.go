package cmdline

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ingot-metal/ingot/agent"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/transport"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/obs"
	"github.com/ingot-metal/ingot/internal/task"
)

// fleetOptions are the flags of simulate.
type fleetOptions struct {
	count    int
	dir      string
	bundles  string
	script   string
	delay    time.Duration
	repave   time.Duration
	region   string
	provider string
	logLevel string
	inMemory bool
	spread   time.Duration
}

func (a app) simulate() *cobra.Command {
	o := &fleetOptions{}
	cmd := &cobra.Command{
		Use: "simulate", Short: "Run many SIMULATED machines in one process", Args: cobra.NoArgs,
		Long: `Run many simulated machines in one process, each with an agent, an identity and a state directory of its own.
They say in everything that they report that they are simulated. Bootstrap tokens come from a file, one to a line; a
machine that is enrolled already needs none. When one agent ends with an error the others go on.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runFleet(cmd.Context(), *o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.count, "count", 1, "number of machines")
	f.StringVar(&o.dir, "dir", "", "directory of all of them (required)")
	f.StringVar(&o.bundles, "bundles", "", "file with bootstrap tokens, one to a line")
	f.StringVar(&o.script, "sim-script", "", "failures, such as sim-0003/reboot:never")
	f.DurationVar(&o.delay, "sim-delay", 2*time.Second, "time that a reboot takes")
	f.DurationVar(&o.repave, "sim-repave-time", 3*time.Second, "time that an image write takes")
	f.StringVar(&o.region, "region", "", "region, told at enrolment")
	f.StringVar(&o.provider, "provider", "", "provider, told at enrolment")
	f.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	f.BoolVar(&o.inMemory, "in-memory", false,
		"keep the agents' databases in memory: what they promised is lost with the process")
	f.DurationVar(&o.spread, "spread", 0, "start each at a random moment of this time")
	if err := cmd.MarkFlagRequired("dir"); err != nil {
		panic(err) // the flag stands three lines above
	}
	return cmd
}

func (a app) runFleet(ctx context.Context, o fleetOptions) error {
	if o.count < 1 {
		return fmt.Errorf("%w: --count %d", errUsage, o.count)
	}
	log, err := obs.NewLogger(os.Stderr, obs.LogConfig{Level: o.logLevel})
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	tokens, err := readLines(o.bundles)
	if err != nil {
		return err
	}
	world, err := sim.OpenWorld(sim.WorldConfig{
		Dir: filepath.Join(o.dir, "world"), Script: o.script, Delay: o.delay, RepaveTime: o.repave,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	log.Warn("all of these machines are simulated", "simulated", true, "count", o.count, "world",
		filepath.Join(o.dir, "world"))
	group, _ := task.New(ctx)
	for i := 1; i <= o.count; i++ {
		name := fmt.Sprintf("sim-%04d", i)
		bundle := ""
		if i <= len(tokens) {
			bundle = tokens[i-1]
		}
		group.Go(name, func(ctx context.Context) error { return a.runOne(ctx, o, world, name, bundle, log) })
	}
	return group.Wait()
}

// runOne runs one machine. Its failure is its own.
func (a app) runOne(
	ctx context.Context, o fleetOptions, world *sim.World, name, bundle string, log *slog.Logger,
) error {
	select {
	case <-ctx.Done():
		return nil
	case <-clock.Real().After(transport.Jitter(o.spread)):
	}
	dir := filepath.Join(o.dir, name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make state directory: %w", err)
	}
	err := agent.New(agent.Config{
		StateDir: dir, InMemory: o.inMemory, Host: agent.SimulatedHost(world, name, simPoll), Bundle: bundle,
		Region: o.region, Provider: o.provider, Version: a.version, BuildTime: buildTime(),
		Log: log.With("sim_machine", name),
	}).Run(ctx)
	if err != nil && ctx.Err() == nil {
		log.Error("simulated machine's agent ended", "sim_machine", name, "error", err)
	}
	return nil
}

func readLines(path string) (lines []string, err error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read bootstrap tokens: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		if line := strings.TrimSpace(scan.Text()); line != "" {
			lines = append(lines, line)
		}
	}
	return lines, scan.Err()
}
