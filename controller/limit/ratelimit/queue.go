package ratelimit

import (
	"container/list"
	"sync"
	"time"
)

// Queue are places to compute handshakes in, of which the newest who waits is given the next. Where more connections
// come than can be served, the one that has waited longest is about to go away: in order of arrival hardly one would
// get through.
type Queue struct {
	mu   sync.Mutex
	free int
	// waiting holds a chan struct{} for each, the newest at the back, that is closed when it has a place.
	waiting list.List
}

// NewQueue makes so many places.
func NewQueue(n int) *Queue { return &Queue{free: n} }

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
	newest := t.waiting.Back()
	if newest == nil {
		t.free++
		return
	}
	mine, ok := t.waiting.Remove(newest).(chan struct{})
	if !ok {
		panic("ratelimit: something else waits for a turn")
	}
	close(mine)
}
