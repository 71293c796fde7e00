package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// stormFactor is how much longer than its bare handshakes a fleet may take to come back.
const stormFactor = 3

// storm kills the controller of a whole fleet while every agent reports something, starts it again, and measures until
// all are back and have told everything.
func (b *bench) storm(ctx context.Context, r *report) error {
	if r.handshakesPerSecond == 0 {
		if err := b.down(); err != nil { // a fleet at rest takes its part of the processors
			return err
		}
		if err := b.handshake(ctx, r); err != nil {
			return err
		}
	}
	if err := b.sessions(ctx); err != nil {
		return err
	}
	c := b.Controllers[0]
	before, err := c.RSS()
	if err != nil {
		return err
	}
	rows, err := b.inventories(ctx)
	if err != nil {
		return err
	}
	told, err := b.crew.reported()
	if err != nil {
		return err
	}
	used, err := b.cpuTime()
	if err != nil {
		return err
	}
	used.Controllers = 0 // the next process begins anew
	benchrig.Say("kill -9 of the controller of %d sessions", b.o.sessions)
	killed, up, back, err := b.lightning(ctx)
	if err != nil {
		return err
	}
	if err := b.crew.settled(ctx, b.o.sessions); err != nil {
		return err
	}
	peak, err := measure.Peak(c.Pid())
	if err != nil {
		return err
	}
	limit := stormFactor * float64(b.o.sessions) / r.handshakesPerSecond
	r.atMost(limit, "reconnect storm: all back", back.Sub(killed).Seconds(), "s",
		"%d sessions after kill -9; %.1f s of it until the controller was ready again; limit: %d × sessions ÷ raw handshakes",
		b.o.sessions, up.Sub(killed).Seconds(), stormFactor)
	if err := b.timeOf(r, "one that comes back, with its events", used, float64(b.o.sessions)); err != nil {
		return err
	}
	r.add("  all events told", time.Since(killed).Seconds(), "s", "three of each agent: before, while it was down, after")
	r.add("  controller at most", float64(peak)/measure.MiB, "MiB", "%.1f before", float64(before)/measure.MiB)
	return b.account(ctx, r, told, rows)
}

// lightning lets every agent report, kills the controller, lets them report again, starts it, and waits for every
// agent.
func (b *bench) lightning(ctx context.Context) (killed, up, back time.Time, err error) {
	c := b.Controllers[0]
	st, err := b.crew.status()
	if err != nil {
		return killed, up, back, err
	}
	if err = b.crew.report(); err != nil {
		return killed, up, back, err
	}
	killed = time.Now()
	if err = c.Kill(); err != nil {
		return killed, up, back, err
	}
	if err = b.crew.report(); err != nil {
		return killed, up, back, err
	}
	if err = c.Start(ctx); err != nil {
		return killed, up, back, err
	}
	up = time.Now()
	if err = b.crew.report(); err != nil {
		return killed, up, back, err
	}
	for want, last := st.Opened+int64(b.crew.size), time.Now(); ; {
		st, err = b.crew.status()
		if err != nil {
			return killed, up, back, err
		}
		if st.Connected == b.crew.size && st.Opened >= want {
			return killed, up, time.Now(), nil
		}
		if time.Since(last) > 5*time.Second {
			last = time.Now()
			benchrig.Say("%d of %d back after %.0f s; %s", st.Connected, b.crew.size, time.Since(killed).Seconds(), st.Trouble)
		}
		if err = benchrig.Pause(ctx, 100*time.Millisecond); err != nil {
			return killed, up, back, err
		}
	}
}

// counts are the inventories of one machine in the controller's table.
type counts struct{ rows, distinct int64 }

func (b *bench) inventories(ctx context.Context) (map[string]counts, error) {
	out := map[string]counts{}
	rows, err := b.Admin.Query(ctx,
		"SELECT machine_id, count(*), count(DISTINCT hash) FROM inventories GROUP BY machine_id")
	if err != nil {
		return nil, fmt.Errorf("count inventories: %w", err)
	}
	var id string
	var n counts
	_, err = pgx.ForEachRow(rows, []any{&id, &n.rows, &n.distinct}, func() error {
		out[id] = n
		return nil
	})
	return out, err
}

// account compares what the agents have reported since then with what the controller has stored since then.
func (b *bench) account(
	ctx context.Context, r *report, toldBefore map[string]int64, rowsBefore map[string]counts,
) error {
	told, err := b.crew.reported()
	if err != nil {
		return err
	}
	rows, err := b.inventories(ctx)
	if err != nil {
		return err
	}
	var all, lost, doubled int64
	for machine, n := range told {
		n -= toldBefore[machine]
		distinct := rows[machine].distinct - rowsBefore[machine].distinct
		all += n
		lost += max(0, n-distinct)
		doubled += rows[machine].rows - rowsBefore[machine].rows - distinct
	}
	r.atMost(0, "  events lost", float64(lost), "", "of %d that the agents have numbered", all)
	r.atMost(0, "  events doubled", float64(doubled), "", "by the numbers that their agents gave them")
	return nil
}
