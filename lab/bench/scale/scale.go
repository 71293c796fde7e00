// Package scale measures a controller whose database holds very many machines, through its frontpage: TLS, a bearer
// token, and a client as everybody's. It fills in a small fleet, measures, fills in the large one, and measures again:
// each figure is of the large fleet, beside that of the small one. What does not grow with the fleet is flat.
package scale

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/fill"
	"github.com/ingot-metal/ingot/lab/measure"
)

const about = "Calls, walks and the controller's own work in a small and in a large fleet, through the frontpage with " +
	"TLS and a bearer token. What does not grow with the fleet is flat."

const (
	// mostSince is the limit of a reconcile by time with 1,000 changed, in milliseconds. leastWalk is that of a full walk,
	// in machines a second. mostGrowth is the largest factor between the large and the small fleet for a call that counts
	// as flat.
	mostSince, leastWalk, mostGrowth = 20.0, 30_000.0, 1.5
)

type options struct {
	small, machines, changed, calls int
	idle                            time.Duration
}

// bench is the database, the controller and a client, with the machines that are there now.
type bench struct {
	*rig.Rig
	o     options
	store *store.Store
	// second is the token of another client.
	second   string
	machines int
	run      *report.Run
}

// Scale declares the options and returns what measures with them.
func Scale(f *flag.FlagSet, cfg *rig.Config) func(context.Context, *report.Report) error {
	var o options
	cfg.Flags(f)
	f.IntVar(&o.small, "small", 1000, "machines that are measured first")
	f.IntVar(&o.machines, "machines", 1_000_000, "machines that are measured then")
	f.IntVar(&o.changed, "changed", 1000,
		"machines that have changed when a client reconciles; at most 1000, which is one page")
	f.IntVar(&o.calls, "calls", 200, "calls of each kind")
	f.DurationVar(&o.idle, "idle", 65*time.Second,
		"how long the controller is left alone while its own work is measured")
	return func(ctx context.Context, r *report.Report) (err error) {
		cfg.Settings = "log: {level: warn}\n"
		b := &bench{o: o}
		if b.Rig, err = rig.Open(ctx, *cfg); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		if b.second, err = auth.AddToken(b.Path("tokens"), "polite", access.ScopeRead); err != nil {
			return err
		}
		if err := b.Up(ctx, 1); err != nil {
			return err
		}
		b.store, err = store.New(ctx, store.Config{URL: b.URL, PoolSize: 2, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			return err
		}
		defer b.store.Close()
		return b.measure(ctx, r.Run("scale", "A million machines", about))
	}
}

func (b *bench) measure(ctx context.Context, large *report.Run) error {
	small := &report.Run{}
	for _, size := range []struct {
		machines int
		run      *report.Run
	}{{b.o.small, small}, {b.o.machines, large}} {
		if err := b.size(ctx, size.machines, size.run); err != nil {
			return fmt.Errorf("with %d machines: %w", size.machines, err)
		}
	}
	for i := range large.Figures {
		when := fmt.Sprintf("with %d machines", b.o.small)
		first, _, _ := strings.Cut(strings.TrimSuffix(small.Figures[i].Says, "."), ";")
		if p99, ok := strings.CutPrefix(first, "The p99 is "); ok {
			when += " " + p99 + " and the p50"
		}
		large.Figures[i].Beside(small.Figures[i], when)
	}
	name := since(min(b.o.changed, b.o.small)) + ": p50"
	large.Add("growth of "+name, large.Value(since(min(b.o.changed, b.o.machines))+": p50")/small.Value(name), "",
		report.AtMost(mostGrowth), "%d machines beside %d: up to the limit it is flat", b.o.machines, b.o.small)
	if err := b.flood(ctx); err != nil {
		return fmt.Errorf("flood: %w", err)
	}
	return b.migration(ctx)
}

// size fills in machines up to a number, and measures.
func (b *bench) size(ctx context.Context, machines int, run *report.Run) error {
	rig.Say("filling in machines %d to %d", b.machines, machines)
	began := time.Now()
	if err := fill.Rows(ctx, b.Admin, b.machines, machines, func(done int) { rig.Say("  %d", done) }); err != nil {
		return err
	}
	b.machines, b.run = machines, run
	run.Add("fill in the machines", time.Since(began).Seconds(), "s", nil, "%d are there now", machines)
	if err := b.fresh(ctx); err != nil {
		return fmt.Errorf("right after the load: %w", err)
	}
	if err := fill.Analyze(ctx, b.Admin); err != nil {
		return err
	}
	for _, part := range []struct {
		what string
		run  func(context.Context) error
	}{
		{"single reads", b.reads}, {"reconciling", b.reconcile}, {"filters", b.filters}, {"a full walk", b.walk},
		{"the controller's own work", b.loops}, {"a controller that is left alone", b.idle},
	} {
		rig.Say("%d machines: %s", machines, part.what)
		if err := part.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", part.what, err)
		}
	}
	return nil
}

func (b *bench) api() pb.MachineServiceClient { return pb.NewMachineServiceClient(b.Conn) }

// call is one call by name. It gets the number of the repetition.
type call struct {
	name string
	run  func(ctx context.Context, i int) error
}

// list is a call of ListMachines. With want of 0 or more the answer has to have so many machines.
func (b *bench) list(name string, want int, r *pb.ListMachinesRequest) call {
	return call{name, func(ctx context.Context, _ int) error {
		got, err := b.api().ListMachines(ctx, r)
		if err == nil && want >= 0 && len(got.GetMachines()) != want {
			err = fmt.Errorf("%d machines instead of %d", len(got.GetMachines()), want)
		}
		return err
	}}
}

// uncounted are the first calls of a kind.
const uncounted = 10

// time makes each call again and again, and adds its latency after a few that are not counted.
func (b *bench) time(ctx context.Context, note string, calls ...call) error {
	for _, c := range calls {
		l, err := measure.Times(b.o.calls, uncounted, func(i int) error { return c.run(ctx, i) })
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		b.add(c.name, l, note)
	}
	return nil
}

func (b *bench) add(name string, l measure.Latency, note string) {
	b.run.Add(name+": p50", l.P50, "ms", nil, "the p99 is %.1f ms%s", l.P99, note)
}
