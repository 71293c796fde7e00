package agents

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/ids"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/lab/bench/rig"
	"github.com/ingot-metal/ingot/lab/measure"
)

// driver starts operations as a client does, and learns of their ends by one watch for all of them.
type driver struct {
	machines   baremetalv1.MachineServiceClient
	operations baremetalv1.OperationServiceClient
	kind       string
	idle       chan string // machines without an operation
	// failed is closed when agents have ended that should not have; nil where that shows elsewhere.
	failed <-chan struct{}
	// receipts returns when the commands of operations arrived, and forgets them; nil where agents don't record it.
	receipts func() (map[string]time.Time, error)
	cancel   context.CancelFunc
	group    *task.Group

	mu      sync.Mutex
	waiting map[string]chan *baremetalv1.Operation
	ended   map[string]*baremetalv1.Operation // ends that came before anything waited for them
	last    string                            // the operation that was started last
}

// newDriver makes a driver for the machines, all of which are idle.
func (b *bench) newDriver(ctx context.Context, machines []string) *driver {
	d := &driver{
		machines: baremetalv1.NewMachineServiceClient(b.Conn), operations: baremetalv1.NewOperationServiceClient(b.Conn),
		kind: b.o.kind, idle: make(chan string, len(machines)), waiting: map[string]chan *baremetalv1.Operation{},
		ended: map[string]*baremetalv1.Operation{},
	}
	for _, m := range machines {
		d.idle <- m
	}
	ctx, d.cancel = context.WithCancel(ctx)
	d.group, _ = task.New(ctx)
	d.group.Go("watch", d.watch)
	return d
}

func (d *driver) stop() {
	d.cancel()
	_ = d.group.Wait() // the watch ends with the cancellation
}

// watch records the ends of operations until ctx ends. A watch that breaks continues where it was.
func (d *driver) watch(ctx context.Context) error {
	for cursor := ""; ; {
		stream, err := d.operations.WatchOperations(ctx, &baremetalv1.WatchOperationsRequest{Cursor: cursor})
		for err == nil {
			var e *baremetalv1.OperationEvent
			if e, err = stream.Recv(); err == nil {
				cursor = e.GetCursor()
				d.end(e.GetSnapshot())
			}
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		rig.Say("the watch of operations ended, and goes on: %v", err)
		if err := rig.Pause(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

func hasEnded(o *baremetalv1.Operation) bool {
	switch o.GetPhase() {
	case baremetalv1.Operation_SUCCEEDED, baremetalv1.Operation_FAILED, baremetalv1.Operation_CANCELED:
		return true
	}
	return false
}

func (d *driver) end(o *baremetalv1.Operation) {
	if !hasEnded(o) {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if ch, ok := d.waiting[o.GetOperationId()]; ok {
		delete(d.waiting, o.GetOperationId())
		ch <- o
		return
	}
	d.ended[o.GetOperationId()] = o
}

const (
	// askAfter is how long an end is waited for before the operation is read: a watch sends nothing of an operation that
	// was over when the watch began.
	askAfter = 5 * time.Second
	// endsWithin is how long an operation may take.
	endsWithin = 3 * time.Minute
)

// await returns the operation as it is at its end.
func (d *driver) await(ctx context.Context, id string) (*baremetalv1.Operation, error) {
	ctx, cancel := context.WithTimeout(ctx, endsWithin)
	defer cancel()
	ch := make(chan *baremetalv1.Operation, 1)
	d.mu.Lock()
	if o, ok := d.ended[id]; ok {
		delete(d.ended, id)
		ch <- o
	} else {
		d.waiting[id] = ch
	}
	d.mu.Unlock()
	for {
		select {
		case o := <-ch:
			return o, nil
		case <-d.failed:
			return nil, errors.New("an agent has ended")
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(askAfter):
			o, err := d.operations.GetOperation(ctx, &baremetalv1.GetOperationRequest{OperationId: id})
			if err != nil {
				return nil, err
			}
			d.end(o)
		}
	}
}

// some returns an operation, one that is under way where there is one.
func (d *driver) some() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range d.waiting {
		return id
	}
	return d.last
}

// start takes an idle machine and starts an operation on it.
func (d *driver) start(ctx context.Context) (o *baremetalv1.Operation, err error) {
	var machine string
	select {
	case machine = <-d.idle:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	id := ids.New(ids.Session)
	if d.kind == kindReboot {
		o, err = d.machines.RebootMachine(ctx, &baremetalv1.RebootMachineRequest{MachineId: machine, RequestId: id})
	} else {
		o, err = d.machines.NetbootMachine(ctx, &baremetalv1.NetbootMachineRequest{MachineId: machine, RequestId: id})
	}
	if err != nil {
		d.idle <- machine
		return nil, fmt.Errorf("%s %s: %w", d.kind, machine, err)
	}
	d.mu.Lock()
	d.last = o.GetOperationId()
	d.mu.Unlock()
	return o, nil
}

// load is what the clients saw. Dispatch counts from the time that the controller gave the operation when it admitted
// the request, before it stored anything.
type load struct {
	mu      sync.Mutex
	began   time.Time
	took    time.Duration
	total   []time.Duration
	created map[string]time.Time // of operations that succeeded
	started, failed,
	refused int
}

func newLoad() *load { return &load{began: time.Now(), created: map[string]time.Time{}} }

// finish waits for the end of an operation and frees its machine.
func (d *driver) finish(ctx context.Context, l *load, o *baremetalv1.Operation, began time.Time) error {
	end, err := d.await(ctx, o.GetOperationId())
	if err != nil {
		return fmt.Errorf("wait for %s of %s: %w", o.GetOperationId(), o.GetMachineId(), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total = append(l.total, time.Since(began))
	if end.GetPhase() == baremetalv1.Operation_SUCCEEDED {
		l.created[o.GetOperationId()] = o.GetCreatedAt().AsTime()
	} else {
		l.failed++
	}
	d.idle <- o.GetMachineId()
	return nil
}

// one runs one operation from its request to its end.
func (d *driver) one(ctx context.Context, l *load) error {
	began := time.Now()
	o, err := d.start(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.started++
	l.mu.Unlock()
	return d.finish(ctx, l, o, began)
}

// probe runs n operations, one after the other, with nothing else going on.
func (d *driver) probe(ctx context.Context, n int) (measure.Latency, error) {
	rig.Say("idle system: %d operations (%s), one after the other", n, d.kind)
	l := newLoad()
	for range n {
		if err := errors.Join(d.one(ctx, l), rig.Pause(ctx, 50*time.Millisecond)); err != nil {
			return measure.Latency{}, err
		}
	}
	return d.dispatch(l)
}

// drive makes each client run one operation after the other for a time, and waits for those that were started.
func (d *driver) drive(ctx context.Context, clients int, length time.Duration) (*load, error) {
	l := newLoad()
	group, _ := task.New(ctx)
	for range clients {
		group.Go("client", func(ctx context.Context) error {
			for time.Since(l.began) < length {
				if err := d.one(ctx, l); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	l.took = time.Since(l.began)
	return l, err
}

// mostRefused is how many refusals are borne, in a hundredth of the operations that were started.
const mostRefused = 5

// pace starts operations at a rate, without waiting for their ends. So many calls are under way at most; a client that
// falls behind starts at once each operation that is due.
func (d *driver) pace(ctx context.Context, rate float64, clients int, length time.Duration) (*load, error) {
	l := newLoad()
	group, _ := task.New(ctx)
	for first := range clients {
		group.Go("client", func(ctx context.Context) error {
			for i := first; ; i += clients {
				due := l.began.Add(time.Duration(float64(i) / rate * float64(time.Second)))
				if err := rig.Pause(ctx, time.Until(due)); err != nil || time.Since(l.began) > length {
					return err
				}
				began := time.Now()
				o, err := d.start(ctx)
				if err := l.count(ctx, err); err != nil {
					return err
				}
				if o != nil {
					group.Go("operation", func(ctx context.Context) error { return d.finish(ctx, l, o, began) })
				}
			}
		})
	}
	err := group.Wait()
	l.took = time.Since(l.began)
	return l, err
}

// count records a start. It returns the error of a refusal when there were too many.
func (l *load) count(ctx context.Context, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.started++
		return nil
	}
	l.refused++
	rig.Say("refused: %v", err)
	if ctx.Err() != nil || l.refused*100 > (l.started+100)*mostRefused {
		return err
	}
	return nil
}

// dispatch compares when operations were created with when their commands arrived.
func (d *driver) dispatch(l *load) (measure.Latency, error) {
	if d.receipts == nil {
		return measure.Latency{}, nil
	}
	receipts, err := d.receipts()
	if err != nil {
		return measure.Latency{}, err
	}
	all := make([]time.Duration, 0, len(l.created))
	for id, created := range l.created {
		at, ok := receipts[id]
		if !ok {
			return measure.Latency{}, fmt.Errorf("no agent has logged the command of %s as received: has the line changed?", id)
		}
		all = append(all, at.Sub(created))
	}
	return measure.Percentiles(all), nil
}
