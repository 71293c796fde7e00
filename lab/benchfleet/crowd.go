package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// crowd keeps many sessions over several controllers for a while, and counts those that were lost.
func (b *bench) crowd(ctx context.Context, r *report) error {
	if err := b.down(); err != nil {
		return err
	}
	b.setHeartbeat(crowdHeartbeat)
	defer b.setHeartbeat(heartbeat)
	// One process cannot hold that many connections: new machines enrol where they stay.
	if err := b.up(ctx, b.o.controllers); err != nil {
		return err
	}
	began, fresh := time.Now(), max(b.o.crowd-b.made, 0)
	if err := b.gather(ctx, b.o.crowd); err != nil {
		return err
	}
	opened := time.Since(began)
	benchrig.Say("%d sessions over %d controllers for %s", b.o.crowd, b.o.controllers, b.o.hold)
	before, err := b.crew.status()
	if err != nil {
		return err
	}
	used, err := b.cpuTime()
	if err != nil {
		return err
	}
	lowest, err := b.attend(ctx, b.o.hold)
	if err != nil {
		return err
	}
	after, err := b.crew.status()
	if err != nil {
		return err
	}
	live, err := b.liveSessions(ctx)
	if err != nil {
		return err
	}
	r.atMost(0, "crowd: sessions lost", float64(after.Opened-before.Opened), "",
		"of %d over %d controllers in %s, with a heartbeat each %s; never below %d; the database has %d live",
		b.o.crowd, b.o.controllers, b.o.hold, crowdHeartbeat, lowest, live)
	r.atLeast(float64(b.o.crowd), "  sessions at the end", float64(min(int64(after.Connected), live)), "",
		"opened in %.0f s, %d of them of new machines", opened.Seconds(), fresh)
	if err := b.timeOf(r, "all at rest, each second", used, b.o.hold.Seconds()); err != nil {
		return err
	}
	for _, c := range b.Controllers {
		m, err := measure.ReadMetrics(ctx, c.HTTP)
		if err != nil {
			return err
		}
		rss, err := c.RSS()
		if err != nil {
			return err
		}
		r.add("  "+c.Name, float64(rss)/measure.MiB, "MiB", "%.0f goroutines", m["go_goroutines"])
	}
	return b.agentsMemory(r)
}

// attend looks at the crowd once a second and gives the smallest number of sessions that it has seen.
func (b *bench) attend(ctx context.Context, length time.Duration) (lowest int, err error) {
	lowest = b.crew.size
	for began, last := time.Now(), time.Now(); time.Since(began) < length; {
		st, err := b.crew.status()
		if err != nil {
			return lowest, err
		}
		lowest = min(lowest, st.Connected)
		if time.Since(last) > 30*time.Second {
			last = time.Now()
			benchrig.Say("%d connected after %s; %s", st.Connected, time.Since(began).Round(time.Second), st.Trouble)
		}
		if err := benchrig.Pause(ctx, time.Second); err != nil {
			return lowest, err
		}
	}
	return lowest, nil
}

// liveSessions counts those whose heartbeats the controllers have stored.
func (b *bench) liveSessions(ctx context.Context) (n int64, err error) {
	err = b.Admin.QueryRow(
		ctx,
		`SELECT count(*) FROM agent_sessions WHERE ended_at IS NULL AND last_heartbeat_at > now() - interval '2 minutes'`,
	).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count sessions: %w", err)
	}
	return n, nil
}
