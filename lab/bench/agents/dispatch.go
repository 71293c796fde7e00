package agents

import (
	"context"

	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/fleet"
)

// The limits of dispatch, in milliseconds.
const (
	idleP50Limit   = 8
	idleP99Limit   = 30
	loadedP99Limit = 250
)

// dispatch measures the time of a command to its agent. It begins at the operation's creation time, which the
// controller takes before it stores anything. It ends when the agent has the command in its memory and its
// acknowledgement queued.
func (b *bench) dispatch(ctx context.Context, r *report.Run) error {
	d, err := b.atWork(ctx)
	if err != nil {
		return err
	}
	defer d.stop()
	idle, err := d.probe(ctx, b.o.probes)
	if err != nil {
		return err
	}
	r.Add("dispatch latency, idle: p50", idle.P50, "ms", report.AtMost(idleP50Limit),
		"%d operations (%s), one after the other, with %d sessions", idle.N, b.o.kind, b.o.sessions)
	r.Add("dispatch latency, idle: p99", idle.P99, "ms", report.AtMost(idleP99Limit), "%.1f ms at most", idle.Max)
	rig.Say("%.0f operations a second for %s", b.o.rate, b.o.load)
	var l *load
	use, err := b.Used(ctx, func() (err error) {
		l, err = d.pace(ctx, b.o.rate, b.o.callers, b.o.load)
		return err
	})
	if err != nil {
		return err
	}
	loaded, err := d.dispatch(l)
	if err != nil {
		return err
	}
	r.Add("dispatch latency under load: p99", loaded.P99, "ms", report.AtMost(loadedP99Limit),
		"p50 %.1f ms, %.1f ms at most, with %d sessions", loaded.P50, loaded.Max, b.o.sessions)
	r.Add("operations started", float64(l.started)/b.o.load.Seconds(), "/s", report.AtLeast(b.o.rate*0.99, ""),
		"asked for %.0f /s; %d ended well, %d not, %d refused; all ended after %.1f s",
		b.o.rate, len(l.created), l.failed, l.refused, l.took.Seconds())
	addUse(r, "one operation, with what the sessions take", use, float64(l.started))
	return nil
}

// atWork opens all sessions on one controller, and returns a driver of the machines that operations work on.
func (b *bench) atWork(ctx context.Context) (*driver, error) {
	if err := b.openSessions(ctx); err != nil {
		return nil, err
	}
	worked := make([]string, min(b.o.worked, b.o.sessions))
	for i := range worked {
		worked[i] = name(i)
	}
	rig.Say("%d machines into maintenance", len(worked))
	if err := fleet.Maintain(ctx, b.Conn, worked); err != nil {
		return nil, err
	}
	d := b.newDriver(ctx, worked)
	d.receipts = b.fleet.receipts
	return d, nil
}

// openSessions opens all sessions on one controller.
func (b *bench) openSessions(ctx context.Context) error {
	if err := b.up(ctx, 1); err != nil {
		return err
	}
	return b.gather(ctx, b.o.sessions)
}
