package engine

import "context"

// Tidy makes one look at what has grown old.
func (e *Engine) Tidy(ctx context.Context) error { return e.tidy(ctx) }

// Listen records that this controller listens, as its start does.
func (e *Engine) Listen(ctx context.Context) error { return e.extendListening(ctx) }

// Round does once what a controller does every second about leases and the silence of agents.
func (e *Engine) Round(ctx context.Context) error {
	e.endLostLease()
	for _, part := range []func(context.Context) error{e.RenewLease, e.sweepSessions, e.heartbeats, e.closeMovedSessions} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) sweepSessions(ctx context.Context) error {
	return e.store.Sessions.EndSessionsOf(ctx, "", e.clock.Now())
}
