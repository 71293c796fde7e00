package fleetapi

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/controller/pacing"
	"github.com/ingot-metal/ingot/internal/failure"
)

// gate lets agents in as fast as sessions can be opened.
type gate struct {
	limits pacing.Limits

	mu    sync.Mutex
	state pacing.State
}

// enter takes a hello, which must leave again, or says when to try again.
func (g *gate) enter(now time.Time) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var v pacing.Verdict
	if g.state, v = pacing.Decide(g.limits, g.state, now, rand.Float64()); !v.Admit {
		return failure.Exhausted("ADMISSION_PACED", "many agents connect at once; this one is told when to try again").WithRetry(v.RetryAfter)
	}
	return nil
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state = pacing.Opened(g.state)
}

// away is how long an agent is told to wait before it looks for another controller, where this one stops.
func away() time.Duration { return 100*time.Millisecond + rand.N(400*time.Millisecond) }

func draining() error {
	return failure.Unavailable("CONTROLLER_DRAINING", "this controller is shutting down").WithRetry(away())
}
