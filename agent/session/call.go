package session

import (
	"context"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
)

// callPoll is how often a call looks for a session.
const callPoll = 100 * time.Millisecond

// Call makes calls to the controller on the connection of the open session. Without one it waits until ctx ends. A
// session that ends in between fails the calls on it; the caller repeats.
func (r *Runner) Call(ctx context.Context, fn func(context.Context, fleetv1.AgentServiceClient) error) error {
	for {
		if s := r.current.Load(); s != nil {
			return fn(ctx, fleetv1.NewAgentServiceClient(s.conn))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-r.cfg.Clock.After(callPoll):
		}
	}
}
