package engine

import (
	"context"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/controller/session"
	jobstore "github.com/ingot-metal/ingot/controller/store/job"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
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

// leases keeps this controller's lease and that of its jobs in Postgres.
type leases struct {
	common
	sessions *sessionstore.Store
	jobs     *jobstore.Store
	lease    *lease
	// written is when the database last stored this controller's lease of jobs.
	written lease
}

// renew stores in Postgres that this controller is alive. The lease counts from before the statement.
func (l *leases) renew(ctx context.Context) error {
	asked, now := l.lease.clock.Now(), l.clock.Now()
	if err := l.sessions.RenewLease(ctx, l.cfg.ControllerID, l.cfg.Version, now.Add(l.cfg.Lease), now); err != nil {
		return err
	}
	l.lease.renewedAt(asked)
	return nil
}

const (
	// keepControllers is for how long controllers are remembered that are gone: each start of one is another.
	keepControllers = 7 * 24 * time.Hour
	// forgetEvery is how often those are looked for that have been gone for longer.
	forgetEvery = 10 * time.Minute
)

// forgetControllers bounds how many controllers are remembered.
func (l *leases) forgetControllers(ctx context.Context) error {
	_, err := l.sessions.ForgetControllers(ctx, l.clock.Now().Add(-keepControllers))
	return err
}

func (l *leases) keep(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, l.cfg.Lease/3)
	defer cancel()
	return l.renew(limited)
}

// watchLease ends every session when the lease ends, whatever the renewal is waiting for.
func (l *leases) watchLease(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.clock.After(l.endLostLease()):
		}
	}
}

// endLostLease ends every session if the lease has ended, and returns when to look again.
func (l *leases) endLostLease() time.Duration {
	left := l.lease.left()
	if left > 0 {
		return left
	}
	if n := l.cfg.Sessions.Len(); n > 0 {
		l.log.Error("the lease is lost; closing all sessions", "sessions", n)
		l.cfg.Sessions.CloseAll(session.ErrLeaseLost)
	}
	return l.cfg.Lease / 6
}

// keepJobLease renews the lease under which this controller's jobs run.
func (l *leases) keepJobLease(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, jobLease)
	defer cancel()
	asked := l.lease.clock.Now()
	if err := l.jobs.RenewJobLease(limited, l.cfg.ControllerID, jobLease); err != nil {
		return err
	}
	l.written.renewedAt(asked)
	return nil
}

// writes reports whether the database has stored something of this controller in the last four seconds: one that
// answers reads may refuse writes.
func (l *leases) writes() bool { return l.written.age() < mostUnwritten }
