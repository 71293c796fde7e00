package trial

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/lab/chaos/program"
)

// watcher follows the events of all operations. It comes back with the cursor of the last event that it received.
type watcher struct {
	mu     sync.Mutex
	events []*baremetalv1.OperationEvent
	times  []time.Time
	replay replay
}

func (w *watcher) add(e *baremetalv1.OperationEvent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.replay.knows(e) {
		return
	}
	w.events = append(w.events, e)
	w.times = append(w.times, time.Now())
}

// seen reports whether the end of an operation has come by.
func (w *watcher) seen(operation string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if s := e.GetSnapshot(); s.GetOperationId() == operation && s.GetPhase() >= baremetalv1.Operation_SUCCEEDED {
			return true
		}
	}
	return false
}

// take returns the events since the last take.
func (w *watcher) take() ([]*baremetalv1.OperationEvent, []time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e, t := w.events, w.times
	w.events, w.times = nil, nil
	return e, t
}

// again is the pause of readers after a failure, and of the reader of the cursor when there is nothing more.
const again = 60 * time.Millisecond

func (c *Trial) watchOperations(ctx context.Context) {
	cursor := ""
	for i := 0; ctx.Err() == nil; i++ {
		p := c.controllers[i%len(c.controllers)]
		stream, err := p.operations().WatchOperations(ctx,
			&baremetalv1.WatchOperationsRequest{Cursor: cursor, FromBeginning: cursor == ""})
		for err == nil {
			var e *baremetalv1.OperationEvent
			if e, err = stream.Recv(); err == nil {
				cursor = e.GetCursor()
				c.watch.add(e)
			}
		}
		if expired(err) {
			cursor = ""
			c.watch.again()
		}
		program.Rest(ctx, again)
	}
}

// follower follows the reconcile cursor.
type follower struct {
	// anew makes it begin once more amid the traffic, at the last time that an answer called safe: what changes meanwhile
	// must reach it nevertheless.
	anew atomic.Bool

	mu   sync.Mutex
	seen []sighted
	last map[string]*baremetalv1.Machine
}

type sighted struct {
	machine *baremetalv1.Machine
	at      time.Time
}

func (f *follower) add(list []*baremetalv1.Machine) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		f.last = map[string]*baremetalv1.Machine{}
	}
	for _, m := range list {
		f.seen = append(f.seen, sighted{m, time.Now()})
		f.last[m.GetMachineId()] = m
	}
}

// take returns the sightings since the last take, behind the machines as they were known before. It returns nothing
// while the reader has other versions than these.
func (f *follower) take(machines map[string]int64) ([]sighted, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, version := range machines {
		if f.last[id].GetVersion() != version {
			return nil, false
		}
	}
	return f.takeLocked(), true
}

func (f *follower) takeLocked() []sighted {
	out := f.seen
	f.seen = nil
	for _, m := range f.last {
		f.seen = append(f.seen, sighted{m, time.Now()})
	}
	return out
}

// takeAll is take, whatever the reader has.
func (f *follower) takeAll() []sighted {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.takeLocked()
}

func (c *Trial) followMachines(ctx context.Context) {
	next := &baremetalv1.ListMachinesRequest{PageSize: 100}
	var safe *timestamppb.Timestamp
	for i := 0; ctx.Err() == nil; i++ {
		if safe != nil && c.follow.anew.Swap(false) {
			next.Cursor, next.UpdatedSince = "", safe
		}
		p := c.controllers[i%len(c.controllers)]
		call, cancel := context.WithTimeout(ctx, callLimit)
		page, err := p.machines().ListMachines(call, next)
		cancel()
		if err == nil {
			next.Cursor, next.UpdatedSince = page.GetNextCursor(), nil
			c.follow.add(page.GetMachines())
		}
		if page.GetSafeUpdatedSince() != nil {
			safe = page.GetSafeUpdatedSince()
		}
		if expired(err) {
			next.Cursor, next.UpdatedSince = "", nil
		}
		if err != nil || !page.GetMore() {
			program.Rest(ctx, again)
		}
	}
}
