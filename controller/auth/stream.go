package auth

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

// cutGrace is how long a handler may take to notice that its caller's token is gone. One that is stuck in sending to a
// client that does not read would never notice.
const cutGrace = 500 * time.Millisecond

// guardedStream has the guard's context for the handler.
type guardedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *guardedStream) Context() context.Context { return s.ctx }

// serveUntilCut runs the handler and returns when it has. Only when a reload has cut the stream it returns without the
// handler, after cutGrace: the stream is finished then, and that ends whatever the handler is stuck in.
func serveUntilCut(ctx context.Context, method string, handler func() error) error {
	ended := make(chan error, 1)
	task.Background("stream "+method, func() {
		err := errors.New("stream handler ended by runtime.Goexit")
		defer func() { ended <- err }()
		err = task.Run(ctx, method, func(context.Context) error { return handler() })
	})
	select {
	case err := <-ended:
		return withCause(ctx, err)
	case <-ctx.Done():
	}
	if cutBy(ctx) == nil {
		return <-ended // the caller left or the server stops: a wait for handlers includes this one
	}
	grace := time.NewTimer(cutGrace)
	defer grace.Stop()
	select {
	case err := <-ended:
		return withCause(ctx, err)
	case <-grace.C:
		return cutBy(ctx)
	}
}

// withCause lets the reason for which the guard ended the stream stand before what the handler made of it.
func withCause(ctx context.Context, err error) error {
	if cut := cutBy(ctx); cut != nil {
		return cut
	}
	return err
}

// cutBy is the reason for which a reload ended the stream, or nil.
func cutBy(ctx context.Context) error {
	var cut *failure.Error
	if errors.As(context.Cause(ctx), &cut) {
		return cut
	}
	return nil
}
