package follow

import (
	"context"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/cli/client"
)

// watch reads events until one shows that the operation has finished.
func (f *follower) watch(ctx context.Context) error {
	var (
		back  apiclient.Backoff
		final *pb.Operation
		known *pb.Operation // finished, as read after an outage
	)
	events := newTail(OperationEvents(f.cfg.Operations, "operation_id="+f.cfg.OperationID, false))
	for {
		err := events.read(ctx, func(ev *pb.OperationEvent) (bool, error) {
			back.Reset()
			if finished(ev.GetSnapshot()) {
				final = ev.GetSnapshot()
			}
			return final != nil, f.send(ctx, Item{Event: ev})
		})
		switch {
		case final != nil:
			f.finish(final)
			return nil
		case known != nil:
			// The last event should have been in that stream. The operation has finished all the same.
			f.finish(known)
			return nil
		case events.forget(err):
			continue
		}
		if known, err = f.reconnect(ctx, &back, err); err != nil {
			return err
		}
	}
}

// reconnect waits until the controller answers again. It returns the operation if it has finished meanwhile.
func (f *follower) reconnect(ctx context.Context, back *apiclient.Backoff, err error) (*pb.Operation, error) {
	for again(ctx, err) {
		if err := f.send(ctx, Item{Lost: true}); err != nil {
			return nil, err
		}
		if err := sleep(ctx, f.cfg.Clock, back.Next()); err != nil {
			return nil, err
		}
		var op *pb.Operation
		if op, err = f.get(ctx); err != nil {
			continue
		}
		if err := f.send(ctx, Item{Back: true}); err != nil || !finished(op) {
			return nil, err
		}
		return op, nil
	}
	return nil, err
}

func (f *follower) get(ctx context.Context) (*pb.Operation, error) {
	return f.cfg.Operations.GetOperation(ctx, &pb.GetOperationRequest{OperationId: f.cfg.OperationID}, client.Once())
}

// poll reads the operation now and then. What goes wrong here, the watch meets too and deals with.
func (f *follower) poll(ctx context.Context) error {
	for {
		select {
		case <-f.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-f.cfg.Clock.After(f.cfg.Poll):
		}
		if op, err := f.get(ctx); err == nil {
			if err := f.send(ctx, Item{Polled: op}); err != nil {
				return err
			}
		}
	}
}

// logs reads the log until a stream that was opened after the operation had finished comes to its end. An
// operation does not fail with its log.
func (f *follower) logs(ctx context.Context) error {
	defer close(f.logged)
	err := Log(ctx, LogConfig{
		Open:     OperationLog(f.cfg.Operations, f.cfg.OperationID, false),
		Complete: func(context.Context) (bool, error) { return f.hasEnded(), nil },
		Wake:     f.ended,
		Clock:    f.cfg.Clock,
		Lost:     func() {}, // the watch reports the outage
	}, func(c *pb.LogChunk) error { return f.send(ctx, Item{Log: c}) })
	if err != nil && ctx.Err() == nil {
		return f.send(ctx, Item{LogErr: err})
	}
	return err
}

func (f *follower) hasEnded() bool {
	select {
	case <-f.ended:
		return true
	default:
		return false
	}
}
