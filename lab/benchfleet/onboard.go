package main

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/fleet"
)

// onboardTarget is in machines a minute.
const onboardTarget = 3000

// onboard measures the way of new machines into service: registration, bootstrap token, enrolment, first session,
// active.
func (b *bench) onboard(ctx context.Context, r *report) (err error) {
	if err := b.up(ctx, 1); err != nil {
		return err
	}
	first, n := b.made, b.o.machines
	if b.crew, err = b.newAgents(n, true); err != nil {
		return err
	}
	benchrig.Say("onboarding %d machines", n)
	before, err := b.cpuTime()
	if err != nil {
		return err
	}
	group, _ := task.New(ctx)
	began := time.Now()
	group.Go("register", func(ctx context.Context) error { return b.join(ctx, first, n) })
	group.Go("count", func(ctx context.Context) error { return b.untilActive(ctx, first, n) })
	if err := group.Wait(); err != nil {
		return err
	}
	took := time.Since(began)
	b.made += n
	r.atLeast(onboardTarget, "machines onboarded", float64(n)/took.Minutes(), "/min",
		"%d from RegisterMachine to active, %d calls at once, %.0f s",
		n, fleet.Width, took.Seconds())
	if err := b.timeOf(r, "one machine", before, float64(n)); err != nil {
		return err
	}
	err = b.crew.stop()
	b.crew = nil
	return err
}

// untilActive waits until the machines are in service.
func (b *bench) untilActive(ctx context.Context, first, n int) error {
	for last := time.Now(); ; {
		active := 0
		err := b.Admin.QueryRow(ctx,
			`SELECT count(*) FROM machines WHERE machine_id >= $1 AND machine_id <= $2 AND node_state = 'active'`,
			name(first), name(first+n-1)).Scan(&active)
		if err != nil {
			return fmt.Errorf("count machines: %w", err)
		}
		if active == n {
			return nil
		}
		if time.Since(last) > 10*time.Second {
			last = time.Now()
			benchrig.Say("%d of %d active", active, n)
		}
		if err := benchrig.Pause(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
}
