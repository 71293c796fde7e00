package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/fill"
	"github.com/ingot-metal/ingot/lab/fleet"
)

// measureAll runs every part after the other, so that none disturbs another.
func measureAll(ctx context.Context, o options) (r report, err error) {
	began := time.Now()
	r = newReport()
	if r.Binaries, err = binarySizes(o.bin); err != nil {
		return r, err
	}
	g := &rig{o: o}
	g.Rig, err = benchrig.Open(ctx, benchrig.Config{
		Bin: o.bin, Keep: o.keep, InProcess: o.profile != "",
		// pgbench takes one for each client
		Connections: 100 + slices.Max(append(o.clients, o.siteClients...)),
	})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if !o.onlySite {
		if err := g.withAgents(ctx, &r); err != nil {
			return r, err
		}
	}
	if o.siteMachines > 0 && (o.onlySite || o.profile == "") {
		if r.BehindSite, err = g.behindSite(ctx); err != nil {
			return r, err
		}
	}
	r.TookSeconds = time.Since(began).Seconds()
	return r, nil
}

// withAgents measures machines that have agents of their own.
func (g *rig) withAgents(ctx context.Context, r *report) (err error) {
	if r.Pgbench, err = g.pgbench(ctx); err != nil {
		return err
	}
	if err := g.underLoad(ctx, r); err != nil {
		return err
	}
	if g.o.sessions > 0 && g.o.profile == "" {
		r.Sessions, err = g.idleSessions(ctx)
	}
	return err
}

// underLoad measures the parts that need agents that work.
func (g *rig) underLoad(ctx context.Context, r *report) (err error) {
	if err := g.Up(ctx, 1); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Down()) }()
	if g.o.fill > 0 {
		if err := g.fill(ctx, 0, min(fewMachines, g.o.fill)); err != nil {
			return err
		}
	}
	lone, err := g.StartAgent(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lone.Stop()) }()
	benchrig.Say("fleet: %d simulated machines", g.o.agents)
	f, err := g.startCrew(ctx, "load", g.o.agents)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	if err := fleet.Maintain(ctx, g.Conn, f.machines); err != nil {
		return err
	}
	d, err := newDriver(ctx, g, g.o.kind, f.workers())
	if err != nil {
		return err
	}
	defer d.stop()
	if r.IdleDispatch, err = d.probe(ctx, g.o.probes); err != nil {
		return err
	}
	if err := g.loads(ctx, d, r); err != nil {
		return err
	}
	if err := lone.Rest(ctx, g.o.idle); err != nil {
		return err
	}
	r.AgentRSSBytes, err = lone.RSS()
	return err
}

// fill adds machines that nothing is done with. What they leave to be written to disk is written, and not while
// something is measured.
func (g *rig) fill(ctx context.Context, from, to int) error {
	benchrig.Say("filling in machines, up to %d", to)
	if err := fill.Machines(ctx, g.Admin, from, to, func(done int) { benchrig.Say("  %d", done) }); err != nil {
		return err
	}
	_, err := g.Admin.Exec(ctx, "CHECKPOINT")
	return err
}

// loads measures throughput with each number of clients, and with the last one again once there are many machines.
func (g *rig) loads(ctx context.Context, d *driver, r *report) error {
	endProfile, err := benchrig.StartProfile(g.o.profile)
	if err != nil {
		return err
	}
	for i, clients := range g.o.clients {
		measured := g.load
		if g.o.fill > fewMachines && i == len(g.o.clients)-1 {
			measured = g.rounds
		}
		t, err := measured(ctx, d, clients)
		if err != nil {
			return errors.Join(err, endProfile())
		}
		t.compare(r.Pgbench.TPS[clients])
		r.Operations = append(r.Operations, t)
	}
	if err := endProfile(); err != nil || g.o.fill <= fewMachines {
		return err
	}
	if err := g.fill(ctx, fewMachines, g.o.fill); err != nil {
		return err
	}
	last := r.Operations[len(r.Operations)-1]
	r.Filled, err = g.rounds(ctx, d, last.Clients)
	r.Filled.Fill = g.o.fill
	r.Filled.compare(r.Pgbench.TPS[last.Clients])
	return err
}

// rounds measures the same several times, and gives the median by throughput: one run says little about a tenth.
func (g *rig) rounds(ctx context.Context, d *driver, clients int) (throughput, error) {
	all := make([]throughput, rounds)
	for i := range all {
		var err error
		if all[i], err = g.load(ctx, d, clients); err != nil {
			return throughput{}, err
		}
	}
	return median(all), nil
}

// median is the middle one by throughput, with the least and the most of all.
func median(all []throughput) throughput {
	slices.SortFunc(all, func(a, b throughput) int { return cmp.Compare(a.PerSecond, b.PerSecond) })
	t := all[len(all)/2]
	t.Rounds, t.Least, t.Most = len(all), all[0].PerSecond, all[len(all)-1].PerSecond
	return t
}

// load measures throughput, after a warm-up, together with who used the processors for it.
func (g *rig) load(ctx context.Context, d *driver, clients int) (t throughput, err error) {
	benchrig.Say("load: %d clients %s %d machines for %s", clients, d.kind, len(d.by.machines), g.o.duration)
	if _, err := d.drive(ctx, clients, warmUp); err != nil {
		return t, err
	}
	before, err := g.usage(ctx, d.by.processes...)
	if err != nil {
		return t, err
	}
	l, err := d.drive(ctx, clients, g.o.duration)
	if err != nil {
		return t, err
	}
	after, err := g.usage(ctx, d.by.processes...)
	if err != nil {
		return t, err
	}
	t = l.report()
	t.Kind, t.Clients = d.kind, clients
	t.CPU = after.cpu.Since(before.cpu, float64(l.done))
	t.Commits = float64(after.commits-before.commits) / float64(max(l.done, 1))
	return t, nil
}

const (
	// fewMachines is what a database with many is compared with.
	fewMachines = 1000
	rounds      = 5
	warmUp      = 2 * time.Second
	// settle is how long a fresh controller is left alone before its memory is read.
	settle = 3 * time.Second
)
