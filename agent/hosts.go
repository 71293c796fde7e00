package agent

import (
	"context"
	"errors"
	"time"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/internal/clock"
)

// RealHost is the machine that this process runs on.
func RealHost(cfg host.Config) HostFactory {
	h := host.New(cfg)
	return func(context.Context, func()) (host.Host, func() error, error) {
		return h, func() error { return nil }, nil
	}
}

// offPoll is how often a simulated machine that is off is looked at.
const offPoll = 200 * time.Millisecond

// SimulatedHost is a machine of a simulated world. While it is off there is no boot for the agent to live in.
func SimulatedHost(w *sim.World, machineID string, poll time.Duration) HostFactory {
	return func(ctx context.Context, down func()) (host.Host, func() error, error) {
		for {
			h, err := w.Host(machineID, down, poll)
			if err == nil {
				return h, h.Close, nil
			}
			if !errors.Is(err, sim.ErrDown) {
				return nil, nil, err
			}
			select {
			case <-ctx.Done():
				return nil, nil, context.Cause(ctx)
			case <-clock.Real().After(offPoll):
			}
		}
	}
}
