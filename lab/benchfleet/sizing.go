package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// What a size is measured of: machines, and operations a second. Each operation is polled pollsEach times.
var (
	sizedMachines = []int{1000, 5000, 15000}
	sizedRates    = []float64{0, 10, 50}
)

const pollsEach = 10

// sizing measures what a controller and its Postgres need, so that an operator can choose a host: processors and memory
// for so many machines, operations and polls.
func (b *bench) sizing(ctx context.Context, r *report) error {
	for _, n := range sizedMachines {
		if n > b.o.sessions {
			break
		}
		b.o.sessions, n = n, b.o.sessions
		err := b.size(ctx, r)
		b.o.sessions = n
		if err != nil {
			return err
		}
	}
	return nil
}

// size measures one fleet on a fresh controller.
func (b *bench) size(ctx context.Context, r *report) error {
	if err := b.enrolAll(ctx, b.o.sessions); err != nil {
		return err
	}
	if err := b.down(); err != nil {
		return err
	}
	worked, err := b.atWork(ctx)
	if err != nil {
		return err
	}
	for _, rate := range sizedRates {
		if err := b.sizeAt(ctx, r, newLoad(b, worked), rate); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) sizeAt(ctx context.Context, r *report, l *load, rate float64) error {
	benchrig.Say("%d machines, %.0f operations a second for %s", b.o.sessions, rate, b.o.idle)
	before, err := b.cpuTime()
	if err != nil {
		return err
	}
	began := time.Now()
	if rate == 0 {
		err = benchrig.Pause(ctx, b.o.idle)
	} else {
		err = l.polled(ctx, rate*pollsEach, func(ctx context.Context) error {
			_, err := l.drive(ctx, rate, b.o.idle)
			return err
		})
	}
	if err != nil {
		return err
	}
	now, err := b.cpuTime()
	if err != nil {
		return err
	}
	used := now.Since(before, time.Since(began).Seconds())
	rss, err := b.Controllers[0].RSS()
	if err != nil {
		return err
	}
	var tables float64
	err = b.Admin.QueryRow(ctx, "SELECT pg_database_size(current_database())::float8").Scan(&tables)
	if err != nil {
		return fmt.Errorf("read the size of the database: %w", err)
	}
	r.add(
		fmt.Sprintf("%d machines, %.0f operations/s, %.0f polls/s", b.o.sessions, rate, rate*pollsEach),
		(used.Controller+used.Postgres)/1000,
		"cores",
		"controller %.2f cores and %.2f GiB, Postgres %.2f cores, database %.2f GiB",
		used.Controller/1000,
		float64(rss)/measure.MiB/1024,
		used.Postgres/1000,
		tables/measure.MiB/1024,
	)
	return nil
}

// polled asks for operations at the rate while fn runs.
func (l *load) polled(ctx context.Context, rate float64, fn func(context.Context) error) error {
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	group, _ := task.New(asking)
	const pollers = 10
	for range pollers {
		group.Go("poll", func(ctx context.Context) error {
			client := baremetalv1.NewOperationServiceClient(l.b.Conn)
			every := time.NewTicker(time.Duration(pollers / rate * float64(time.Second)))
			defer every.Stop()
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-every.C:
				}
				id := l.anyOperation()
				if id == "" {
					continue
				}
				_, err := client.GetOperation(ctx, &baremetalv1.GetOperationRequest{OperationId: id})
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

// anyOperation is one that is known, mostly one that is under way; empty: none is.
func (l *load) anyOperation() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.machine {
		return id
	}
	for id := range l.created {
		return id
	}
	return ""
}
