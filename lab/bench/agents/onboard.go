package agents

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/fleet"
)

// onboardLimit is in machines a minute.
const onboardLimit = 3000

// onboard measures the path of new machines into service: registration, bootstrap token, enrolment, first session,
// active.
func (b *bench) onboard(ctx context.Context, r *report.Run) error {
	if err := b.up(ctx, 1); err != nil {
		return err
	}
	first, n := b.made, b.o.machines
	if err := b.startProcesses(n, true); err != nil {
		return err
	}
	rig.Say("onboarding %d machines", n)
	use, err := b.Used(ctx, func() error {
		group, _ := task.New(ctx)
		group.Go("register", func(ctx context.Context) error { return b.join(ctx, first, n) })
		group.Go("count", func(ctx context.Context) error { return b.untilActive(ctx, first, n) })
		return group.Wait()
	})
	if err != nil {
		return err
	}
	b.made += n
	r.Add("machines onboarded", float64(n)/use.Seconds*60, "/min", report.AtLeast(onboardLimit, ""),
		"%d from RegisterMachine to active, %d calls at once, %.0f s", n, fleet.Width, use.Seconds)
	addUse(r, "one machine", use, float64(n))
	return b.endAgents()
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
			rig.Say("%d of %d active", active, n)
		}
		if err := rig.Pause(ctx, 250*time.Millisecond); err != nil {
			return err
		}
	}
}
