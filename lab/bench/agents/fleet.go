package agents

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
)

// stage is one part of the measurement of a fleet. It adds figures to a run.
type stage struct {
	name, run string
	measure   func(*bench, context.Context, *report.Run) error
}

var stages = []stage{
	{"sizes", "fleet", (*bench).sizes},
	{"handshake", "fleet", (*bench).handshake},
	{"onboard", "fleet", (*bench).onboard},
	{"memory", "fleet", (*bench).memory},
	{"dispatch", "fleet", (*bench).dispatch},
	{"storm", "fleet", (*bench).storm},
	{"crowd", "fleet", (*bench).crowd},
	{"soak", "soak", (*bench).soak},
	{"sizing", "sizing", (*bench).sizing},
}

const defaultStages = "sizes,handshake,onboard,memory,dispatch,storm,crowd"

var titles = map[string]string{"fleet": "A fleet", "soak": "Soak", "sizing": "Sizing"}

var abouts = map[string]string{
	"fleet": "Sessions of simulated agents by the ten thousand, all on loopback: onboarding, memory, dispatch, a " +
		"reconnect storm after kill -9, a crowd over several controllers. Agents share the processors with " +
		"controllers and Postgres.",
	"soak": "Sessions and five operations a second for long. The last third is compared with the second.",
	"sizing": "What one controller and its Postgres need for so many machines, operations and polls: heartbeats each " +
		"10 s, and operations that are each polled ten times. Plan for twice that: a reconnect storm takes all there is.",
}

// The interval of heartbeats: the default, and that of a crowd. All agents and controllers share these processors,
// which the heartbeats of a crowd would fill at the default.
const (
	heartbeat      = 10 * time.Second
	crowdHeartbeat = 30 * time.Second
)

// settings is the configuration of controllers that ask for a heartbeat at an interval.
func settings(every time.Duration) string {
	return fmt.Sprintf("agents: {heartbeat_interval: %s}\nlog: {level: warn}\n", every)
}

// Fleet measures the cost of fleets: the memory of an idle session, a reconnect storm beside the limit of the machine's
// TLS handshakes, and dispatch with many sessions. It measures a crowd of sessions over several controllers,
// onboarding, and, when asked for, a soak and sizes. Stages can be run alone. With --dir the database and the
// identities stay, and the next run on it enrols no machine again.
func Fleet(f *flag.FlagSet, cfg *rig.Config) func(context.Context, *report.Report) error {
	o := options{restOfAgents: 20 * time.Second}
	cfg.Flags(f)
	f.StringVar(&o.stages, "stages", defaultStages,
		"what to measure, with commas between; soak and sizing are not among them unless they are named or --soak is given")
	f.IntVar(&o.sessions, "sessions", 15000, "sessions on one controller")
	f.IntVar(&o.crowd, "crowd", 45000, "sessions over several controllers")
	f.IntVar(&o.controllers, "controllers", 3, "controllers of the crowd")
	f.DurationVar(&o.hold, "hold", 10*time.Minute, "how long the crowd stays")
	f.IntVar(&o.machines, "machines", 10000, "machines that are onboarded")
	f.IntVar(&o.callers, "clients", 16, "concurrent calls of clients")
	f.IntVar(&o.probes, "probes", 300, "operations, one after the other, for the latency of an idle system")
	f.IntVar(&o.worked, "worked", 2000, "machines that operations work on")
	f.StringVar(&o.kind, "kind", kindNetboot, "operations: netboot, or reboot, which ends the agent's session each time")
	f.Float64Var(&o.rate, "rate", 200, "operations a second under load")
	f.DurationVar(&o.load, "load", time.Minute, "how long the load lasts")
	f.DurationVar(&o.idle, "idle", 30*time.Second, "how long sessions rest before their memory is read")
	f.DurationVar(&o.handshakes, "handshakes", 5*time.Second, "how long raw TLS handshakes are counted")
	f.DurationVar(&o.soak, "soak", 0, "length of the soak, such as 30m")
	f.DurationVar(&o.every, "every", 30*time.Second, "how often the soak is looked at")
	return func(ctx context.Context, r *report.Report) error {
		chosen, err := o.chosen()
		if err != nil {
			return err
		}
		cfg.Settings = settings(heartbeat)
		return with(ctx, *cfg, o, func(b *bench) error {
			for _, s := range chosen {
				rig.Say("stage %s", s.name)
				began := time.Now()
				if err := s.measure(b, ctx, r.Run(s.run, titles[s.run], abouts[s.run])); err != nil {
					return fmt.Errorf("stage %s: %w", s.name, err)
				}
				rig.Say("stage %s took %s", s.name, time.Since(began).Round(time.Second))
			}
			return nil
		})
	}
}

func (o options) chosen() (out []stage, err error) {
	names := strings.Split(o.stages, ",")
	if o.soak > 0 {
		names = append(names, "soak")
	}
	for _, s := range stages {
		if slices.Contains(names, s.name) {
			out = append(out, s)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return name == s.name })
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("unknown stages %q", names)
	}
	return out, nil
}
