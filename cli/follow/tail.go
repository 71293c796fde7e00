package follow

import (
	"context"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	apiclient "github.com/ingot-metal/ingot/api/client"
	"github.com/ingot-metal/ingot/internal/clock"
)

// Event is what the events of operations and of runs have in common.
type Event interface {
	GetCursor() string
	GetSeq() int64
}

// Source opens a stream of events.
type Source[E Event] struct {
	// Open starts after the cursor and returns the function that receives.
	Open func(ctx context.Context, cursor string) (func() (E, error), error)
	// Subject is the id within which the numbers of the events count.
	Subject func(E) string
}

// OperationEvents are the events of the operations that match the filter.
func OperationEvents(c pb.OperationServiceClient, filter string, fromBeginning bool) Source[*pb.OperationEvent] {
	return Source[*pb.OperationEvent]{
		Subject: func(ev *pb.OperationEvent) string { return ev.GetSnapshot().GetOperationId() },
		Open: func(ctx context.Context, cursor string) (func() (*pb.OperationEvent, error), error) {
			s, err := c.WatchOperations(ctx, &pb.WatchOperationsRequest{Filter: filter, Cursor: cursor,
				FromBeginning: fromBeginning && cursor == ""})
			if err != nil {
				return nil, err
			}
			return s.Recv, nil
		},
	}
}

// RunEvents are the events of the runs that match the filter.
func RunEvents(c pb.RunServiceClient, filter string, fromBeginning bool) Source[*pb.RunEvent] {
	return Source[*pb.RunEvent]{
		Subject: func(ev *pb.RunEvent) string { return ev.GetSnapshot().GetRunId() },
		Open: func(ctx context.Context, cursor string) (func() (*pb.RunEvent, error), error) {
			s, err := c.WatchRuns(ctx, &pb.WatchRunsRequest{Filter: filter, Cursor: cursor, FromBeginning: fromBeginning &&
				cursor == ""})
			if err != nil {
				return nil, err
			}
			return s.Recv, nil
		},
	}
}

// MachineEvent is a message of a watch of machines. It has no number.
type MachineEvent struct{ *pb.MachineEvent }

// GetSeq implements Event.
func (MachineEvent) GetSeq() int64 { return 0 }

// MachineEvents are the machines that match the filter, then every change of them.
func MachineEvents(c pb.MachineServiceClient, filter string) Source[MachineEvent] {
	return Source[MachineEvent]{
		Subject: func(ev MachineEvent) string { return ev.GetMachine().GetMachineId() },
		Open: func(ctx context.Context, cursor string) (func() (MachineEvent, error), error) {
			s, err := c.WatchMachines(ctx, &pb.WatchMachinesRequest{Filter: filter, Cursor: cursor})
			if err != nil {
				return nil, err
			}
			return func() (MachineEvent, error) {
				ev, err := s.Recv()
				return MachineEvent{ev}, err
			}, nil
		},
	}
}

// tail remembers how far a stream was read.
type tail[E Event] struct {
	src    Source[E]
	cursor string
	seen   map[string]int64
}

func newTail[E Event](src Source[E]) *tail[E] { return &tail[E]{src: src, seen: map[string]int64{}} }

// read opens the stream once and hands each new event on, until each returns stop (then nil) or the stream ends.
func (t *tail[E]) read(ctx context.Context, each func(E) (stop bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	recv, err := t.src.Open(ctx, t.cursor)
	if err != nil {
		return err
	}
	for {
		ev, err := recv()
		if err != nil {
			return err
		}
		if !t.take(ev) {
			continue
		}
		if stop, err := each(ev); stop || err != nil {
			return err
		}
	}
}

// take reports whether the event is new. Events without a number always are.
func (t *tail[E]) take(ev E) bool {
	if c := ev.GetCursor(); c != "" {
		t.cursor = c
	}
	subject, seq := t.src.Subject(ev), ev.GetSeq()
	if seq == 0 {
		return true
	}
	if seq <= t.seen[subject] {
		return false
	}
	t.seen[subject] = seq
	return true
}

// forget drops a cursor that the controller no longer keeps; the numbers still keep repeats out.
func (t *tail[E]) forget(err error) bool {
	if t.cursor == "" || apiclient.Reason(err) != pb.Reason_CURSOR_EXPIRED {
		return false
	}
	t.cursor = ""
	return true
}

// WatchConfig is the stream to watch.
type WatchConfig[E Event] struct {
	Source Source[E]
	Clock  clock.Clock
	// Lost is called when the connection goes, once until the next event.
	Lost func()
}

// Watch hands every event to each until ctx ends, each returns an error, or the controller refuses.
func Watch[E Event](ctx context.Context, cfg WatchConfig[E], each func(E) error) error {
	var (
		back apiclient.Backoff
		lost bool
		t    = newTail(cfg.Source)
	)
	for {
		var failed error
		err := t.read(ctx, func(ev E) (bool, error) {
			back.Reset()
			lost = false
			failed = each(ev)
			return failed != nil, nil
		})
		switch {
		case failed != nil:
			return failed
		case t.forget(err):
			continue
		case !again(ctx, err):
			return err
		}
		if !lost {
			lost = true
			cfg.Lost()
		}
		if err := sleep(ctx, cfg.Clock, back.Next()); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, c clock.Clock, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-c.After(d):
		return nil
	}
}
