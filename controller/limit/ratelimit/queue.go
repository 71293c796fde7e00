package ratelimit

import (
	"container/list"
	"sync"
	"time"
)

// Queue hands out the turns of handshakes.
type Queue struct {
	mu      sync.Mutex
	free    int
	inOrder bool
	// waiting holds a chan struct{} for each connection, the newest at the back. It is closed with the connection's turn.
	waiting list.List
}

// NewQueue returns a queue of n turns, of which the newest connection gets the next. It is for listeners that end old
// connections for new ones: the connection that has waited longest is about to end.
func NewQueue(n int) *Queue { return &Queue{free: n} }

// NewOrderedQueue returns a queue of n turns in the order of arrival. It is for listeners that refuse new connections
// while many wait: each that waits is served before its agent gives up.
func NewOrderedQueue(n int) *Queue { return &Queue{free: n, inOrder: true} }

// acquire waits for a place, which must be given back, and reports whether there was one in time, before the wait was
// given up.
func (t *Queue) acquire(limit time.Duration, givenUp <-chan struct{}) bool {
	t.mu.Lock()
	if t.free > 0 {
		t.free--
		t.mu.Unlock()
		return true
	}
	mine := make(chan struct{})
	place := t.waiting.PushBack(mine)
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
		t.waiting.Remove(place)
		return false
	}
}

// release hands a place on.
func (t *Queue) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := t.waiting.Back()
	if t.inOrder {
		next = t.waiting.Front()
	}
	if next == nil {
		t.free++
		return
	}
	mine, ok := t.waiting.Remove(next).(chan struct{})
	if !ok {
		panic("ratelimit: something else waits for a turn")
	}
	close(mine)
}
