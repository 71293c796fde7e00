package service

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/internal/failure"
)

// minPause bounds how often one stream reads the database, however busy the fleet is.
const minPause = 20 * time.Millisecond

// Streaming returns the context of one stream, which ends with the client or with the controller. The function returns
// the cause once the stream is over.
func (s *Base) Streaming(ctx context.Context) (context.Context, func(error) error) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.Config.Draining, func() { cancel(draining()) })
	return ctx, func(err error) error {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		stop()
		cancel(nil)
		return err
	}
}

// Pacer paces the reads of one stream.
type Pacer struct {
	Base *Base
	// Together has the stream look at the same moments as all others that set it: those whose reads are shared. Others
	// would only be in each other's way.
	Together bool
	last     time.Time
}

// Mark records that the stream reads now, and returns a channel that signals later changes.
func (p *Pacer) Mark() <-chan struct{} {
	p.last = p.Base.Clock.Now()
	return p.Base.Engine.Changed()
}

// Wait returns nil when it is time to read again: after a change, or after a while.
func (p *Pacer) Wait(ctx context.Context, changed <-chan struct{}) error {
	while := p.Base.Config.PollEvery
	if p.Together {
		while = untilNext(p.Base.Clock.Now(), while)
	}
	select {
	case <-changed:
	case <-p.Base.Clock.After(while):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-p.Base.Clock.After(minPause - p.Base.Clock.Now().Sub(p.last)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// untilNext is how long it is to the next moment that is a multiple of a period since the epoch.
func untilNext(now time.Time, every time.Duration) time.Duration {
	return every - time.Duration(now.UnixNano())%every
}

func draining() error {
	return failure.Unavailable("CONTROLLER_DRAINING", "this controller is stopping; go on from the last cursor on another")
}
