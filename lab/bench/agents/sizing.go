package agents

import (
	"context"
	"errors"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/bench/report"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// What a size is measured of: machines, and operations a second. Each operation is polled pollsEach times.
var (
	sizedMachines = []int{1000, 5000, 15000}
	sizedRates    = []float64{0, 10, 50}
)

const pollsEach = 10

// sizing measures what a controller and its Postgres need, so that an operator can choose a host: processors and memory
// for so many machines, operations and polls. Each fleet has a fresh controller.
func (b *bench) sizing(ctx context.Context, r *report.Run) error {
	most := b.o.sessions
	defer func() { b.o.sessions = most }()
	for _, n := range sizedMachines {
		if n > most {
			break
		}
		b.o.sessions = n
		if b.made < n {
			if err := b.openSessions(ctx); err != nil {
				return err
			}
		}
		if err := b.fresh(ctx, 1); err != nil {
			return err
		}
		d, err := b.atWork(ctx)
		if err != nil {
			return err
		}
		for _, rate := range sizedRates {
			err = errors.Join(err, b.sizeAt(ctx, r, d, rate))
		}
		d.stop()
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) sizeAt(ctx context.Context, r *report.Run, d *driver, rate float64) error {
	rig.Say("%d machines, %.0f operations a second for %s", b.o.sessions, rate, b.o.idle)
	used, err := b.Used(ctx, func() error {
		if rate == 0 {
			return rig.Pause(ctx, b.o.idle)
		}
		return d.polled(ctx, rate*pollsEach, func(ctx context.Context) error {
			_, err := d.pace(ctx, rate, b.o.callers, b.o.idle)
			return err
		})
	})
	if err != nil {
		return err
	}
	used = used.Each(used.Seconds * 1000)
	rss, err := measure.RSS(b.Controllers[0].Pid())
	if err != nil {
		return err
	}
	var tables float64
	if err := b.Admin.QueryRow(ctx, "SELECT pg_database_size(current_database())::float8").Scan(&tables); err != nil {
		return fmt.Errorf("read the size of the database: %w", err)
	}
	const gib = 1 << 30
	r.Add(fmt.Sprintf("%d machines, %.0f operations/s, %.0f polls/s", b.o.sessions, rate, rate*pollsEach),
		used.Controllers+used.Postgres, "cores", nil,
		"controller %.2f cores and %.2f GiB, Postgres %.2f cores, database %.2f GiB",
		used.Controllers, float64(rss)/gib, used.Postgres, tables/gib)
	return nil
}

// polled reads operations at the rate while fn runs.
func (d *driver) polled(ctx context.Context, rate float64, fn func(context.Context) error) error {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	group, _ := task.New(asking)
	const pollers = 10
	for range pollers {
		group.Go("poll", func(ctx context.Context) error {
			every := time.NewTicker(time.Duration(pollers / rate * float64(time.Second)))
			defer every.Stop()
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-every.C:
				}
				id := d.some()
				if id == "" {
					continue
				}
				_, err := d.operations.GetOperation(ctx, &baremetalv1.GetOperationRequest{OperationId: id})
				if err != nil && ctx.Err() == nil {
					return fmt.Errorf("poll operation %s: %w", id, err)
				}
			}
		})
	}
	err := fn(ctx)
	cancel()
	return errors.Join(err, group.Wait())
}
