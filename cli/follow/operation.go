package follow

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

// Config is the operation to follow.
type Config struct {
	Operations  pb.OperationServiceClient
	OperationID string
	Clock       clock.Clock
	// Poll is how often the operation is read besides, for progress that makes no event. 0 is never.
	Poll time.Duration
	// Tick is how often an empty item is delivered, for a clock on the screen. 0 is never.
	Tick time.Duration
	// Drain bounds the wait for the rest of the log once the operation has finished.
	Drain time.Duration
}

// Item is one thing that happened. One field is set; in a tick none is.
type Item struct {
	Event  *pb.OperationEvent
	Log    *pb.LogChunk
	Polled *pb.Operation
	// LogErr is set when the log cannot be read; the operation is followed without it.
	LogErr error
	// Lost is set when the connection is gone, Back when the controller answers again.
	Lost, Back bool
}

type follower struct {
	cfg    Config
	items  chan Item
	final  chan *pb.Operation // one element, from watch
	ended  chan struct{}      // closed by watch when the operation has finished
	logged chan struct{}      // closed when the log is read to its end
}

// Operation follows one operation to its end and returns its last snapshot. It calls sink for each item, from
// this goroutine, in the order of arrival; all of the log comes before it returns.
func Operation(ctx context.Context, cfg Config, sink func(Item)) (*pb.Operation, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := &follower{
		cfg: cfg, items: make(chan Item), final: make(chan *pb.Operation, 1),
		ended: make(chan struct{}), logged: make(chan struct{}),
	}
	g, ctx := task.New(ctx)
	g.Go("watch operation", f.watch)
	g.Go("read operation log", f.logs)
	if cfg.Poll > 0 {
		g.Go("poll operation", f.poll)
	}
	op := f.collect(ctx, sink)
	cancel()
	if err := g.Wait(); err != nil {
		return op, err
	}
	if op == nil {
		return nil, context.Cause(ctx)
	}
	return op, nil
}

// collect hands items on until the operation has finished and its log is complete. It returns nil when ctx ended first.
func (f *follower) collect(ctx context.Context, sink func(Item)) *pb.Operation {
	var (
		tick  <-chan time.Time
		drain <-chan time.Time
		op    *pb.Operation
		lost  bool
	)
	if f.cfg.Tick > 0 {
		t := f.cfg.Clock.NewTicker(f.cfg.Tick)
		defer t.Stop()
		tick = t.C()
	}
	final, logged := f.final, f.logged
	for op == nil || logged != nil {
		select {
		case <-ctx.Done():
			return op
		case it := <-f.items:
			if repeatsState(it, &lost) {
				continue
			}
			sink(it)
		case op = <-final:
			final, drain = nil, f.cfg.Clock.After(f.cfg.Drain)
		case <-logged:
			logged = nil
		case <-drain:
			return op
		case <-tick:
			sink(Item{})
		}
	}
	return op
}

// repeatsState reports whether an item repeats an outage, or its end.
func repeatsState(it Item, lost *bool) bool {
	switch {
	case it.Lost:
		was := *lost
		*lost = true
		return was
	case it.Back:
		was := *lost
		*lost = false
		return !was
	}
	return false
}

func (f *follower) send(ctx context.Context, it Item) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case f.items <- it:
		return nil
	}
}

func finished(op *pb.Operation) bool {
	switch op.GetPhase() {
	case pb.Operation_SUCCEEDED, pb.Operation_FAILED, pb.Operation_CANCELED:
		return true
	}
	return false
}

func (f *follower) finish(op *pb.Operation) {
	f.final <- op
	close(f.ended)
}

// again reports whether a stream that ended with err is opened once more: not when the reader has left, and not
// when the error speaks of the request.
func again(ctx context.Context, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	// A controller that stops may cancel its streams; the reader has not.
	return apiclient.Transient(err) || status.Code(err) == codes.Canceled || errors.Is(err, io.EOF)
}
