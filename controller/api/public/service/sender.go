package service

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

// Sender hands messages to a stream, one in flight, and cuts off a reader that does not take them. gRPC's Send cannot
// be given a deadline; it ends when its handler has returned, and with it the goroutine here.
type Sender[M any] struct {
	next  chan M
	done  chan struct{}
	err   error // set before done is closed
	clock clock.Clock
	limit time.Duration
}

// NewSender starts the goroutine that sends; a reader that takes no message within limit ends it.
func NewSender[M any](send func(M) error, c clock.Clock, limit time.Duration) *Sender[M] {
	s := &Sender[M]{next: make(chan M), done: make(chan struct{}), clock: c, limit: limit}
	task.Background("send to a watcher", func() {
		defer close(s.done)
		for m := range s.next {
			if s.err = send(m); s.err != nil {
				return
			}
		}
	})
	return s
}

// Send hands the message to the stream's goroutine. The error may be that of an earlier message.
func (s *Sender[M]) Send(ctx context.Context, m M) error {
	select {
	case s.next <- m:
		return nil
	default:
	}
	select {
	case s.next <- m:
		return nil
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.clock.After(s.limit):
		return slowReader(s.limit)
	}
}

// Finish waits until the last message is on its way. It must be called once, and nothing be sent after it.
func (s *Sender[M]) Finish(ctx context.Context, cause error) error {
	close(s.next)
	if cause != nil {
		return cause
	}
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.clock.After(s.limit):
		return slowReader(s.limit)
	}
}

func slowReader(limit time.Duration) error {
	return failure.Exhausted("SLOW_READER", "no message was taken for %v; go on from the last cursor", limit)
}
