package session

import (
	"context"
	"sync"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
)

// outbox is a queue without a bound: what goes in is bounded by the number of commands, and the dispatcher
// must never wait for the network.
type outbox struct {
	mu    sync.Mutex
	queue []*fleetv1.AgentMessage
	wake  chan struct{}
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// Send queues m.
func (l *outbox) Send(m *fleetv1.AgentMessage) {
	l.mu.Lock()
	l.queue = append(l.queue, m)
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

func (l *outbox) take() []*fleetv1.AgentMessage {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.queue
	l.queue = nil
	return out
}

// pump sends the queued messages until ctx ends.
func (l *outbox) pump(ctx context.Context, send func(*fleetv1.AgentMessage) error) error {
	for {
		for _, m := range l.take() {
			if err := send(m); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.wake:
		}
	}
}
