package frontpage_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/frontpage"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
)

func smallPages(c *frontpage.Config) { c.PageRows, c.PollEvery = 3, 20*time.Millisecond }

// read hands events on until each returns an error; errStop ends it well.
func read(ctx context.Context, r *rig, q *pb.WatchOperationsRequest, each func(*pb.OperationEvent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := r.operations.WatchOperations(ctx, q)
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

// churn makes operations on machines of its own until it has made n, each of them to its end.
func (r *rig) churn(ctx context.Context, writer, n int) error {
	id := fmt.Sprintf("m-w%d", writer)
	if _, err := r.store.Register(ctx, &pb.Machine{MachineId: id}, "test", time.Now()); err != nil {
		return err
	}
	for i := range n {
		kind := fleet.EnterMaintenance
		if i%2 == 1 {
			kind = fleet.ExitMaintenance
		}
		op, err := r.engine.Start(ctx, store.StartRequest{MachineID: id, RequestID: fmt.Sprint(i), Type: kind, Actor: "test"})
		if err != nil {
			return err
		}
		for op.GetFinishedAt() == nil {
			if err := r.engine.look(ctx, op.GetOperationId()); err != nil {
				return err
			}
			if op, err = r.store.GetOperation(ctx, op.GetOperationId()); err != nil {
				return err
			}
		}
	}
	return nil
}

// disturb keeps transactions open that have ids: whatever commits meanwhile sorts after them and must wait.
func (r *rig) disturb(ctx context.Context, until <-chan struct{}) error {
	for i := 0; ; i++ {
		tx, err := r.store.Pool().Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "SELECT pg_current_xact_id()"); err != nil {
			return err
		}
		select {
		case <-until:
			return tx.Rollback(ctx)
		case <-time.After(time.Duration(rand.IntN(80)) * time.Millisecond):
		}
		end := tx.Rollback
		if i%2 == 0 {
			end = tx.Commit
		}
		if err := end(ctx); err != nil {
			return err
		}
	}
}

// load runs writers and open transactions beside them; the channel is closed when the writers are through.
func (r *rig) load(g *task.Group, writers, each int) <-chan struct{} {
	done := make(chan struct{})
	g.Go("writers", func(ctx context.Context) error {
		defer close(done)
		w, _ := task.New(ctx)
		for i := range writers {
			w.Go("writer", func(ctx context.Context) error { return r.churn(ctx, i, each) })
		}
		return w.Wait()
	})
	g.Go("open transactions", func(ctx context.Context) error { return r.disturb(ctx, done) })
	return done
}

type eventKey struct {
	operation string
	seq       int64
}

// stored is every event, in the order of each operation.
func (r *rig) stored(ctx context.Context) (map[eventKey]*pb.Operation, error) {
	out := map[eventKey]*pb.Operation{}
	var at store.FeedPos
	for {
		page, err := r.store.Feed(ctx, at, 1000)
		if err != nil || len(page) == 0 {
			return out, err
		}
		for _, e := range page {
			out[eventKey{e.Snapshot.GetOperationId(), e.Seq}], at = e.Snapshot, e.Pos
		}
	}
}

// TestWatchMissesNothingAndRepeatsNothing: readers that break off at random and resume by cursor, beside writers and
// transactions that stay open, get each event exactly once and each operation's in order.
func TestWatchMissesNothingAndRepeatsNothing(t *testing.T) {
	r := newRig(t, smallPages)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g, _ := task.New(ctx)
	const writers, each = 4, 12
	done := r.load(g, writers, each)
	for range 3 {
		g.Go("reader", func(ctx context.Context) error { return r.readAll(ctx, done, writers*each) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) readAll(ctx context.Context, done <-chan struct{}, operations int) error {
	seen, last, ended := map[eventKey]bool{}, map[string]int64{}, 0
	q := &pb.WatchOperationsRequest{FromBeginning: true}
	take := func(ev *pb.OperationEvent) error {
		id := ev.GetSnapshot().GetOperationId()
		q.Cursor = ev.GetCursor()
		if k := (eventKey{id, ev.GetSeq()}); seen[k] {
			return fmt.Errorf("event %v came twice", k)
		} else if seen[k] = true; ev.GetSeq() != last[id]+1 {
			return fmt.Errorf("event %v came after %d", k, last[id])
		}
		last[id] = ev.GetSeq()
		if ev.GetSnapshot().GetFinishedAt() != nil && ev.GetKind() == "succeeded" {
			ended++
		}
		return nil
	}
	for ended < operations {
		left := 1 + rand.IntN(20)
		err := read(ctx, r, q, func(ev *pb.OperationEvent) error {
			if err := take(ev); err != nil {
				return err
			}
			if left--; left == 0 || ended == operations {
				return errStop
			}
			return nil
		})
		if !errors.Is(err, errStop) {
			return err
		}
	}
	<-done
	all, err := r.stored(ctx)
	if err == nil && len(all) != len(seen) {
		err = fmt.Errorf("saw %d of %d events", len(seen), len(all))
	}
	return err
}

// TestWatchBeginsWithWhatIsActive: a watch that starts in the middle gets the state of what is active and then exactly
// what follows it.
func TestWatchBeginsWithWhatIsActive(t *testing.T) {
	r := newRig(t, smallPages)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g, _ := task.New(ctx)
	for i := range 7 { // more than two pages that stay active
		r.register(newMachine(i))
		r.enter(newMachine(i).GetMachineId(), "q")
	}
	r.load(g, 3, 10)
	for range 4 {
		g.Go("reader", func(ctx context.Context) error { return r.readFromNow(ctx) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// TestWatchDoesNotTellOldNews: an open transaction holds the feed's head back, so that the event which made an operation
// what it is comes after its state has been sent. It must not be sent again.
func TestWatchDoesNotTellOldNews(t *testing.T) {
	r := newRig(t, smallPages)
	ctx := t.Context()
	r.register(&pb.Machine{MachineId: "m-1"})
	open, err := r.store.Pool().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.Exec(ctx, "SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	op := r.enter("m-1", "q").GetOperationId()
	var kinds []string
	err = read(ctx, r, &pb.WatchOperationsRequest{}, func(ev *pb.OperationEvent) error {
		kinds = append(kinds, ev.GetKind())
		if ev.GetKind() == "current" {
			r.look(op)
			return open.Rollback(ctx)
		}
		if ev.GetKind() == "succeeded" {
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) || kinds[0] != "current" || slices.Contains(kinds, "created") || !slices.Contains(kinds, "started") {
		t.Errorf("got %v, %v", kinds, err)
	}
}

type tale struct {
	current int64 // version of the state that came first; 0 for none
	seqs    []int64
}

func (r *rig) readFromNow(ctx context.Context) error {
	const marker = "m-marker-"
	tales, active := map[string]*tale{}, 0
	var mark string
	err := read(ctx, r, &pb.WatchOperationsRequest{}, func(ev *pb.OperationEvent) error {
		id := ev.GetSnapshot().GetOperationId()
		if tales[id] == nil {
			tales[id] = &tale{}
		}
		if ev.GetKind() == "current" {
			if tales[id].current != 0 || len(tales[id].seqs) > 0 || ev.GetSnapshot().GetFinishedAt() != nil || ev.GetSeq() != 0 {
				return fmt.Errorf("current state of %v after %v", ev, tales[id])
			}
			tales[id].current, active = ev.GetSnapshot().GetVersion(), active+1
		} else {
			tales[id].seqs = append(tales[id].seqs, ev.GetSeq())
		}
		if active >= 7 && mark == "" { // begun: from here on, wait for an operation of our own to end
			mark = marker + fmt.Sprint(rand.Uint64())
			return r.markOff(ctx, mark)
		}
		if ev.GetSnapshot().GetMachineId() == mark && ev.GetKind() == "succeeded" {
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		return err
	}
	return r.checkTales(ctx, tales)
}

func (r *rig) markOff(ctx context.Context, machineID string) error {
	if _, err := r.store.Register(ctx, &pb.Machine{MachineId: machineID}, "test", time.Now()); err != nil {
		return err
	}
	op, err := r.engine.Start(ctx, store.StartRequest{MachineID: machineID, RequestID: "q", Type: fleet.EnterMaintenance})
	for i := 0; err == nil && i < 2; i++ {
		err = r.engine.look(ctx, op.GetOperationId())
	}
	return err
}

// checkTales: numbers without gaps, beginning with the first change after the state that came first.
func (r *rig) checkTales(ctx context.Context, tales map[string]*tale) error {
	for id, got := range tales {
		all, err := r.store.EventsOf(ctx, id, 0, 1000)
		if err != nil {
			return err
		}
		var want []int64
		for _, e := range all {
			if e.Snapshot.GetVersion() > got.current {
				want = append(want, e.Seq)
			}
		}
		if got.current == 0 && len(got.seqs) > 0 { // it may have been active and ended while the list was read
			want = want[slices.Index(want, got.seqs[0]):]
		}
		if len(got.seqs) > len(want) || !slices.Equal(got.seqs, want[:len(got.seqs)]) {
			return fmt.Errorf("operation %s: got %v after version %d, wanted %v", id, got.seqs, got.current, want)
		}
	}
	return nil
}

// TestWatchResumesInTheMiddleOfTheActive: a stream that breaks while the active operations are listed goes on there.
func TestWatchResumesInTheMiddleOfTheActive(t *testing.T) {
	r := newRig(t, smallPages)
	var want, got []string
	for i := range 7 {
		r.register(newMachine(i))
		want = append(want, r.enter(newMachine(i).GetMachineId(), "q").GetOperationId())
	}
	r.register(&pb.Machine{MachineId: "m-running"})
	r.maintenance("m-running")
	op, err := r.machines.RebootMachine(t.Context(), &pb.RebootMachineRequest{MachineId: "m-running", RequestId: "q"})
	if err != nil {
		t.Fatal(err)
	}
	r.look(op.GetOperationId())
	want = append(want, op.GetOperationId())
	q := &pb.WatchOperationsRequest{}
	for range want {
		err := read(t.Context(), r, q, func(ev *pb.OperationEvent) error {
			q.Cursor = ev.GetCursor()
			got = append(got, ev.GetSnapshot().GetOperationId()+" "+ev.GetKind())
			return errStop
		})
		if !errors.Is(err, errStop) {
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
	r := newRig(t, smallPages)
	r.register(&pb.Machine{MachineId: "m-1"})
	r.register(&pb.Machine{MachineId: "m-2"})
	op := r.enter("m-1", "q").GetOperationId()
	other := r.enter("m-2", "q").GetOperationId()
	r.look(other)
	filter := "operation_id=" + op
	var cursors []string
	var kinds []string
	err := read(t.Context(), r, &pb.WatchOperationsRequest{Filter: filter}, func(ev *pb.OperationEvent) error {
		if ev.GetSnapshot().GetOperationId() != op || ev.GetSeq() != int64(len(kinds)+1) {
			t.Errorf("event %v", ev)
		}
		kinds, cursors = append(kinds, ev.GetKind()), append(cursors, ev.GetCursor())
		if len(kinds) == 1 {
			r.look(op)
			r.look(op)
		}
		return nil
	})
	if !errors.Is(err, io.EOF) || kinds[0] != "created" || kinds[len(kinds)-1] != "succeeded" {
		t.Fatalf("got %v, then %v", kinds, err)
	}
	for i, c := range cursors {
		n := 0
		err := read(t.Context(), r, &pb.WatchOperationsRequest{Filter: filter, Cursor: c}, func(*pb.OperationEvent) error { n++; return nil })
		if !errors.Is(err, io.EOF) || n != len(kinds)-i-1 {
			t.Errorf("after event %d: %d more, %v", i+1, n, err)
		}
	}
	err = read(t.Context(), r, &pb.WatchOperationsRequest{Cursor: cursors[0]}, func(*pb.OperationEvent) error { return errStop })
	wants(t, err, failure.KindInvalid, "INVALID_CURSOR", "cursor")
}

// TestWatchFeedCursorOnOneOperation: the cursor of a watch on everything is good for a watch on one operation.
func TestWatchFeedCursorOnOneOperation(t *testing.T) {
	r := newRig(t, smallPages)
	r.register(&pb.Machine{MachineId: "m-1"})
	op := r.enter("m-1", "q").GetOperationId()
	r.look(op)
	r.look(op)
	var total int64
	var first string
	if err := read(t.Context(), r, &pb.WatchOperationsRequest{FromBeginning: true}, func(ev *pb.OperationEvent) error {
		if total = ev.GetSeq(); total == 1 {
			first = ev.GetCursor()
		}
		if ev.GetKind() == "succeeded" {
			return errStop
		}
		return nil
	}); !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	var seqs []int64
	err := read(t.Context(), r, &pb.WatchOperationsRequest{Filter: "operation_id=" + op, Cursor: first}, func(ev *pb.OperationEvent) error {
		seqs = append(seqs, ev.GetSeq())
		return nil
	})
	if !errors.Is(err, io.EOF) || int64(len(seqs)) != total-1 || seqs[0] != 2 {
		t.Errorf("got %v of %d, %v", seqs, total, err)
	}
}

func TestWatchFilters(t *testing.T) {
	r := newRig(t, smallPages)
	for _, id := range []string{"m-1", "m-2"} {
		r.register(&pb.Machine{MachineId: id})
		r.maintenance(id)
	}
	err := read(t.Context(), r, &pb.WatchOperationsRequest{FromBeginning: true, Filter: "machine_id=m-2,phase=SUCCEEDED"}, func(ev *pb.OperationEvent) error {
		if ev.GetSnapshot().GetMachineId() != "m-2" || ev.GetSnapshot().GetPhase() != pb.Operation_SUCCEEDED {
			t.Errorf("the filter let through %v", ev)
		}
		if ev.GetKind() == "succeeded" {
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		t.Fatal(err)
	}
}

func TestWatchRuns(t *testing.T) {
	r := newRig(t, smallPages)
	r.register(&pb.Machine{MachineId: "m-1"})
	op := r.enter("m-1", "q").GetOperationId()
	s, err := r.runs.WatchRuns(t.Context(), &pb.WatchRunsRequest{Filter: "run_id=" + op})
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
			r.look(op)
			r.look(op)
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
	r := newRig(t, smallPages, func(c *frontpage.Config) { c.Draining = stopping })
	r.register(&pb.Machine{MachineId: "m-1"})
	op := r.enter("m-1", "q").GetOperationId()
	logs, err := r.operations.StreamOperationLogs(t.Context(), &pb.StreamOperationLogsRequest{OperationId: op})
	if err != nil {
		t.Fatal(err)
	}
	err = read(t.Context(), r, &pb.WatchOperationsRequest{}, func(*pb.OperationEvent) error { stop(); return nil })
	wants(t, err, failure.KindUnavailable, "CONTROLLER_DRAINING", "")
	_, err = logs.Recv()
	wants(t, err, failure.KindUnavailable, "CONTROLLER_DRAINING", "")
}

func TestWatchEndsWithItsClient(t *testing.T) {
	r := newRig(t, smallPages)
	ctx, cancel := context.WithCancel(t.Context())
	r.register(&pb.Machine{MachineId: "m-1"})
	r.enter("m-1", "q")
	err := read(ctx, r, &pb.WatchOperationsRequest{}, func(*pb.OperationEvent) error { cancel(); return nil })
	if status.Code(err) != codes.Canceled {
		t.Errorf("ended with %v", err)
	}
}

// TestCursorOfAnotherIncarnation is refused: transaction numbers mean nothing in another history.
func TestCursorOfAnotherIncarnation(t *testing.T) {
	name := "one"
	r := newRig(t, smallPages, func(c *frontpage.Config) {
		c.Incarnation = func(context.Context) (string, error) { return name, nil }
	})
	r.register(&pb.Machine{MachineId: "m-1"})
	r.enter("m-1", "q")
	q := &pb.WatchOperationsRequest{}
	if err := read(t.Context(), r, q, func(ev *pb.OperationEvent) error { q.Cursor = ev.GetCursor(); return errStop }); !errors.Is(err, errStop) {
		t.Fatal(err)
	}
	name = "two"
	err := read(t.Context(), r, q, func(*pb.OperationEvent) error { return errStop })
	wants(t, err, failure.KindPrecondition, "CURSOR_EXPIRED", "cursor")
}
