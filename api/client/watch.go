package client

import (
	"context"
	"fmt"

	"google.golang.org/grpc"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Watch follows the machines that match a filter, for as long as its context is good.
type Watch struct {
	// Conn is a connection of Dial.
	Conn grpc.ClientConnInterface
	// Filter selects machines, as in ListMachinesRequest. Empty: all.
	Filter string
	// Cursor is where to go on: the last one of a watch with the same filter. Run keeps it up to date.
	Cursor string
	// Restarted is called before the watch begins anew, because the database was restored: the machines that match come
	// once more as CURRENT, and what does not come up to the BOOKMARK is not there any more. It may be nil.
	Restarted func()
}

// Run calls handle with each event, one after the other, until the context ends or handle returns an error, which Run
// returns. Broken streams are resumed where they broke: no change is missed, and one may come twice; compare
// machine.version.
func (w *Watch) Run(ctx context.Context, handle func(*baremetalv1.MachineEvent) error) error {
	machines := baremetalv1.NewMachineServiceClient(w.Conn)
	var back Backoff
	for {
		handled, err := w.once(ctx, machines, &back, handle)
		switch {
		case handled:
			return err
		case Reason(err) == baremetalv1.Reason_CURSOR_EXPIRED:
			w.Cursor = ""
			if w.Restarted != nil {
				w.Restarted()
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case !Transient(err):
			return fmt.Errorf("watch machines: %w", err)
		case !rest(ctx, max(back.Next(), RetryAfter(err))):
			return ctx.Err()
		}
	}
}

// once follows until the stream breaks. handled reports whether the error is that of handle.
func (w *Watch) once(
	ctx context.Context, machines baremetalv1.MachineServiceClient, back *Backoff,
	handle func(*baremetalv1.MachineEvent) error,
) (handled bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := machines.WatchMachines(ctx, &baremetalv1.WatchMachinesRequest{Filter: w.Filter, Cursor: w.Cursor})
	if err != nil {
		return false, err
	}
	for {
		e, err := stream.Recv()
		if err != nil {
			return false, err
		}
		back.Reset()
		if err := handle(e); err != nil {
			return true, err
		}
		w.Cursor = e.GetCursor()
	}
}
