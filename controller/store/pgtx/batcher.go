package pgtx

import (
	"context"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/internal/task"
)

// Batcher answers many questions at once. A question that comes while others are being answered waits and goes with the
// next lot; one that comes alone is answered at once. The zero value with Batch set is ready.
type Batcher[In, Out any] struct {
	// Batch answers a lot, in its order. Its context is of no caller.
	Batch func(context.Context, []In) ([]Out, error)
	// Enough is the number of waiting questions that begin a further lot beside one under way; 0 means 1.
	Enough int
	// Patience is the time after which a lot under way no longer keeps the next one waiting; 0 has no end.
	Patience time.Duration

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
	// lotsAtOnce bounds the lots under way side by side, lotMost the questions of one, and lotTime the time that one
	// takes.
	lotsAtOnce = 2
	lotMost    = 64
	lotTime    = 30 * time.Second
)

// Do returns the answer to one question. When ctx ends first, what was asked may still be done.
func (g *Batcher[In, Out]) Do(ctx context.Context, in In) (out Out, err error) {
	a := asked[In, Out]{in, make(chan answered[Out], 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, a)
	start := g.running == 0 || g.running < lotsAtOnce && len(g.waiting) >= g.Enough
	if start {
		g.running++
	}
	g.mu.Unlock()
	if start {
		task.Background("answer lots", g.serve)
	}
	select {
	case r := <-a.answer:
		return r.out, r.err
	case <-ctx.Done():
		return out, ctx.Err()
	}
}

// serve answers lots until none waits, or another server will take what does.
func (g *Batcher[In, Out]) serve() {
	for lot := g.next(); lot != nil; lot = g.next() {
		if !g.answerInTime(lot) {
			return
		}
	}
}

// next takes a lot off the queue. With nil this server counts as gone.
func (g *Batcher[In, Out]) next() []asked[In, Out] {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), lotMost)
	if n == 0 || g.running > 1 && n < g.Enough {
		g.running--
		return nil
	}
	lot := g.waiting[:n:n]
	if g.waiting = g.waiting[n:]; len(g.waiting) == 0 {
		g.waiting = nil
	}
	return lot
}

// answerInTime answers a lot. It returns false where that took so long that this server counts as gone already.
func (g *Batcher[In, Out]) answerInTime(lot []asked[In, Out]) bool {
	if g.Patience == 0 {
		g.answer(lot)
		return true
	}
	late := time.AfterFunc(g.Patience, func() {
		// This server's place is another's, which takes what waits.
		task.Background("answer lots", g.serve)
	})
	g.answer(lot)
	return late.Stop()
}

func (g *Batcher[In, Out]) answer(lot []asked[In, Out]) {
	ins := make([]In, len(lot))
	for i, a := range lot {
		ins[i] = a.in
	}
	ctx, cancel := context.WithTimeout(context.Background(), lotTime)
	defer cancel()
	var outs []Out
	err := task.Run(ctx, "answer a lot", func(ctx context.Context) (err error) {
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
