package dispatch

import (
	"slices"
	"sync"
)

// targetQueue let one command at a time through per target, in the order of entry.
type targetQueue struct {
	mu    sync.Mutex
	queue map[string][]chan struct{}
}

func newTargetQueue() *targetQueue { return &targetQueue{queue: map[string][]chan struct{}{}} }

// enter queues up. turn is closed when the lane is free; leave releases the lane, or the place in the queue.
func (l *targetQueue) enter(target string) (turn <-chan struct{}, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mine := make(chan struct{})
	if len(l.queue[target]) == 0 {
		close(mine)
	}
	l.queue[target] = append(l.queue[target], mine)
	return mine, sync.OnceFunc(func() { l.release(target, mine) })
}

func (l *targetQueue) release(target string, mine chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queue[target]
	i := slices.Index(q, mine)
	q = slices.Delete(q, i, i+1)
	if len(q) == 0 {
		delete(l.queue, target)
		return
	}
	l.queue[target] = q
	if i == 0 {
		close(q[0])
	}
}
