package main

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/fleet"
)

// The targets of this part, in milliseconds.
const (
	idleP50Target   = 8
	idleP99Target   = 30
	loadedP99Target = 250
)

// dispatch measures how long a command needs to its agent: from the operation's creation time, which the controller
// takes before it stores anything, until the agent has the command in its memory and its acknowledgement queued.
func (b *bench) dispatch(ctx context.Context, r *report) error {
	worked, err := b.atWork(ctx)
	if err != nil {
		return err
	}
	l := newLoad(b, worked)
	idle, err := l.probe(ctx, b.o.probes)
	if err != nil {
		return err
	}
	r.atMost(idleP50Target, "dispatch latency, idle: p50", idle.P50, "ms",
		"%d operations (%s), one after the other, with %d sessions", idle.N, b.o.kind, b.o.sessions)
	r.atMost(idleP99Target, "dispatch latency, idle: p99", idle.P99, "ms", "%.1f ms at most", idle.Max)
	benchrig.Say("%.0f operations a second for %s", b.o.rate, b.o.load)
	used, err := b.cpuTime()
	if err != nil {
		return err
	}
	began := time.Now()
	loaded, err := l.drive(ctx, b.o.rate, b.o.load)
	if err != nil {
		return err
	}
	r.atMost(loadedP99Target, "dispatch latency under load: p99", loaded.P99, "ms",
		"p50 %.1f ms, %.1f ms at most, with %d sessions", loaded.P50, loaded.Max, b.o.sessions)
	r.atLeast(b.o.rate*0.99, "  operations started", float64(l.started)/b.o.load.Seconds(), "/s",
		"asked for %.0f /s; %d ended well, %d not, %d refused; all ended after %.1f s",
		b.o.rate, l.ended-l.failed, l.failed, l.refused, time.Since(began).Seconds())
	return b.timeOf(r, "one operation, with what the sessions take", used, float64(l.started))
}

// atWork opens all sessions on one controller, and gives the machines that operations work on.
func (b *bench) atWork(ctx context.Context) ([]string, error) {
	if err := b.sessions(ctx); err != nil {
		return nil, err
	}
	worked := make([]string, min(b.o.worked, b.o.sessions))
	for i := range worked {
		worked[i] = name(i)
	}
	benchrig.Say("%d machines into maintenance", len(worked))
	return worked, fleet.Maintain(ctx, b.Conn, worked)
}

// sessions opens all sessions on one controller.
func (b *bench) sessions(ctx context.Context) error {
	if err := b.enrolAll(ctx, b.o.sessions); err != nil {
		return err
	}
	if err := b.up(ctx, 1); err != nil {
		return err
	}
	return b.gather(ctx, b.o.sessions)
}
