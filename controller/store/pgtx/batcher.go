package pgtx

import (
	"context"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
)

// Batcher asks the database for many at once. Whoever comes while it is being asked waits and goes with the next lot;
// one that comes alone is served at once. The zero value, with fn set, is ready.
type Batcher[In, Out any] struct {
	// Batch answers a lot, in its order. It belongs to no caller.
	Batch func(context.Context, []In) ([]Out, error)

	mu      sync.Mutex
	running int
	waiting []asked[In, Out]
}

type asked[In, Out any] struct {
	in     In
	answer chan answered[Out]
}

type answered[Out any] struct {
	out Out
	err error
}

const (
	// lotsAtOnce is how many lots are under way side by side, lotMost bounds one, and lotTime is how long one may take.
	lotsAtOnce = 2
	lotMost    = 64
	lotTime    = 30 * time.Second
)

// Do gives one answer. When ctx ends first, what was asked may still be done.
func (g *Batcher[In, Out]) Do(ctx context.Context, in In) (out Out, err error) {
	a := asked[In, Out]{in, make(chan answered[Out], 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, a)
	start := g.running < lotsAtOnce
	if start {
		g.running++
	}
	g.mu.Unlock()
	if start {
		task.Background("ask for many", g.serve)
	}
	select {
	case r := <-a.answer:
		return r.out, r.err
	case <-ctx.Done():
		return out, ctx.Err()
	}
}

// serve answers lots until nobody waits.
func (g *Batcher[In, Out]) serve() {
	for {
		lot := g.next()
		if lot == nil {
			return
		}
		g.answer(lot)
	}
}

// next takes a lot off the queue; nil when there is none, and then this server counts as gone.
func (g *Batcher[In, Out]) next() []asked[In, Out] {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), lotMost)
	if n == 0 {
		g.running--
		return nil
	}
	lot := g.waiting[:n:n]
	if g.waiting = g.waiting[n:]; len(g.waiting) == 0 {
		g.waiting = nil
	}
	return lot
}

func (g *Batcher[In, Out]) answer(lot []asked[In, Out]) {
	ins := make([]In, len(lot))
	for i, a := range lot {
		ins[i] = a.in
	}
	ctx, cancel := context.WithTimeout(context.Background(), lotTime)
	defer cancel()
	var outs []Out
	err := task.Run(ctx, "answer many", func(ctx context.Context) (err error) {
		outs, err = g.Batch(ctx, ins)
		return err
	})
	for i, a := range lot {
		r := answered[Out]{err: err}
		if err == nil {
			r.out = outs[i]
		}
		a.answer <- r
	}
}
