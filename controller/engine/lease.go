package engine

import (
	"context"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
)

// lease is this controller's life sign in Postgres, judged by the monotonic clock.
type lease struct {
	length time.Duration
	clock  clock.Clock

	mu      sync.Mutex
	renewed time.Time
}

// Fresh reports whether commands and grants may be sent: the lease was renewed within half of its length.
func (l *lease) Fresh() bool { return l.age() < l.length/2 }

// left is the time until others may take over; not above 0 when they may.
func (l *lease) left() time.Duration { return l.length - l.age() }

func (l *lease) age() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renewed.IsZero() {
		return l.length
	}
	return l.clock.Now().Sub(l.renewed)
}

func (l *lease) renewedAt(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewed = t
}

// RenewLease says in Postgres that this controller is alive. The lease counts from before the statement.
func (e *Engine) RenewLease(ctx context.Context) error {
	asked, now := e.lease.clock.Now(), e.clock.Now()
	if err := e.store.Sessions.RenewLease(ctx, e.cfg.ControllerID, e.cfg.Version, now.Add(e.cfg.Lease), now); err != nil {
		return err
	}
	e.lease.renewedAt(asked)
	return nil
}

// Peers counts the other controllers that are alive.
func (e *Engine) Peers() int { return int(e.peers.Load()) }

// LeaseFresh reports whether this controller may send commands and grants.
func (e *Engine) LeaseFresh() bool { return e.lease.Fresh() }

const (
	// keepControllers is for how long controllers are remembered that are gone: each start of one is another.
	keepControllers = 7 * 24 * time.Hour
	// forgetEvery is how often those are looked for that have been gone for longer.
	forgetEvery = 10 * time.Minute
)

// forgetControllers bounds how many controllers are remembered.
func (e *Engine) forgetControllers(ctx context.Context) error {
	_, err := e.store.Sessions.ForgetControllers(ctx, e.clock.Now().Add(-keepControllers))
	return err
}
