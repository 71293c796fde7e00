package console

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/fill"
)

// writers are how many connections write changes.
const writers = 4

// changes is machines going into maintenance and out of it, each in a transaction of its own, as if another
// controller did it: this one learns of them by looking.
type changes struct {
	done    atomic.Int64
	began   time.Time
	stop    context.CancelFunc
	ended   chan struct{}
	failure error
}

// change begins so many changes a second.
func (b *bench) change(ctx context.Context, rate int) *changes {
	ctx, stop := context.WithCancel(ctx)
	c := &changes{began: time.Now(), stop: stop, ended: make(chan struct{})}
	group, _ := task.New(ctx) // each writer is given the group's context by Go
	for range writers {
		group.Go("writer", func(ctx context.Context) error { return c.write(ctx, b, float64(rate)/writers) })
	}
	task.Background("changes", func() {
		c.failure = group.Wait()
		close(c.ended)
	})
	return c
}

func (c *changes) write(ctx context.Context, b *bench, rate float64) error {
	if rate == 0 {
		return nil
	}
	conn, err := pgx.Connect(ctx, b.URL)
	if err != nil {
		return fmt.Errorf("connect a writer: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // The server ends what it is not told of.
	for n := 1; ; n++ {
		due := c.began.Add(time.Duration(float64(n) / rate * float64(time.Second)))
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return nil
		}
		// The first machines are for probes.
		id := fill.Machine(probes + rand.IntN(b.o.machines-probes))
		_, err := conn.Exec(ctx, `UPDATE machines SET phase = CASE phase WHEN 'READY' THEN 'MAINTENANCE' ELSE 'READY' END
			WHERE machine_id = $1`, id)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("change a machine: %w", err)
		}
		c.done.Add(1)
	}
}

// end stops the changes.
func (c *changes) end() error {
	c.stop()
	<-c.ended
	return c.failure
}

// rate is how many changes a second there were.
func (c *changes) rate() float64 { return float64(c.done.Load()) / time.Since(c.began).Seconds() }

// probes are machines that are changed one by one, to see when each is on the screen.
const probes = 30

// probe changes a machine to a state that no other is in, and returns the time of its commit.
func (b *bench) probe(ctx context.Context, n int) (time.Time, error) {
	_, err := b.Admin.Exec(ctx, "UPDATE machines SET phase = 'FACTORY_READY' WHERE machine_id = $1", fill.Machine(n))
	return time.Now(), err
}
