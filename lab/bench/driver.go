package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/benchrig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// driver starts operations as a client does, and hears of their ends by one watch for all of them.
type driver struct {
	g      *rig
	kind   string
	by     workers
	idle   chan string // machines with nothing to do
	cancel context.CancelFunc
	group  *task.Group

	mu      sync.Mutex
	waiting map[string]chan baremetalv1.Operation_Phase
	ended   map[string]baremetalv1.Operation_Phase // ends that came before anybody waited
}

// workers are the agents of the machines under load.
type workers struct {
	machines []string
	// processes are the ids of those that are processes of their own.
	processes []int
	// gone is closed when one has ended that should not have, and why says what it said.
	gone <-chan struct{}
	why  func() string
	// received takes when the command of an operation was received; nil where nobody knows.
	received func(operationID string) (time.Time, bool)
}

func newDriver(ctx context.Context, g *rig, kind string, by workers) (*driver, error) {
	d := &driver{
		g: g, kind: kind, by: by, idle: make(chan string, len(by.machines)),
		waiting: map[string]chan baremetalv1.Operation_Phase{}, ended: map[string]baremetalv1.Operation_Phase{},
	}
	for _, m := range by.machines {
		d.idle <- m
	}
	watchCtx, cancel := context.WithCancel(ctx)
	d.cancel = cancel
	stream, err := baremetalv1.NewOperationServiceClient(g.Conn).WatchOperations(watchCtx,
		&baremetalv1.WatchOperationsRequest{})
	if err != nil {
		cancel()
		return nil, err
	}
	d.group, _ = task.New(watchCtx)
	d.group.Go("watch", func(context.Context) error { return d.watch(stream.Recv) })
	return d, nil
}

func (d *driver) stop() {
	d.cancel()
	// The watch ends with the cancellation; whatever else it had to say was said to those who waited.
	_ = d.group.Wait()
}

func (d *driver) watch(recv func() (*baremetalv1.OperationEvent, error)) error {
	for {
		e, err := recv()
		if err != nil {
			return err
		}
		switch p := e.GetSnapshot().GetPhase(); p {
		case baremetalv1.Operation_SUCCEEDED, baremetalv1.Operation_FAILED, baremetalv1.Operation_CANCELED:
			d.end(e.GetSnapshot().GetOperationId(), p)
		}
	}
}

func (d *driver) end(id string, p baremetalv1.Operation_Phase) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ch, ok := d.waiting[id]; ok {
		delete(d.waiting, id)
		ch <- p
		return
	}
	d.ended[id] = p
}

func (d *driver) await(ctx context.Context, id string) (baremetalv1.Operation_Phase, error) {
	ch := make(chan baremetalv1.Operation_Phase, 1)
	d.mu.Lock()
	if p, ok := d.ended[id]; ok {
		delete(d.ended, id)
		ch <- p
	} else {
		d.waiting[id] = ch
	}
	d.mu.Unlock()
	select {
	case p := <-ch:
		return p, nil
	case <-d.by.gone:
		return 0, fmt.Errorf("an agent ended: %s", d.by.why())
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// ran is one operation that has ended.
type ran struct {
	total, dispatch time.Duration
	succeeded       bool
}

// operate takes an idle machine and runs one operation on it. Dispatch counts from the time that the controller gave
// the operation when it admitted the request, before it stored anything.
func (d *driver) operate(ctx context.Context) (r ran, err error) {
	var machine string
	select {
	case machine = <-d.idle:
	case <-ctx.Done():
		return r, ctx.Err()
	}
	defer func() { d.idle <- machine }()
	began := time.Now()
	op, err := d.begin(ctx, machine)
	if err != nil {
		return r, fmt.Errorf("%s %s: %w", d.kind, machine, err)
	}
	phase, err := d.await(ctx, op.GetOperationId())
	if err != nil {
		return r, fmt.Errorf("wait for the %s of %s: %w", d.kind, machine, err)
	}
	r.total, r.succeeded = time.Since(began), phase == baremetalv1.Operation_SUCCEEDED
	if d.by.received == nil {
		return r, nil
	}
	received, ok := d.by.received(op.GetOperationId())
	if !ok {
		return r, errors.New("an operation ended whose command no agent has logged as received: has the line changed?")
	}
	r.dispatch = received.Sub(op.GetCreatedAt().AsTime())
	return r, nil
}

// The kinds of operations that the load can be of. All have one step, and all need a grant.
const (
	kindReboot = "reboot"
	// kindNetboot sets what the next boot is from. Unlike a reboot it leaves the agent its session.
	kindNetboot = "netboot"
)

// begin asks for one operation.
func (d *driver) begin(ctx context.Context, machine string) (*baremetalv1.Operation, error) {
	id := ids.New(ids.Session)
	if d.kind == kindReboot {
		return d.g.machines().RebootMachine(ctx, &baremetalv1.RebootMachineRequest{MachineId: machine, RequestId: id})
	}
	return d.g.machines().NetbootMachine(ctx, &baremetalv1.NetbootMachineRequest{MachineId: machine, RequestId: id})
}

// probe works on one machine after the other, with nothing else going on.
func (d *driver) probe(ctx context.Context, n int) (measure.Latency, error) {
	benchrig.Say("idle system: %d operations (%s), one after the other", n, d.kind)
	var all []time.Duration
	for range n {
		r, err := d.operate(ctx)
		if err != nil {
			return measure.Latency{}, err
		}
		all = append(all, r.dispatch)
		if err := benchrig.Pause(ctx, 50*time.Millisecond); err != nil {
			return measure.Latency{}, err
		}
	}
	return measure.Percentiles(all), nil
}

// loadResult is what the clients saw.
type loadResult struct {
	took            time.Duration
	done, failed    int
	total, dispatch []time.Duration
	machines        int
}

// drive lets clients operate on machines for a time, and waits for what they have started.
func (d *driver) drive(ctx context.Context, clients int, length time.Duration) (loadResult, error) {
	l := loadResult{machines: cap(d.idle)}
	var mu sync.Mutex
	began := time.Now()
	group, _ := task.New(ctx)
	for range clients {
		group.Go("client", func(ctx context.Context) error {
			for time.Since(began) < length {
				r, err := d.operate(ctx)
				if err != nil {
					return err
				}
				mu.Lock()
				l.add(r)
				mu.Unlock()
			}
			return nil
		})
	}
	err := group.Wait()
	l.took = time.Since(began)
	return l, err
}

func (l *loadResult) add(r ran) {
	l.done++
	if !r.succeeded {
		l.failed++
	}
	l.total = append(l.total, r.total)
	l.dispatch = append(l.dispatch, r.dispatch)
}

func (l *loadResult) report() throughput {
	return throughput{
		PerSecond: float64(l.done-l.failed) / l.took.Seconds(), Done: l.done, Failed: l.failed, Agents: l.machines,
		Total: measure.Percentiles(l.total), Dispatch: measure.Percentiles(l.dispatch),
	}
}
