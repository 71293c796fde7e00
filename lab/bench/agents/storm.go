package agents

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/fleet"
	"github.com/ingot-metal/ingot/lab/measure"
)

// stormFactor is how much longer than its bare handshakes a fleet may take to come back.
const stormFactor = 3

// storm kills the controller of a whole fleet while every agent reports something, and starts it again. It measures
// until all are back and have sent all reports.
func (b *bench) storm(ctx context.Context, r *report.Run) error {
	if b.handshakesPerSecond == 0 {
		// A fleet at rest takes its part of the processors.
		if err := errors.Join(b.endAgents(), b.Down(), b.handshake(ctx, r)); err != nil {
			return err
		}
	}
	if err := b.openSessions(ctx); err != nil {
		return err
	}
	c := b.Controllers[0]
	before, err := c.Memory(ctx)
	if err != nil {
		return err
	}
	rows, err := b.inventories(ctx)
	if err != nil {
		return err
	}
	told, err := b.fleet.reported()
	if err != nil {
		return err
	}
	used, err := b.Now(ctx)
	if err != nil {
		return err
	}
	used.Controllers = 0 // the next process begins anew
	rig.Say("kill -9 of the controller of %d sessions", b.o.sessions)
	killed := time.Now()
	up, back, err := b.restart(ctx)
	if err != nil {
		return err
	}
	if err := b.fleet.settled(ctx, b.o.sessions); err != nil {
		return err
	}
	all := time.Since(killed)
	peak, err := measure.Peak(c.Pid())
	if err != nil {
		return err
	}
	if used, err = b.Since(ctx, used); err != nil {
		return err
	}
	limit := report.AtMost(stormFactor * float64(b.o.sessions) / b.handshakesPerSecond)
	limit.Of = fmt.Sprintf("%d × sessions ÷ raw handshakes", stormFactor)
	r.Add(
		"reconnect storm: all back",
		back.Sub(killed).Seconds(),
		"s",
		limit,
		"%d sessions after kill -9; %.1f s of it until the controller was ready again",
		b.o.sessions,
		up.Sub(killed).Seconds(),
	)
	addUse(r, "one that comes back, with its events", used, float64(b.o.sessions))
	r.Add("storm: all events told", all.Seconds(), "s", nil, "three of each agent: before, while it was down, after")
	r.Add("storm: controller at most", float64(peak)/measure.MiB, "MiB", nil, "%.1f MiB before", before.RSS/measure.MiB)
	return b.account(ctx, r, told, rows)
}

// restart makes every agent report, kills the controller, makes them report again, starts it, and waits for every
// agent.
func (b *bench) restart(ctx context.Context) (up, back time.Time, err error) {
	c := b.Controllers[0]
	st, err := b.fleet.status()
	if err != nil {
		return up, back, err
	}
	report := func() error { return b.fleet.each((*fleet.Remote).Report) }
	for _, step := range []func() error{report, c.Kill, report, func() error { return c.Start(ctx) }} {
		if err := step(); err != nil {
			return up, back, err
		}
	}
	up = time.Now()
	if err := report(); err != nil {
		return up, back, err
	}
	want := st.Opened + int64(b.fleet.size)
	err = b.fleet.until(ctx, 100*time.Millisecond, func(st fleet.Status) bool {
		return st.Connected == b.fleet.size && st.Opened >= want
	})
	return up, time.Now(), err
}

// inventory counts the inventories of one machine in the controller's table.
type inventory struct{ rows, distinct int64 }

func (b *bench) inventories(ctx context.Context) (map[string]inventory, error) {
	out := map[string]inventory{}
	rows, err := b.Admin.Query(ctx,
		"SELECT machine_id, count(*), count(DISTINCT hash) FROM inventories GROUP BY machine_id")
	if err != nil {
		return nil, fmt.Errorf("count inventories: %w", err)
	}
	var id string
	var n inventory
	_, err = pgx.ForEachRow(rows, []any{&id, &n.rows, &n.distinct}, func() error {
		out[id] = n
		return nil
	})
	return out, err
}

// account compares what the agents have reported since then with what the controller has stored since then.
func (b *bench) account(
	ctx context.Context, r *report.Run, toldBefore map[string]int64, rowsBefore map[string]inventory,
) error {
	told, err := b.fleet.reported()
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
	r.Add("storm: events lost", float64(lost), "", report.AtMost(0), "of %d that the agents have numbered", all)
	r.Add("storm: events doubled", float64(doubled), "", report.AtMost(0), "by the numbers that their agents gave them")
	return nil
}
