package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/fleet"
	"github.com/ingot-metal/ingot/lab/measure"
)

// The targets of this part, in milliseconds.
const (
	idleP50Target   = 8
	idleP99Target   = 30
	loadedP99Target = 250
)

// dispatch measures how long a command needs to its agent: from the operation's creation time, which the controller takes
// before it stores anything, until the agent has the command in its memory and its acknowledgement queued.
func (b *bench) dispatch(ctx context.Context, r *report) error {
	if err := b.enrolAll(ctx, b.o.sessions); err != nil {
		return err
	}
	if err := b.up(ctx, 1); err != nil {
		return err
	}
	if err := b.gather(ctx, b.o.sessions); err != nil {
		return err
	}
	worked := make([]string, min(b.o.worked, b.o.sessions))
	for i := range worked {
		worked[i] = name(i)
	}
	say("%d machines into maintenance", len(worked))
	if err := fleet.Maintain(ctx, b.conn, worked); err != nil {
		return err
	}
	l := newLoad(b, worked)
	idle, err := l.probe(ctx, b.o.probes)
	if err != nil {
		return err
	}
	r.atMost(idleP50Target, "dispatch latency, idle: p50", idle.P50, "ms", "%d operations (%s), one after the other, with %d sessions", idle.N, b.o.kind, b.o.sessions)
	r.atMost(idleP99Target, "dispatch latency, idle: p99", idle.P99, "ms", "%.1f ms at most", idle.Max)
	say("%.0f operations a second for %s", b.o.rate, b.o.load)
	began := time.Now()
	loaded, err := l.drive(ctx, b.o.rate, b.o.load)
	if err != nil {
		return err
	}
	r.atMost(loadedP99Target, "dispatch latency under load: p99", loaded.P99, "ms", "p50 %.1f ms, %.1f ms at most, with %d sessions", loaded.P50, loaded.Max, b.o.sessions)
	r.atLeast(b.o.rate*0.99, "  operations started", float64(l.started)/b.o.load.Seconds(), "/s", "asked for %.0f /s; %d ended well, %d not, %d refused; all ended after %.1f s",
		b.o.rate, l.ended-l.failed, l.failed, l.refused, time.Since(began).Seconds())
	return nil
}

// load starts operations, at a steady rate whatever becomes of them.
type load struct {
	b    *bench
	idle chan string // machines with nothing to do

	mu                              sync.Mutex
	created                         map[string]time.Time // by operation
	machine                         map[string]string
	done                            map[string]bool // ended before anybody asked
	started, ended, failed, refused int
}

func newLoad(b *bench, machines []string) *load {
	l := &load{b: b, idle: make(chan string, len(machines)), created: map[string]time.Time{}, machine: map[string]string{}, done: map[string]bool{}}
	for _, m := range machines {
		l.idle <- m
	}
	return l
}

// begin asks for one operation.
func (l *load) begin(ctx context.Context, machine string) (*baremetalv1.Operation, error) {
	id, client := ids.New(ids.Session), baremetalv1.NewMachineServiceClient(l.b.conn)
	if l.b.o.kind == "reboot" {
		return client.RebootMachine(ctx, &baremetalv1.RebootMachineRequest{MachineId: machine, RequestId: id})
	}
	return client.NetbootMachine(ctx, &baremetalv1.NetbootMachineRequest{MachineId: machine, RequestId: id})
}

// start takes an idle machine and begins an operation on it.
func (l *load) start(ctx context.Context) error {
	var machine string
	select {
	case machine = <-l.idle:
	case <-ctx.Done():
		return ctx.Err()
	}
	op, err := l.begin(ctx, machine)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.refused++
		l.idle <- machine
		return fmt.Errorf("%s %s: %w", l.b.o.kind, machine, err)
	}
	id := op.GetOperationId()
	l.started++
	l.created[id] = op.GetCreatedAt().AsTime()
	if l.done[id] {
		delete(l.done, id)
		l.idle <- machine
		return nil
	}
	l.machine[id] = machine
	return nil
}

// end frees the machine of an operation that has ended.
func (l *load) end(o *baremetalv1.Operation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended++
	if o.GetPhase() != baremetalv1.Operation_SUCCEEDED {
		l.failed++
	}
	machine, known := l.machine[o.GetOperationId()]
	if !known {
		l.done[o.GetOperationId()] = true
		return
	}
	delete(l.machine, o.GetOperationId())
	l.idle <- machine
}

// watched runs fn while a watch tells of the ends of operations, and then waits for those that are under way.
func (l *load) watched(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := baremetalv1.NewOperationServiceClient(l.b.conn).WatchOperations(ctx, &baremetalv1.WatchOperationsRequest{})
	if err != nil {
		return err
	}
	group, _ := task.New(ctx)
	group.Go("watch", func(context.Context) error {
		for {
			e, err := stream.Recv()
			if err != nil {
				return err
			}
			switch o := e.GetSnapshot(); o.GetPhase() {
			case baremetalv1.Operation_SUCCEEDED, baremetalv1.Operation_FAILED, baremetalv1.Operation_CANCELED:
				l.end(o)
			}
		}
	})
	group.Go("load", func(ctx context.Context) error {
		defer cancel()
		if err := fn(ctx); err != nil {
			return err
		}
		for len(l.idle) < cap(l.idle) {
			if err := pause(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	})
	err = group.Wait()
	if len(l.idle) == cap(l.idle) {
		return nil // the watch ends with the cancellation
	}
	return err
}

// probe works on one machine after the other, with nothing else going on.
func (l *load) probe(ctx context.Context, n int) (measure.Latency, error) {
	say("%d operations, one after the other", n)
	err := l.watched(ctx, func(ctx context.Context) error {
		for range n {
			if err := l.start(ctx); err != nil {
				return err
			}
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return measure.Latency{}, err
	}
	return l.latency()
}

// drive starts operations at the rate. Clients that fall behind start what is due as fast as they can.
func (l *load) drive(ctx context.Context, rate float64, length time.Duration) (measure.Latency, error) {
	l.started, l.ended, l.failed, l.refused = 0, 0, 0, 0
	err := l.watched(ctx, func(ctx context.Context) error {
		total := int(rate * length.Seconds())
		group, _ := task.New(ctx)
		began := time.Now()
		for client := range l.b.o.clients {
			group.Go("client", func(ctx context.Context) error {
				for i := client; i < total; i += l.b.o.clients {
					due := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
					if err := pause(ctx, time.Until(due)); err != nil {
						return err
					}
					if time.Since(began) > length {
						return nil
					}
					if err := l.start(ctx); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return group.Wait()
	})
	if err != nil {
		return measure.Latency{}, err
	}
	return l.latency()
}

// latency compares when operations were created with when their commands arrived.
func (l *load) latency() (measure.Latency, error) {
	receipts, err := l.b.crew.receipts()
	if err != nil {
		return measure.Latency{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []time.Duration
	for id, created := range l.created {
		if at, ok := receipts[id]; ok {
			all = append(all, at.Sub(created))
		}
	}
	if missing := len(l.created) - len(all); missing > l.failed {
		return measure.Latency{}, fmt.Errorf("%d operations ended whose command no agent has logged as received", missing)
	}
	clear(l.created)
	return measure.Percentiles(all), nil
}
