package agent

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/controller/limit/reconnect"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

// turnMost is how long a hello waits for its turn. An agent waits for three times as long to be welcomed.
const turnMost = 10 * time.Second

// sessionLimit lets agents in as fast as sessions can be opened. A number of them waits for its turn, in the order in
// which they came: an agent that has shaken hands has cost the most already, and would cost as much again.
type sessionLimit struct {
	limits reconnect.Limits
	clock  clock.Clock

	mu      sync.Mutex
	state   reconnect.State
	waiting []chan struct{} // closed when it is their turn
	timed   bool            // a timer tries again when the rate has room
}

// enter admits a hello when it is its turn, or returns when to try again. An admitted one must leave.
func (g *sessionLimit) enter(ctx context.Context) error {
	turn, err := g.ask()
	if turn == nil {
		return err
	}
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	case <-g.clock.After(turnMost):
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, turn)
	if i < 0 {
		return nil // its turn has come at this moment
	}
	g.waiting = slices.Delete(g.waiting, i, i+1)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return g.refuse()
}

// ask returns the turn to wait for; nil when it is now, or not before the agent comes again.
func (g *sessionLimit) ask() (turn chan struct{}, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.waiting) == 0 {
		var ok bool
		if g.state, ok = reconnect.Admit(g.limits, g.state, g.clock.Now()); ok {
			return nil, nil
		}
	}
	if len(g.waiting) >= g.limits.Waiting {
		return nil, g.refuse()
	}
	turn = make(chan struct{})
	g.waiting = append(g.waiting, turn)
	g.call()
	return turn, nil
}

func (g *sessionLimit) refuse() error {
	var v reconnect.Verdict
	g.state, v = reconnect.Refuse(g.limits, g.state, g.clock.Now(), rand.Float64())
	return failure.Exhausted("ADMISSION_PACED",
		"many agents connect at once; this one is told when to try again").WithRetry(v.RetryAfter)
}

// call admits waiting hellos, as many as there is room for.
func (g *sessionLimit) call() {
	for len(g.waiting) > 0 {
		var ok bool
		if g.state, ok = reconnect.Admit(g.limits, g.state, g.clock.Now()); !ok {
			break
		}
		close(g.waiting[0])
		g.waiting = g.waiting[1:]
	}
	if len(g.waiting) == 0 {
		g.waiting = nil
		return
	}
	if room := reconnect.Room(g.limits, g.state); room > 0 && !g.timed {
		g.timed = true
		after := g.clock.After(room)
		task.Background("call who waits", func() {
			<-after
			g.mu.Lock()
			defer g.mu.Unlock()
			g.timed = false
			g.call()
		})
	}
}

func (g *sessionLimit) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state = reconnect.Opened(g.state)
	g.call()
}

// retryDelay is how long an agent must wait before it looks for another controller, where this one stops.
func retryDelay() time.Duration { return 100*time.Millisecond + rand.N(400*time.Millisecond) }

func draining() error {
	return failure.Unavailable("CONTROLLER_DRAINING", "this controller is shutting down").WithRetry(retryDelay())
}
