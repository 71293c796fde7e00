package ratelimit

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// Queue hands out the turns of handshakes.
type Queue struct {
	mu     sync.Mutex
	free   int
	byTurn bool
	// lines hold the waiting connections by address; order has the lines, the next one first.
	lines map[netip.Addr]*line
	order list.List
}

// line holds a chan struct{} for each waiting connection of an address, the newest at the back. It is closed with the
// connection's turn.
type line struct {
	address netip.Addr
	waiting list.List
	place   *list.Element
}

// NewQueue returns a queue of n turns, of which the newest connection gets the next. It is for listeners that end old
// connections for new ones: the connection that has waited longest is about to end.
func NewQueue(n int) *Queue { return &Queue{free: n, lines: map[netip.Addr]*line{}} }

// NewFairQueue returns a queue of n turns that go to one address after the other, and within an address in the order of
// arrival. It is for listeners that refuse new connections while many wait: each that waits is served before its agent
// gives up, and no address can take the turns of the others.
func NewFairQueue(n int) *Queue {
	q := NewQueue(n)
	q.byTurn = true
	return q
}

// acquire waits for a turn, which must be given back. It reports whether the turn came in time, before the wait was
// given up.
func (t *Queue) acquire(address netip.Addr, limit time.Duration, givenUp <-chan struct{}) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	mine := make(chan struct{})
	l := t.lineOf(address)
	place := l.waiting.PushBack(mine)
	t.mu.Unlock()

	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-mine:
		return true
	case <-timer.C:
	case <-givenUp:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-mine:
		return true // at this moment
	default:
		t.leave(l, place)
		return false
	}
}

// lineOf returns the line of an address. Without turns for addresses all connections are in one.
func (t *Queue) lineOf(address netip.Addr) *line {
	if !t.byTurn {
		address = netip.Addr{}
	}
	l := t.lines[address]
	if l == nil {
		l = &line{address: address}
		l.place = t.order.PushBack(l)
		t.lines[address] = l
	}
	return l
}

// leave takes a connection out of its line.
func (t *Queue) leave(l *line, place *list.Element) {
	l.waiting.Remove(place)
	if l.waiting.Len() == 0 {
		t.order.Remove(l.place)
		delete(t.lines, l.address)
	}
}

// release hands a turn on.
func (t *Queue) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	first := t.order.Front()
	if first == nil {
		t.free++
		return
	}
	l, ok := first.Value.(*line)
	if !ok {
		panic("ratelimit: the order of lines holds something else")
	}
	next := l.waiting.Back()
	if t.byTurn {
		next = l.waiting.Front()
		t.order.MoveToBack(first)
	}
	mine, ok := next.Value.(chan struct{})
	if !ok {
		panic("ratelimit: something else waits for a turn")
	}
	t.leave(l, next)
	close(mine)
}
