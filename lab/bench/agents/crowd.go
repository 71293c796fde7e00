package agents

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/fleet"
	"github.com/ingot-metal/ingot/lab/measure"
)

// crowd keeps many sessions over several controllers for a while, and counts those that were lost.
func (b *bench) crowd(ctx context.Context, r *report.Run) error {
	b.Settings = settings(crowdHeartbeat)
	defer func() { b.Settings = settings(heartbeat) }()
	// One process cannot hold that many connections: new machines enrol where they stay.
	if err := b.fresh(ctx, b.o.controllers); err != nil {
		return err
	}
	began, fresh := time.Now(), max(b.o.crowd-b.made, 0)
	if err := b.gather(ctx, b.o.crowd); err != nil {
		return err
	}
	opened := time.Since(began)
	rig.Say("%d sessions over %d controllers for %s", b.o.crowd, b.o.controllers, b.o.hold)
	before, err := b.fleet.status()
	if err != nil {
		return err
	}
	after, lowest := before, b.o.crowd
	use, err := b.Used(ctx, func() error {
		end := time.Now().Add(b.o.hold)
		return b.fleet.until(ctx, time.Second, func(st fleet.Status) bool {
			after, lowest = st, min(lowest, st.Connected)
			return time.Now().After(end)
		})
	})
	if err != nil {
		return err
	}
	var live int // those whose heartbeats the controllers have stored
	if err := b.Admin.QueryRow(ctx, `SELECT count(*) FROM agent_sessions
		WHERE ended_at IS NULL AND last_heartbeat_at > now() - interval '2 minutes'`).Scan(&live); err != nil {
		return fmt.Errorf("count sessions: %w", err)
	}
	r.Add("crowd: sessions lost", float64(after.Opened-before.Opened), "", report.AtMost(0),
		"of %d over %d controllers in %s, with a heartbeat each %s; never below %d; the database has %d live",
		b.o.crowd, b.o.controllers, b.o.hold, crowdHeartbeat, lowest, live)
	r.Add("crowd: sessions at the end", float64(min(after.Connected, live)), "",
		report.AtLeast(float64(b.o.crowd), ""), "opened in %.0f s, %d of them of new machines", opened.Seconds(), fresh)
	addUse(r, "a crowd at rest, each second", use, use.Seconds)
	for _, c := range b.Controllers {
		m, err := c.Memory(ctx)
		if err != nil {
			return err
		}
		r.Add("crowd: "+c.Name, m.RSS/measure.MiB, "MiB", nil, "%.0f goroutines", m.Metrics["go_goroutines"])
	}
	return b.agentsMemory(r)
}
