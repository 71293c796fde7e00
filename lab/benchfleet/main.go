package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/fleet"
	"github.com/ingot-metal/ingot/lab/results"
)

// options are the command line.
type options struct {
	bin, dir, stages, kind  string
	results                 string
	json                    bool
	sessions, crowd         int
	machines, controllers   int
	clients, probes, worked int
	rate                    float64
	load, idle, hold, soak  time.Duration
	every, limit            time.Duration
	handshakes              time.Duration
}

// agentsVerb makes this program hold a part of a fleet, for another one of it.
const agentsVerb = "agents"

func main() {
	if len(os.Args) == 2 && os.Args[1] == agentsVerb {
		exit(fleet.Serve(context.Background(), os.Stdin, os.Stdout))
		return
	}
	o := options{}
	flag.StringVar(&o.bin, "bin", "bin", "directory of the binaries")
	flag.StringVar(&o.dir, "dir", "",
		"keep database, identities and logs here for the next run; empty means a directory that is removed")
	flag.StringVar(&o.stages, "stages", defaultStages,
		"what to measure, with commas between; soak and sizing are not among them unless they are named or --soak is given")
	flag.StringVar(&o.results, "results", "", "store the figures in this file, such as "+results.Path)
	flag.BoolVar(&o.json, "json", false, "print JSON instead of a table")
	flag.IntVar(&o.sessions, "sessions", 15000, "sessions on one controller")
	flag.IntVar(&o.crowd, "crowd", 45000, "sessions over several controllers")
	flag.IntVar(&o.controllers, "controllers", 3, "controllers of the crowd")
	flag.DurationVar(&o.hold, "hold", 10*time.Minute, "how long the crowd stays")
	flag.IntVar(&o.machines, "machines", 10000, "machines that are onboarded")
	flag.IntVar(&o.clients, "clients", 16, "concurrent calls of clients")
	flag.IntVar(&o.probes, "probes", 300, "operations, one after the other, for the latency of an idle system")
	flag.IntVar(&o.worked, "worked", 2000, "machines that operations work on")
	flag.StringVar(&o.kind, "kind", "netboot", "operations: netboot, or reboot, which ends the agent's session each time")
	flag.Float64Var(&o.rate, "rate", 200, "operations a second under load")
	flag.DurationVar(&o.load, "load", time.Minute, "how long the load lasts")
	flag.DurationVar(&o.idle, "idle", 30*time.Second, "how long sessions rest before their memory is read")
	flag.DurationVar(&o.handshakes, "handshakes", 5*time.Second, "how long raw TLS handshakes are counted")
	flag.DurationVar(&o.soak, "soak", 0, "length of the soak, such as 30m")
	flag.DurationVar(&o.every, "every", 30*time.Second, "how often the soak is looked at")
	flag.DurationVar(&o.limit, "limit", 2*time.Hour, "give up after this time")
	flag.Parse()
	exit(run(o))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchfleet:", err)
		os.Exit(1)
	}
}

func run(o options) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	r, err := measureAll(ctx, o)
	if err != nil && len(r.Rows) > 0 {
		benchrig.Say("ended early; the table holds what was measured before")
	}
	if err == nil && o.results != "" {
		err = r.store(ctx, o)
	}
	if o.json {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return errors.Join(err, enc.Encode(r))
	}
	return errors.Join(err, r.print(os.Stdout))
}

// stage is one part of the measurement. It adds rows to the report.
type stage struct {
	name string
	run  func(*bench, context.Context, *report) error
}

var stages = []stage{
	{"sizes", (*bench).sizes},
	{"handshake", (*bench).handshake},
	{"onboard", (*bench).onboard},
	{"memory", (*bench).memory},
	{"dispatch", (*bench).dispatch},
	{"storm", (*bench).storm},
	{"crowd", (*bench).crowd},
	{soakStage, (*bench).soak},
	{sizingStage, (*bench).sizing},
}

const (
	defaultStages = "sizes,handshake,onboard,memory,dispatch,storm,crowd"
	soakStage     = "soak"
	sizingStage   = "sizing"
)

func (o options) chosen() ([]stage, error) {
	names := strings.Split(o.stages, ",")
	if o.soak > 0 && !slices.Contains(names, soakStage) {
		names = append(names, soakStage)
	}
	var out []stage
	for _, s := range stages {
		if i := slices.Index(names, s.name); i >= 0 {
			names = slices.Delete(names, i, i+1)
			out = append(out, s)
		}
	}
	if len(names) > 0 {
		return nil, fmt.Errorf("unknown stages %q", names)
	}
	return out, nil
}

func measureAll(ctx context.Context, o options) (r report, err error) {
	chosen, err := o.chosen()
	if err != nil {
		return r, err
	}
	began := time.Now()
	b, err := newBench(ctx, o)
	if err != nil {
		return r, err
	}
	defer func() {
		err = errors.Join(err, b.close())
		r.finish(time.Since(began))
	}()
	for _, s := range chosen {
		benchrig.Say("stage %s", s.name)
		at := time.Now()
		if err := s.run(b, ctx, &r); err != nil {
			return r, fmt.Errorf("stage %s: %w", s.name, err)
		}
		benchrig.Say("stage %s took %s", s.name, time.Since(at).Round(time.Second))
	}
	return r, nil
}
