package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// load starts operations, at a steady rate whatever becomes of them.
type load struct {
	b    *bench
	idle chan string // machines with nothing to do

	mu      sync.Mutex
	created map[string]time.Time // by operation
	machine map[string]string    // of operations that have not ended, as far as we know
	over    map[string]bool      // operations that have ended
	started, ended, failed,
	refused int
}

func newLoad(b *bench, machines []string) *load {
	l := &load{b: b, idle: make(chan string, len(machines)), created: map[string]time.Time{}, machine: map[string]string{},
		over: map[string]bool{}}
	for _, m := range machines {
		l.idle <- m
	}
	return l
}

// begin asks for one operation.
func (l *load) begin(ctx context.Context, machine string) (*baremetalv1.Operation, error) {
	id, client := ids.New(ids.Session), baremetalv1.NewMachineServiceClient(l.b.Conn)
	if l.b.o.kind == "reboot" {
		return client.RebootMachine(ctx, &baremetalv1.RebootMachineRequest{MachineId: machine, RequestId: id})
	}
	return client.NetbootMachine(ctx, &baremetalv1.NetbootMachineRequest{MachineId: machine, RequestId: id})
}

// mostRefused is how many refusals are borne, in a hundredth of what is started. They are counted; more of them are a
// fault.
const mostRefused = 5

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
		benchrig.Say("%s %s was refused: %v", l.b.o.kind, machine, err)
		if ctx.Err() != nil || l.refused*100 > (l.started+100)*mostRefused {
			return fmt.Errorf("%s %s: %w", l.b.o.kind, machine, err)
		}
		return nil
	}
	id := op.GetOperationId()
	l.started++
	l.created[id] = op.GetCreatedAt().AsTime()
	if l.over[id] {
		l.idle <- machine // it has ended before its start was answered
		return nil
	}
	l.machine[id] = machine
	return nil
}

// end frees the machine of an operation that has ended. It may be told of it twice.
func (l *load) end(o *baremetalv1.Operation) {
	id := o.GetOperationId()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over[id] {
		return
	}
	l.over[id] = true
	l.ended++
	if o.GetPhase() != baremetalv1.Operation_SUCCEEDED {
		l.failed++
	}
	if machine, known := l.machine[id]; known {
		delete(l.machine, id)
		l.idle <- machine
	}
}

func hasEnded(o *baremetalv1.Operation) bool {
	switch o.GetPhase() {
	case baremetalv1.Operation_SUCCEEDED, baremetalv1.Operation_FAILED, baremetalv1.Operation_CANCELED:
		return true
	}
	return false
}

// follow tells of the ends of operations until ctx ends. A watch that breaks goes on where it was.
func (l *load) follow(ctx context.Context) error {
	for cursor := ""; ; {
		stream, err := baremetalv1.NewOperationServiceClient(l.b.Conn).WatchOperations(ctx,
			&baremetalv1.WatchOperationsRequest{Cursor: cursor})
		for err == nil {
			var e *baremetalv1.OperationEvent
			if e, err = stream.Recv(); err == nil {
				cursor = e.GetCursor()
				if hasEnded(e.GetSnapshot()) {
					l.end(e.GetSnapshot())
				}
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		benchrig.Say("the watch of operations ended, and goes on: %v", err)
		if err := benchrig.Pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

const (
	// askAfter is how long ends are waited for before they are asked for one by one: a watch tells nothing of what was
	// over when it began.
	askAfter = 5 * time.Second
	// endsWithin is how long the operations under way may take at the end.
	endsWithin = 3 * time.Minute
)

// finish waits until every operation has ended.
func (l *load) finish(ctx context.Context) error {
	began, asked := time.Now(), time.Now()
	for len(l.idle) < cap(l.idle) {
		if time.Since(asked) > askAfter {
			asked = time.Now()
			if err := l.ask(ctx); err != nil {
				return err
			}
		}
		if time.Since(began) > endsWithin {
			return fmt.Errorf("%d operations have not ended after %s", cap(l.idle)-len(l.idle), endsWithin)
		}
		if err := benchrig.Pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// ask looks at every operation that has not ended as far as we know.
func (l *load) ask(ctx context.Context) error {
	l.mu.Lock()
	open := slices.Collect(maps.Keys(l.machine))
	l.mu.Unlock()
	benchrig.Say("%d operations are under way", len(open))
	for _, id := range open {
		o, err := baremetalv1.NewOperationServiceClient(l.b.Conn).GetOperation(ctx,
			&baremetalv1.GetOperationRequest{OperationId: id})
		if err != nil {
			return fmt.Errorf("read operation %s: %w", id, err)
		}
		if hasEnded(o) {
			l.end(o)
		}
	}
	return nil
}

// watched runs fn while a watch tells of the ends of operations, and then waits for those that are under way.
func (l *load) watched(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch, _ := task.New(ctx)
	watch.Go("watch", l.follow)
	err := fn(ctx)
	if err == nil {
		err = l.finish(ctx)
	}
	cancel()
	if werr := watch.Wait(); err == nil {
		err = werr
	}
	return err
}

// probe works on one machine after the other, with nothing else going on.
func (l *load) probe(ctx context.Context, n int) (measure.Latency, error) {
	benchrig.Say("%d operations, one after the other", n)
	err := l.watched(ctx, func(ctx context.Context) error {
		for range n {
			if err := l.start(ctx); err != nil {
				return err
			}
			if err := benchrig.Pause(ctx, 50*time.Millisecond); err != nil {
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
		group, _ := task.New(ctx)
		began := time.Now()
		for client := range l.b.o.clients {
			group.Go("client", func(ctx context.Context) error { return l.client(ctx, client, rate, began, length) })
		}
		return group.Wait()
	})
	if err != nil {
		return measure.Latency{}, err
	}
	return l.latency()
}

// client starts every so manieth operation when it is due.
func (l *load) client(ctx context.Context, client int, rate float64, began time.Time, length time.Duration) error {
	for i := client; i < int(rate*length.Seconds()); i += l.b.o.clients {
		due := began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
		if err := benchrig.Pause(ctx, time.Until(due)); err != nil {
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
	clear(l.over)
	return measure.Percentiles(all), nil
}
