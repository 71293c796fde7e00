package client

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Ended reports whether an operation has ended. It never changes afterwards.
func Ended(o *baremetalv1.Operation) bool {
	switch o.GetPhase() {
	case baremetalv1.Operation_SUCCEEDED, baremetalv1.Operation_FAILED, baremetalv1.Operation_CANCELED:
		return true
	}
	return false
}

// Wait returns an operation when it has ended, through broken streams and restarts of the controller. One that has not
// succeeded is an *OperationError, and is returned too. changed is called with each event, once and in order; it may be
// nil. The context bounds how long to wait; the operation goes on without us.
func Wait(
	ctx context.Context, conn grpc.ClientConnInterface, operationID string, changed func(*baremetalv1.OperationEvent),
) (*baremetalv1.Operation, error) {
	w := waiter{operations: baremetalv1.NewOperationServiceClient(conn), id: operationID, changed: changed}
	for {
		o, err := w.once(ctx)
		switch {
		case err == nil:
			return o, verdict(o)
		case Reason(err) == baremetalv1.Reason_CURSOR_EXPIRED:
			w.cursor = "" // the database was restored: everything once more
		case ctx.Err() != nil || !Transient(err):
			return nil, fmt.Errorf("wait for operation %s: %w", operationID, err)
		case !rest(ctx, max(w.back.Next(), RetryAfter(err))):
			return nil, fmt.Errorf("wait for operation %s: %w", operationID, errors.Join(ctx.Err(), err))
		}
	}
}

func verdict(o *baremetalv1.Operation) error {
	if o.GetPhase() == baremetalv1.Operation_SUCCEEDED {
		return nil
	}
	return &OperationError{Operation: o}
}

// waiter follows one operation.
type waiter struct {
	operations baremetalv1.OperationServiceClient
	id, cursor string
	seq        int64
	changed    func(*baremetalv1.OperationEvent)
	back       Backoff
}

// once follows until the operation has ended or the stream breaks.
func (w *waiter) once(ctx context.Context) (*baremetalv1.Operation, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := w.operations.WatchOperations(ctx, &baremetalv1.WatchOperationsRequest{
		Filter: "operation_id=" + w.id, Cursor: w.cursor})
	if err != nil {
		return nil, err
	}
	for {
		e, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		w.back.Reset()
		w.cursor = e.GetCursor()
		if e.GetSeq() > w.seq || e.GetSeq() == 0 {
			w.seq = max(w.seq, e.GetSeq())
			if w.changed != nil {
				w.changed(e)
			}
		}
		if o := e.GetSnapshot(); o.GetOperationId() == w.id && Ended(o) {
			return o, nil
		}
	}
}
