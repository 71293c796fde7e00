package trial

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/chaos/check"
	"github.com/ingot-metal/ingot/lab/chaos/plan"
	"github.com/ingot-metal/ingot/lab/chaos/program"
)

// attempt is one run on one cell.
type attempt struct {
	c     *Trial
	p     plan.Plan
	begun time.Time

	mu     sync.Mutex
	calls  []check.Call
	faults []check.Fault
	freed  []check.Freed
}

// since is the time of the run, by the monotonic clock.
func (r *attempt) since() time.Duration { return time.Since(r.begun) }

func (r *attempt) called(c check.Call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, c)
}

func (r *attempt) fault(f check.Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, f)
}

// Run makes the faults of the seed and returns the history, and how long the cell took to come to rest. An error means
// that the harness itself has failed, and that the cell is no longer usable.
func (c *Trial) Run(ctx context.Context, seed uint64) (h check.History, settling time.Duration, err error) {
	r := &attempt{c: c, p: c.draw(seed), begun: time.Now()}
	if err := c.mark(); err != nil {
		return h, 0, err
	}
	if err := r.arm(ctx); err != nil {
		return h, 0, err
	}
	r.begun = time.Now()
	group, _ := task.New(ctx)
	last := make([]latest, len(c.machines))
	for n, s := range r.p.Clients {
		group.Go(fmt.Sprintf("client %d", n), func(ctx context.Context) error {
			r.play(ctx, n, s, &last[s.Machine])
			return nil
		})
	}
	for _, s := range r.p.Strikes {
		group.Go(s.Kind, func(ctx context.Context) error { return r.strike(ctx, s) })
	}
	if r.p.Anew > 0 {
		group.Go("begin the reader anew", func(ctx context.Context) error {
			program.Rest(ctx, r.p.Anew)
			c.follow.anew.Store(true)
			return nil
		})
	}
	if r.p.Rollout != nil {
		group.Go("rollout", func(ctx context.Context) error { return r.rollOut(ctx) })
	}
	if err := group.Wait(); err != nil {
		return h, 0, errors.Join(err, c.heal(ctx))
	}
	if err := c.heal(ctx); err != nil {
		return h, 0, err
	}
	unfinished, healed := "", time.Now()
	if err := r.settle(ctx); err != nil {
		unfinished = err.Error()
	}
	if ctx.Err() != nil {
		return h, 0, ctx.Err()
	}
	lingering, err := c.dropClones(ctx)
	if err != nil {
		return h, 0, err
	}
	settling = time.Since(healed)
	h, err = r.collect(ctx)
	err = errors.Join(err, r.collectWide(ctx, &h))
	h.Header.Unfinished, h.Header.Lingering = unfinished, lingering
	return h, settling, errors.Join(err, c.rightClocks())
}
