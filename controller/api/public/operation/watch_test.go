package operation_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/internal/failure"
)

func smallPages(c *service.Config) { c.PageRows, c.PollEvery = 3, 20*time.Millisecond }

// read hands events on until each returns an error; errStop ends it well.
func read(
	ctx context.Context,
	r *publictest.Rig,
	q *pb.WatchOperationsRequest,
	each func(*pb.OperationEvent) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := r.Operations.WatchOperations(ctx, q)
	if err != nil {
		return err
	}
	for {
		ev, err := s.Recv()
		if err != nil {
			return err
		}
		if err := each(ev); err != nil {
			return err
		}
	}
}

// TestWatchDoesNotTellOldNews: an open transaction holds the feed's head back, so that the event which made an
// operation what it is comes after its state has been sent. It must not be sent again.
func TestWatchDoesNotTellOldNews(t *testing.T) {
	r := publictest.NewRig(t, smallPages)
	ctx := t.Context()
	r.Register(&pb.Machine{MachineId: "m-1"})
	open, err := r.Store.DB.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.Exec(ctx, "SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	op := r.Enter("m-1", "q").GetOperationId()
	var kinds []string
	err = read(ctx, r, &pb.WatchOperationsRequest{}, func(ev *pb.OperationEvent) error {
		kinds = append(kinds, ev.GetKind())
		if ev.GetKind() == "current" {
			r.Look(op)
			return open.Rollback(ctx)
		}
		if ev.GetKind() == "succeeded" {
			return publictest.ErrStop
		}
		return nil
	})
	if !errors.Is(err, publictest.ErrStop) || kinds[0] != "current" || slices.Contains(kinds, "created") ||
		!slices.Contains(kinds, "started") {
		t.Errorf("got %v, %v", kinds, err)
	}
}

// TestWatchResumesInTheMiddleOfTheActive: a stream that breaks while the active operations are listed goes on there.
func TestWatchResumesInTheMiddleOfTheActive(t *testing.T) {
	r := publictest.NewRig(t, smallPages)
	var want, got []string
	for i := range 7 {
		r.Register(publictest.NewMachine(i))
		want = append(want, r.Enter(publictest.NewMachine(i).GetMachineId(), "q").GetOperationId())
	}
	r.Register(&pb.Machine{MachineId: "m-running"})
	r.Maintenance("m-running")
	op, err := r.Machines.RebootMachine(t.Context(), &pb.RebootMachineRequest{MachineId: "m-running", RequestId: "q"})
	if err != nil {
		t.Fatal(err)
	}
	r.Look(op.GetOperationId())
	want = append(want, op.GetOperationId())
	q := &pb.WatchOperationsRequest{}
	for range want {
		err := read(t.Context(), r, q, func(ev *pb.OperationEvent) error {
			q.Cursor = ev.GetCursor()
			got = append(got, ev.GetSnapshot().GetOperationId()+" "+ev.GetKind())
			return publictest.ErrStop
		})
		if !errors.Is(err, publictest.ErrStop) {
			t.Fatal(err)
		}
	}
	for i := range want {
		want[i] += " current"
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %v\nwanted %v", got, want)
	}
}

// TestWatchOneOperation replays it from its first event, follows it, and ends with it.
func TestWatchOneOperation(t *testing.T) {
	r := publictest.NewRig(t, smallPages)
	r.Register(&pb.Machine{MachineId: "m-1"})
	r.Register(&pb.Machine{MachineId: "m-2"})
	op := r.Enter("m-1", "q").GetOperationId()
	other := r.Enter("m-2", "q").GetOperationId()
	r.Look(other)
	filter := "operation_id=" + op
	var cursors []string
	var kinds []string
	err := read(t.Context(), r, &pb.WatchOperationsRequest{Filter: filter}, func(ev *pb.OperationEvent) error {
		if ev.GetSnapshot().GetOperationId() != op || ev.GetSeq() != int64(len(kinds)+1) {
			t.Errorf("event %v", ev)
		}
		kinds, cursors = append(kinds, ev.GetKind()), append(cursors, ev.GetCursor())
		if len(kinds) == 1 {
			r.Look(op)
			r.Look(op)
		}
		return nil
	})
	if !errors.Is(err, io.EOF) || kinds[0] != "created" || kinds[len(kinds)-1] != "succeeded" {
		t.Fatalf("got %v, then %v", kinds, err)
	}
	for i, c := range cursors {
		n := 0
		err := read(t.Context(), r, &pb.WatchOperationsRequest{Filter: filter, Cursor: c},
			func(*pb.OperationEvent) error { n++; return nil })
		if !errors.Is(err, io.EOF) || n != len(kinds)-i-1 {
			t.Errorf("after event %d: %d more, %v", i+1, n, err)
		}
	}
	err = read(t.Context(), r, &pb.WatchOperationsRequest{Cursor: cursors[0]},
		func(*pb.OperationEvent) error { return publictest.ErrStop })
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_CURSOR", "cursor")
}

// TestWatchFeedCursorOnOneOperation: the cursor of a watch on everything is good for a watch on one operation.
func TestWatchFeedCursorOnOneOperation(t *testing.T) {
	r := publictest.NewRig(t, smallPages)
	r.Register(&pb.Machine{MachineId: "m-1"})
	op := r.Enter("m-1", "q").GetOperationId()
	r.Look(op)
	r.Look(op)
	var total int64
	var first string
	if err := read(t.Context(), r, &pb.WatchOperationsRequest{FromBeginning: true}, func(ev *pb.OperationEvent) error {
		if total = ev.GetSeq(); total == 1 {
			first = ev.GetCursor()
		}
		if ev.GetKind() == "succeeded" {
			return publictest.ErrStop
		}
		return nil
	}); !errors.Is(err, publictest.ErrStop) {
		t.Fatal(err)
	}
	var seqs []int64
	err := read(t.Context(), r, &pb.WatchOperationsRequest{Filter: "operation_id=" + op, Cursor: first},
		func(ev *pb.OperationEvent) error {
			seqs = append(seqs, ev.GetSeq())
			return nil
		})
	if !errors.Is(err, io.EOF) || int64(len(seqs)) != total-1 || seqs[0] != 2 {
		t.Errorf("got %v of %d, %v", seqs, total, err)
	}
}

func TestWatchFilters(t *testing.T) {
	r := publictest.NewRig(t, smallPages)
	for _, id := range []string{"m-1", "m-2"} {
		r.Register(&pb.Machine{MachineId: id})
		r.Maintenance(id)
	}
	err := read(t.Context(), r, &pb.WatchOperationsRequest{FromBeginning: true, Filter: "machine_id=m-2,phase=SUCCEEDED"},
		func(ev *pb.OperationEvent) error {
			if ev.GetSnapshot().GetMachineId() != "m-2" || ev.GetSnapshot().GetPhase() != pb.Operation_SUCCEEDED {
				t.Errorf("the filter let through %v", ev)
			}
			if ev.GetKind() == "succeeded" {
				return publictest.ErrStop
			}
			return nil
		})
	if !errors.Is(err, publictest.ErrStop) {
		t.Fatal(err)
	}
}

func TestWatchRuns(t *testing.T) {
	r := publictest.NewRig(t, smallPages)
	r.Register(&pb.Machine{MachineId: "m-1"})
	op := r.Enter("m-1", "q").GetOperationId()
	s, err := r.Runs.WatchRuns(t.Context(), &pb.WatchRunsRequest{Filter: "run_id=" + op})
	if err != nil {
		t.Fatal(err)
	}
	var phases []string
	for {
		ev, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if ev.GetSnapshot().GetRunId() != op || len(ev.GetSnapshot().GetSteps()) != 1 || ev.GetCursor() == "" {
			t.Errorf("event %v", ev)
		}
		if len(phases) == 0 {
			r.Look(op)
			r.Look(op)
		}
		phases = append(phases, ev.GetSnapshot().GetPhase().String())
	}
	if phases[0] != "PENDING" || phases[len(phases)-1] != "SUCCEEDED" {
		t.Errorf("phases %v", phases)
	}
}

// TestStreamsEndWithTheController: watches, logs and senders alike.
func TestStreamsEndWithTheController(t *testing.T) {
	stopping, stop := context.WithCancel(t.Context())
	defer stop()
	r := publictest.NewRig(t, smallPages, func(c *service.Config) { c.Draining = stopping })
	r.Register(&pb.Machine{MachineId: "m-1"})
	op := r.Enter("m-1", "q").GetOperationId()
	logs, err := r.Operations.StreamOperationLogs(t.Context(), &pb.StreamOperationLogsRequest{OperationId: op})
	if err != nil {
		t.Fatal(err)
	}
	err = read(t.Context(), r, &pb.WatchOperationsRequest{}, func(*pb.OperationEvent) error { stop(); return nil })
	publictest.Wants(t, err, failure.KindUnavailable, "CONTROLLER_DRAINING", "")
	_, err = logs.Recv()
	publictest.Wants(t, err, failure.KindUnavailable, "CONTROLLER_DRAINING", "")
}

func TestWatchEndsWithItsClient(t *testing.T) {
	r := publictest.NewRig(t, smallPages)
	ctx, cancel := context.WithCancel(t.Context())
	r.Register(&pb.Machine{MachineId: "m-1"})
	r.Enter("m-1", "q")
	err := read(ctx, r, &pb.WatchOperationsRequest{}, func(*pb.OperationEvent) error { cancel(); return nil })
	if status.Code(err) != codes.Canceled {
		t.Errorf("ended with %v", err)
	}
}

// TestCursorOfAnotherIncarnation is refused: transaction numbers mean nothing in another history.
func TestCursorOfAnotherIncarnation(t *testing.T) {
	name := "one"
	r := publictest.NewRig(t, smallPages, func(c *service.Config) {
		c.Incarnation = func(context.Context) (string, error) { return name, nil }
	})
	r.Register(&pb.Machine{MachineId: "m-1"})
	r.Enter("m-1", "q")
	q := &pb.WatchOperationsRequest{}
	if err := read(
		t.Context(),
		r,
		q,
		func(ev *pb.OperationEvent) error { q.Cursor = ev.GetCursor(); return publictest.ErrStop },
	); !errors.Is(err, publictest.ErrStop) {
		t.Fatal(err)
	}
	name = "two"
	err := read(t.Context(), r, q, func(*pb.OperationEvent) error { return publictest.ErrStop })
	publictest.Wants(t, err, failure.KindPrecondition, "CURSOR_EXPIRED", "cursor")
}
