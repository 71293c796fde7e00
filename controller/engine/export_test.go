package engine

import "context"

// Tidy makes one look at what has grown old.
func (e *Engine) Tidy(ctx context.Context) error { return e.retention.tidy(ctx) }

// FindStuck counts the operations that are stuck, once.
func (e *Engine) FindStuck(ctx context.Context) (int, error) { return e.stuck.Find(ctx) }

// Listen records that this controller listens, as its start does.
func (e *Engine) Listen(ctx context.Context) error { return e.scan.extendListening(ctx) }

// Round does once what a controller does every second about leases and the silence of agents.
func (e *Engine) Round(ctx context.Context) error {
	e.leases.endLostLease()
	for _, part := range []func(context.Context) error{
		e.leases.renew, e.sweepSessions, e.scan.heartbeats, e.scan.closeMovedSessions,
	} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) sweepSessions(ctx context.Context) error {
	return e.cfg.Store.Sessions.EndSessionsOf(ctx, "", e.clock.Now())
}
