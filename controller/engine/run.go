package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/session"
	"github.com/ingot-metal/ingot/internal/task"
)

// Run works until ctx ends, then lets go of everything: what is under way is stored, and another controller goes on.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.RenewLease(ctx); err != nil {
		return fmt.Errorf("take the lease: %w", err)
	}
	if err := e.keepJobLease(ctx); err != nil { // it stands before River takes the first job
		return err
	}
	if err := e.extendListening(ctx); err != nil { // before any job judges who is silent
		return err
	}
	e.startPosition(ctx)
	g, ctx := task.New(ctx)
	g.Go("river", e.runRiver)
	g.Go("new operations", e.runFirst)
	g.Go("lease of jobs", func(ctx context.Context) error {
		return e.every(ctx, jobLeaseEvery, "renew the lease of jobs", e.keepJobLease)
	})
	g.Go("lease", func(ctx context.Context) error { return e.every(ctx, e.cfg.Lease/6, "renew lease", e.keepLease) })
	g.Go("end of lease", e.watchLease)
	g.Go("listen", e.listen)
	g.Go("take over", e.takeForwarded)
	g.Go("hand over", e.forwardAll)
	g.Go("announce", e.tellChanges)
	g.Go("sweep", func(ctx context.Context) error { return e.every(ctx, sweepEvery, "sweep", e.sweep) })
	g.Go("admissions", e.admissions)
	g.Go("acks", func(ctx context.Context) error { return e.every(ctx, ackDelay, "write acknowledgements", e.flushAcks) })
	e.startReconcilers(g)
	e.requestTimes(ctx)
	if e.webhooks != nil {
		g.Go("webhooks", func(ctx context.Context) error {
			return e.every(ctx, time.Second, "webhooks", e.webhooks.FanOut)
		})
		g.Go("late deliveries", func(ctx context.Context) error {
			return e.every(ctx, time.Second, "late deliveries", e.webhooks.Sweep)
		})
	}
	err := g.Wait()
	e.cfg.Sessions.CloseAll(session.ErrDraining)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if endErr := e.store.Sessions.EndSessionsOf(last, e.cfg.ControllerID, e.clock.Now()); endErr != nil {
		e.log.Warn("sessions not ended in the database; their lease will run out", "error", endErr.Error())
	}
	e.leave(last)
	return err
}

// requestTimes learns of the other controllers, and has them learn of this one.
func (e *Engine) requestTimes(ctx context.Context) {
	w := work{what: "greet other controllers"}
	e.attempt(ctx, &w, func(ctx context.Context) error {
		return e.store.Sessions.DescribeController(ctx, e.cfg.ControllerID, e.cfg.Hostname)
	})
	e.attempt(ctx, &w, e.findPeers)
	e.attempt(ctx, &w, func(ctx context.Context) error { return e.announce(ctx, announcePeers) })
}

// leave ends the lease, so that what this controller held is free at once.
func (e *Engine) leave(ctx context.Context) {
	err := e.store.Sessions.ReleaseLease(ctx, e.cfg.ControllerID, e.clock.Now())
	if err == nil && e.peers.Load() > 0 {
		err = e.announce(ctx, announcePeers)
	}
	if err != nil {
		e.log.Warn("lease not released; it will run out", "error", err.Error())
	}
}

// runRiver starts River and stops it with ctx. A database that is away at the start is waited for.
func (e *Engine) runRiver(ctx context.Context) error {
	for {
		err := e.river.Start(context.WithoutCancel(ctx))
		if err == nil {
			break
		}
		e.log.Warn("River did not start; trying again", "error", err.Error())
		select {
		case <-ctx.Done():
			return nil
		case <-e.clock.After(time.Second):
		}
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := e.river.StopAndCancel(stop); err != nil {
		e.log.Warn("River did not stop in time; its jobs will be rescued", "error", err.Error())
	}
	return nil
}

// every runs fn again and again.
func (e *Engine) every(ctx context.Context, d time.Duration, what string, fn func(context.Context) error) error {
	t := e.clock.NewTicker(d)
	defer t.Stop()
	w := work{what: what}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C():
		}
		e.attempt(ctx, &w, fn)
	}
}

// work is something that is done again and again.
type work struct {
	what    string
	failing bool
}

// attempt does it once. A failure is logged once when it starts and once when it is over.
func (e *Engine) attempt(ctx context.Context, w *work, fn func(context.Context) error) {
	err := fn(ctx)
	switch {
	case err != nil && ctx.Err() == nil && !w.failing:
		e.log.Error("background work failed; it is tried again", "work", w.what, "error", err.Error())
		w.failing = true
	case err == nil && w.failing:
		e.log.Info("background work goes on", "work", w.what)
		w.failing = false
	}
}

func (e *Engine) keepLease(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, e.cfg.Lease/3)
	defer cancel()
	return e.RenewLease(limited)
}

// watchLease ends every session when the lease ends, whatever the renewal is waiting for.
func (e *Engine) watchLease(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-e.clock.After(e.endLostLease()):
		}
	}
}

// endLostLease ends every session if the lease has ended, and returns when to look again.
func (e *Engine) endLostLease() time.Duration {
	left := e.lease.left()
	if left > 0 {
		return left
	}
	if n := e.cfg.Sessions.Len(); n > 0 {
		e.log.Error("the lease is lost; closing all sessions", "sessions", n)
		e.cfg.Sessions.CloseAll(session.ErrLeaseLost)
	}
	return e.cfg.Lease / 6
}
