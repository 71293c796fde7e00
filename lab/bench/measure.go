package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/lab/fill"
	"github.com/ingot-metal/ingot/lab/fleet"
	"github.com/ingot-metal/ingot/lab/measure"
)

// measureAll runs every part after the other, so that none disturbs another.
func measureAll(ctx context.Context, o options) (r report, err error) {
	began := time.Now()
	r = newReport(o)
	if r.Binaries, err = binarySizes(o.bin); err != nil {
		return r, err
	}
	dir, err := os.MkdirTemp("", "ingot-bench-")
	if err != nil {
		return r, err
	}
	defer func() {
		if o.keep {
			say("kept: %s", dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	// As root, the database runs as another user who has to get through.
	if err := os.Chmod(dir, 0o711); err != nil {
		return r, err
	}
	g, err := newRig(ctx, o, dir)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, g.close()) }()
	if r.Pgbench, err = g.pgbench(ctx); err != nil {
		return r, err
	}
	if err := g.underLoad(ctx, &r); err != nil {
		return r, err
	}
	if o.sessions > 0 && o.profile == "" {
		if r.Sessions, err = g.idleSessions(ctx); err != nil {
			return r, err
		}
	}
	r.TookSeconds = time.Since(began).Seconds()
	return r, nil
}

// underLoad measures the parts that need agents that work.
func (g *rig) underLoad(ctx context.Context, r *report) (err error) {
	if err := g.startController(ctx); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.stopController()) }()
	if g.o.fill > 0 {
		say("filling in %d machines", g.o.fill)
		err := g.withDatabase(ctx, func(conn *pgx.Conn) error {
			return fill.Machines(ctx, conn, 0, g.o.fill, func(done int) { say("  %d", done) })
		})
		if err != nil {
			return err
		}
	}
	lone, err := g.startAgentProcess(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lone.stop()) }()
	say("fleet: %d simulated machines", g.o.agents)
	f, err := g.startCrew(ctx, "load", g.o.agents)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Stop()) }()
	if err := fleet.Maintain(ctx, g.conn, f.machines); err != nil {
		return err
	}
	d, err := newDriver(ctx, g, f)
	if err != nil {
		return err
	}
	defer d.stop()
	if r.IdleDispatch, err = d.probe(ctx, g.o.probes); err != nil {
		return err
	}
	if err := g.load(ctx, d, r); err != nil {
		return err
	}
	if err := lone.rest(ctx, g.o.idle); err != nil {
		return err
	}
	r.AgentRSSBytes, err = lone.rss()
	return err
}

// load measures throughput, after a warm-up, together with who used the processors for it.
func (g *rig) load(ctx context.Context, d *driver, r *report) error {
	say("load: %d clients %s %d machines for %s", g.o.clients, g.o.kind, g.o.agents, g.o.duration)
	if _, err := d.drive(ctx, g.o.clients, warmUp); err != nil {
		return err
	}
	before, err := g.usage(ctx)
	if err != nil {
		return err
	}
	endProfile, err := startProfile(g.o.profile)
	if err != nil {
		return err
	}
	l, err := d.drive(ctx, g.o.clients, g.o.duration)
	if err := errors.Join(err, endProfile()); err != nil {
		return err
	}
	after, err := g.usage(ctx)
	if err != nil {
		return err
	}
	r.Operations = l.report(r.Pgbench.TPS)
	r.Operations.Kind = g.o.kind
	r.Operations.CPU = after.cpu.since(before.cpu, float64(l.done))
	r.Operations.Commits = float64(after.commits-before.commits) / float64(max(l.done, 1))
	r.LoadedDispatch = measure.Percentiles(l.dispatch)
	return nil
}

const (
	warmUp = 2 * time.Second
	// settle is how long a fresh controller is left alone before its memory is read.
	settle = 3 * time.Second
)
