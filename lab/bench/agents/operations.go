package agents

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/fill"
	"github.com/ingot-metal/ingot/lab/fleet"
	"github.com/ingot-metal/ingot/lab/measure"
)

const aboutOperations = "Operations of one step from the RPC to SUCCEEDED, one after the other by each of so many clients, " +
	"beside `pgbench` (TPC-B-like) with as many clients on the same server. Controller, Postgres, simulated agents and " +
	"clients share the processors."

// Operations measures what pgbench reaches on the database, the rate of operations, the latency of dispatch, idle
// sessions, and an idle agent. Pgbench and the controller use the same server, one after the other.
func Operations(f *flag.FlagSet, cfg *rig.Config) func(context.Context, *report.Report) error {
	o := options{clients: counts{8, 32, 128, 256}, siteClients: counts{8, 64}}
	cfg.Flags(f)
	f.IntVar(&o.fill, "fill", 0,
		"measure again with so many machines in the database, such as 1000000: it must not get slower")
	f.StringVar(&o.kind, "kind", kindNetboot,
		"what the load does to machines: reboot, which ends the agent's session, or netboot, which does not")
	f.Var(&o.clients, "clients",
		"numbers of concurrent clients, of pgbench and of the controller, each measured by itself")
	f.IntVar(&o.scale, "scale", 100, "pgbench's scale: 100,000 rows each")
	f.DurationVar(&o.duration, "duration", 15*time.Second, "how long each throughput is measured")
	f.IntVar(&o.agents, "agents", 512, "simulated machines under load")
	f.IntVar(&o.siteMachines, "site-machines", 1000, "simulated machines behind one site agent; 0 leaves them out")
	f.Var(&o.siteClients, "site-clients", "numbers of concurrent clients that reboot those")
	f.BoolVar(&o.onlySite, "only-site", false, "measure nothing but the machines behind a site agent")
	f.IntVar(&o.sessions, "sessions", 2000, "idle sessions for the memory part; 0 leaves it out")
	f.IntVar(&o.probes, "probes", 50, "operations, one after the other, for the latency of an idle system")
	f.DurationVar(&o.idle, "idle", 20*time.Second, "how long things rest before their memory is read")
	return func(ctx context.Context, r *report.Report) error {
		o.restOfAgents = o.idle
		for flag, of := range map[string]struct {
			machines int
			clients  counts
		}{"agents": {o.agents, o.clients}, "site-machines": {o.siteMachines, o.siteClients}} {
			if most := slices.Max(of.clients); of.machines > 0 && of.machines < most {
				return fmt.Errorf("%d clients need as many machines: --%s %d", most, flag, most)
			}
		}
		cfg.Connections = 100 + slices.Max(append(o.clients, o.siteClients...)) // pgbench takes one for each client
		return with(ctx, *cfg, o, func(b *bench) error { return b.operations(ctx, r) })
	}
}

// operations measures each part after the other, so that none disturbs another.
func (b *bench) operations(ctx context.Context, r *report.Report) error {
	if !b.o.onlySite {
		run := r.Run("operations", "Operations", aboutOperations)
		if err := b.withAgents(ctx, run); err != nil {
			return err
		}
		if err := b.sizes(ctx, run); err != nil {
			return err
		}
		if b.o.sessions > 0 {
			if err := b.memory(ctx, run); err != nil {
				return err
			}
		}
	}
	if b.o.siteMachines == 0 || b.Profile != "" && !b.o.onlySite {
		return nil // a profile is of one load
	}
	if err := b.fresh(ctx, 1); err != nil {
		return err
	}
	return b.behindSite(ctx, r.Run("site", "Machines behind a site agent", aboutSite))
}

// withAgents measures machines that have agents of their own, all in this process.
func (b *bench) withAgents(ctx context.Context, r *report.Run) (err error) {
	tps, err := b.pgbench(ctx)
	if err != nil {
		return err
	}
	if err := b.up(ctx, 1); err != nil {
		return err
	}
	if err := b.fill(ctx, 0, min(fewMachines, b.o.fill)); err != nil {
		return err
	}
	rig.Say("fleet: %d simulated machines", b.o.agents)
	dir := b.Path("load")
	specs, err := fleet.Register(ctx, b.Conn, dir, "load", 0, b.o.agents)
	if err != nil {
		return err
	}
	f, err := fleet.Start(ctx, fleet.Config{Dir: dir, Addresses: []string{b.Controllers[0].Fleet}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	machines := make([]string, 0, len(specs))
	for _, s := range specs {
		machines = append(machines, s.Name)
	}
	f.Add(specs...)
	if err := f.AwaitConnected(ctx, len(specs)); err != nil {
		return fmt.Errorf("connect agents: %w", err)
	}
	if err := fleet.Maintain(ctx, b.Conn, machines); err != nil {
		return err
	}
	d := b.newDriver(ctx, machines)
	defer d.stop()
	d.failed, d.receipts = f.Done(), func() (map[string]time.Time, error) { return f.Receipts().TakeAll(), nil }
	idle, err := d.probe(ctx, b.o.probes)
	if err != nil {
		return err
	}
	if err := b.loads(ctx, d, r, tps); err != nil {
		return err
	}
	r.Add("dispatch, idle: p50", idle.P50, "ms", report.AtMost(idleP50Limit),
		"from created_at until the agent has the command, over %d operations one after the other", idle.N)
	r.Add("dispatch, idle: p99", idle.P99, "ms", report.AtMost(idleP99Limit), "the slowest of the same operations")
	return nil
}

// fill adds machines without work. Their writes reach the disk before anything is measured.
func (b *bench) fill(ctx context.Context, from, to int) error {
	if from >= to {
		return nil
	}
	rig.Say("filling in machines, up to %d", to)
	if err := fill.Machines(ctx, b.Admin, from, to, func(done int) { rig.Say("  %d", done) }); err != nil {
		return err
	}
	return b.sql(ctx, "CHECKPOINT")
}

const (
	// wantedRatio is the aim for operations a second, as a share of pgbench's transactions a second. wantedFilled is that
	// for the rate with many machines, as a share of that with few.
	wantedRatio, wantedFilled = 0.25, 0.9
	// fewMachines is what a database with many is compared with.
	fewMachines = 1000
	rounds      = 5
	warmUp      = 2 * time.Second
)

// loads measures throughput with each number of clients, and with the last one again once there are many machines.
func (b *bench) loads(ctx context.Context, d *driver, r *report.Run, tps map[int]float64) error {
	filled, last := b.o.fill > fewMachines, b.o.clients[len(b.o.clients)-1]
	var few, best throughput
	err := b.Profiled(func() error {
		for _, clients := range b.o.clients {
			n := 1
			if filled && clients == last {
				n = rounds
			}
			t, err := b.median(ctx, d, clients, n)
			if err != nil {
				return err
			}
			limit := report.AtLeast(wantedRatio*tps[clients],
				fmt.Sprintf("%.2f of pgbench's %.0f tps", wantedRatio, tps[clients]))
			r.Add(fmt.Sprintf("operations, %d clients", clients), t.rate, "/s", limit, "%s", t).X = float64(clients)
			t.ratio, few = t.rate/tps[clients], t
			best = slices.MaxFunc([]throughput{best, t}, func(a, b throughput) int { return cmp.Compare(a.ratio, b.ratio) })
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.Curve = &report.Curve{Title: "Operations a second", X: "clients", Measured: "operations",
		Limit: fmt.Sprintf("%.2f of pgbench", wantedRatio)}
	r.Add(
		"operations of pgbench's tps, best",
		best.ratio,
		"",
		report.AtLeast(wantedRatio, ""),
		"with %d clients",
		best.clients,
	)
	if !filled {
		return nil
	}
	if err := b.fill(ctx, fewMachines, b.o.fill); err != nil {
		return err
	}
	t, err := b.median(ctx, d, last, rounds)
	r.Add(fmt.Sprintf("operations, %d clients, %d machines", last, b.o.fill), t.rate, "/s",
		report.AtLeast(wantedFilled*few.rate, fmt.Sprintf("%.2f of the rate with few machines", wantedFilled)), "%s", t)
	return err
}

// throughput describes operations from the RPC to SUCCEEDED.
type throughput struct {
	*load
	clients, machines int
	// rate is of operations that succeeded, in a second, and ratio that rate of pgbench's.
	rate, ratio     float64
	total, dispatch measure.Latency
	use             rig.Usage // of one operation
	rounds          string
}

// String returns the sentence of the figure.
func (t throughput) String() string {
	text := fmt.Sprintf("%sone takes %.0f ms (p99 %.0f), %.2f transactions and %.2f ms of processor time: %s",
		t.rounds, t.total.P50, t.total.P99, t.use.Commits, t.use.CPU(), t.use)
	if t.dispatch.N > 0 {
		text += fmt.Sprintf("; its agent has the command after %.0f ms (p99 %.0f)", t.dispatch.P50, t.dispatch.P99)
	}
	return text + fmt.Sprintf("; %d done on %d machines, %d failed", len(t.load.total), t.machines, t.failed)
}

// median measures throughput several times, and returns the middle one: one run does not resolve a tenth.
func (b *bench) median(ctx context.Context, d *driver, clients, rounds int) (throughput, error) {
	all := make([]throughput, rounds)
	for i := range all {
		var err error
		if all[i], err = b.load(ctx, d, clients); err != nil {
			return all[i], err
		}
	}
	slices.SortFunc(all, func(a, b throughput) int { return cmp.Compare(a.rate, b.rate) })
	t := all[rounds/2]
	if rounds > 1 {
		t.rounds = fmt.Sprintf("median of %d runs, %.0f to %.0f /s: ", rounds, all[0].rate, all[rounds-1].rate)
	}
	return t, nil
}

// load measures throughput after a warm-up.
func (b *bench) load(ctx context.Context, d *driver, clients int) (t throughput, err error) {
	rig.Say("load: %d clients %s %d machines for %s", clients, d.kind, cap(d.idle), b.o.duration)
	if _, err := d.drive(ctx, clients, warmUp); err != nil {
		return t, err
	}
	t.clients, t.machines = clients, cap(d.idle)
	t.use, err = b.Used(ctx, func() (err error) {
		t.load, err = d.drive(ctx, clients, b.o.duration)
		return err
	})
	if err != nil {
		return t, err
	}
	t.use = t.use.Each(float64(len(t.load.total)))
	t.rate = float64(len(t.created)) / t.took.Seconds()
	t.total = measure.Percentiles(t.load.total)
	t.dispatch, err = d.dispatch(t.load)
	return t, err
}
