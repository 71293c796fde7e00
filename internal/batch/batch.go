// Package batch does work together that comes while other work is being done.
package batch

import (
	"context"
	"sync"

	"github.com/ingot-metal/ingot/internal/task"
)

// Group collects the entries that come while it is busy for the next call of Serve, in their order. An entry that comes
// while it is idle is served at once. It is ready with Serve set, and safe for concurrent use.
type Group[T any] struct {
	// Serve does the work. It is called by one goroutine at a time.
	Serve func([]T)
	// Most bounds the work of one call; 0 means no bound.
	Most int

	mu      sync.Mutex
	running bool
	waiting []entry[T]
}

type entry[T any] struct {
	work T
	done chan error
}

// Do returns when the work was served, with an error where Serve has panicked.
func (g *Group[T]) Do(work T) error {
	e := entry[T]{work, make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, e)
	first := !g.running
	g.running = true
	g.mu.Unlock()
	if first {
		g.serve(g.take())
		if next := g.take(); next != nil {
			// The first one does not wait for those behind it.
			task.Background("serve a batch", func() {
				for ; next != nil; next = g.take() {
					g.serve(next)
				}
			})
		}
	}
	return <-e.done
}

// Waiting returns how much work waits for the next call.
func (g *Group[T]) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

// take returns the waiting entries. After nil no goroutine serves any more.
func (g *Group[T]) take() []entry[T] {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.waiting)
	if g.Most > 0 {
		n = min(n, g.Most)
	}
	if n == 0 {
		g.running = false
		return nil
	}
	taken := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	return taken
}

func (g *Group[T]) serve(list []entry[T]) {
	work := make([]T, len(list))
	for i, e := range list {
		work[i] = e.work
	}
	err := task.Run(context.Background(), "serve a batch", func(context.Context) error {
		g.Serve(work)
		return nil
	})
	for _, e := range list {
		e.done <- err
	}
}
