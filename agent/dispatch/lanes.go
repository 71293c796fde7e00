package dispatch

import (
	"slices"
	"sync"
)

// lanes let one command at a time through per target, in the order of entry.
type lanes struct {
	mu    sync.Mutex
	queue map[string][]chan struct{}
}

func newLanes() *lanes { return &lanes{queue: map[string][]chan struct{}{}} }

// enter queues up. turn is closed when the lane is free; leave gives it up, or the place in the queue.
func (l *lanes) enter(target string) (turn <-chan struct{}, leave func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	mine := make(chan struct{})
	if len(l.queue[target]) == 0 {
		close(mine)
	}
	l.queue[target] = append(l.queue[target], mine)
	return mine, sync.OnceFunc(func() { l.leave(target, mine) })
}

func (l *lanes) leave(target string, mine chan struct{}) {
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
