package engine

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// Run works until ctx ends, then lets go of everything: what is under way is stored, and another controller goes on.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.leases.renew(ctx); err != nil {
		return fmt.Errorf("take the lease: %w", err)
	}
	if err := e.leases.keepJobLease(ctx); err != nil { // it stands before River takes the first job
		return err
	}
	if err := e.scan.extendListening(ctx); err != nil { // before any job judges who is silent
		return err
	}
	e.position.start(ctx)
	g, ctx := task.New(ctx)
	g.Go("river", e.scheduler.runRiver)
	g.Go("new operations", e.scheduler.runFirst)
	g.Go("lease of jobs", func(ctx context.Context) error {
		return e.every(ctx, jobLeaseEvery, "renew the lease of jobs", e.leases.keepJobLease)
	})
	g.Go("lease", func(ctx context.Context) error { return e.every(ctx, e.cfg.Lease/6, "renew lease", e.leases.keep) })
	g.Go("end of lease", e.leases.watchLease)
	g.Go("listen", e.peers.listen)
	g.Go("take over", e.sender.takeForwarded)
	g.Go("hand over", e.sender.forwardAll)
	g.Go("announce", e.peers.tellChanges)
	g.Go("sweep", func(ctx context.Context) error { return e.every(ctx, sweepEvery, "sweep", e.scheduler.sweep) })
	g.Go("admissions", e.slots.run)
	g.Go("acks", func(ctx context.Context) error {
		return e.every(ctx, ackDelay, "write acknowledgements", e.Agents.flushAcks)
	})
	e.startReconcilers(g)
	e.peers.greet(ctx)
	if hooks := e.scheduler.webhooks; hooks != nil {
		g.Go("webhooks", func(ctx context.Context) error {
			return e.every(ctx, time.Second, "webhooks", hooks.FanOut)
		})
		g.Go("late deliveries", func(ctx context.Context) error {
			return e.every(ctx, time.Second, "late deliveries", hooks.Sweep)
		})
	}
	err := g.Wait()
	e.cfg.Sessions.CloseAll(session.ErrDraining)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	e.peers.leave(last)
	return err
}

// common is used by every part of the engine.
type common struct {
	cfg   Config
	log   *slog.Logger
	clock clock.Clock
}

// every runs fn again and again.
func (c common) every(ctx context.Context, d time.Duration, what string, fn func(context.Context) error) error {
	t := c.clock.NewTicker(d)
	defer t.Stop()
	w := work{what: what}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
		c.attempt(ctx, &w, fn)
	}
}

// attempt does it onc. A failure is logged once when it starts and once when it is over.
func (c common) attempt(ctx context.Context, w *work, fn func(context.Context) error) {
	err := fn(ctx)
	switch {
	case err != nil && ctx.Err() == nil && !w.failing:
		c.log.Error("background work failed; it is tried again", "work", w.what, "error", err.Error())
		w.failing = true
	case err == nil && w.failing:
		c.log.Info("background work goes on", "work", w.what)
		w.failing = false
	}
}

// work is a piece of work that is repeated, for the log.
type work struct {
	what    string
	failing bool
}
