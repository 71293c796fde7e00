package public

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/internal/failure"
)

// minPause bounds how often one stream reads the database, however busy the fleet is.
const minPause = 20 * time.Millisecond

// streaming gives the context of one stream, which ends with the client or with the controller, and the function that
// says which it was once the stream is over.
func (s *Server) streaming(ctx context.Context) (context.Context, func(error) error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.cfg.Draining, func() { cancel(draining()) })
	return ctx, func(err error) error {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		stop()
		cancel(nil)
		return err
	}
}

// pacer paces the reads of one stream.
type pacer struct {
	s    *Server
	last time.Time
}

// mark notes that the stream reads now, and gives what tells of changes after that.
func (p *pacer) mark() <-chan struct{} {
	p.last = p.s.clock.Now()
	return p.s.engine.Changed()
}

// wait returns nil when it is time to read again: after a change, or after a while.
func (p *pacer) wait(ctx context.Context, changed <-chan struct{}) error {
	select {
	case <-changed:
	case <-p.s.clock.After(p.s.cfg.PollEvery):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-p.s.clock.After(minPause - p.s.clock.Now().Sub(p.last)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func draining() error {
	return failure.Unavailable("CONTROLLER_DRAINING", "this controller is stopping; go on from the last cursor on another")
}
