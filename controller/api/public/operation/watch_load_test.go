package operation_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/operationlog"
	"github.com/ingot-metal/ingot/internal/task"
)

// churn makes operations on machines of its own until it has made n, each of them to its end.
func churn(r *publictest.Rig, ctx context.Context, writer, n int) error {
	id := fmt.Sprintf("m-w%d", writer)
	if _, err := r.Store.Machines.Register(ctx, &pb.Machine{MachineId: id}, "test", time.Now()); err != nil {
		return err
	}
	for i := range n {
		kind := fleet.EnterMaintenance
		if i%2 == 1 {
			kind = fleet.ExitMaintenance
		}
		op, err := r.Engine.Start(ctx, operationstore.StartRequest{MachineID: id, RequestID: fmt.Sprint(i), Type: kind,
			Actor: "test"})
		if err != nil {
			return err
		}
		for op.GetFinishedAt() == nil {
			if err := r.Engine.Look(ctx, op.GetOperationId()); err != nil {
				return err
			}
			if op, err = r.Store.OperationQueries.GetOperation(ctx, op.GetOperationId()); err != nil {
				return err
			}
		}
	}
	return nil
}

// disturb keeps transactions open that have ids: whatever commits meanwhile sorts after them and must wait.
func disturb(r *publictest.Rig, ctx context.Context, until <-chan struct{}) error {
	for i := 0; ; i++ {
		tx, err := r.Store.DB.Pool().Begin(ctx)
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
func load(r *publictest.Rig, g *task.Group, writers, each int) <-chan struct{} {
	done := make(chan struct{})
	g.Go("writers", func(ctx context.Context) error {
		defer close(done)
		w, _ := task.New(ctx)
		for i := range writers {
			w.Go("writer", func(ctx context.Context) error { return churn(r, ctx, i, each) })
		}
		return w.Wait()
	})
	g.Go("open transactions", func(ctx context.Context) error { return disturb(r, ctx, done) })
	return done
}

type eventKey struct {
	operation string
	seq       int64
}

// stored is every event, in the order of each operation.
func stored(r *publictest.Rig, ctx context.Context) (map[eventKey]*pb.Operation, error) {
	out := map[eventKey]*pb.Operation{}
	var at operationlog.FeedPos
	for {
		page, err := r.Store.Logs.Feed(ctx, at, 1000)
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
	r := publictest.NewRig(t, smallPages)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g, _ := task.New(ctx)
	const writers, each = 4, 12
	done := load(r, g, writers, each)
	for range 3 {
		g.Go("reader", func(ctx context.Context) error { return readAll(r, ctx, done, writers*each) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

func readAll(r *publictest.Rig, ctx context.Context, done <-chan struct{}, operations int) error {
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
				return publictest.ErrStop
			}
			return nil
		})
		if !errors.Is(err, publictest.ErrStop) {
			return err
		}
	}
	<-done
	all, err := stored(r, ctx)
	if err == nil && len(all) != len(seen) {
		err = fmt.Errorf("saw %d of %d events", len(seen), len(all))
	}
	return err
}

// TestWatchBeginsWithWhatIsActive: a watch that starts in the middle gets the state of what is active and then exactly
// what follows it.
func TestWatchBeginsWithWhatIsActive(t *testing.T) {
	r := publictest.NewRig(t, smallPages)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	g, _ := task.New(ctx)
	for i := range 7 { // more than two pages that stay active
		r.Register(publictest.NewMachine(i))
		r.Enter(publictest.NewMachine(i).GetMachineId(), "q")
	}
	load(r, g, 3, 10)
	for range 4 {
		g.Go("reader", func(ctx context.Context) error { return readFromNow(r, ctx) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

type tale struct {
	current int64 // version of the state that came first; 0 for none
	seqs    []int64
}

func readFromNow(r *publictest.Rig, ctx context.Context) error {
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
			return markOff(r, ctx, mark)
		}
		if ev.GetSnapshot().GetMachineId() == mark && ev.GetKind() == "succeeded" {
			return publictest.ErrStop
		}
		return nil
	})
	if !errors.Is(err, publictest.ErrStop) {
		return err
	}
	return checkTales(r, ctx, tales)
}

func markOff(r *publictest.Rig, ctx context.Context, machineID string) error {
	if _, err := r.Store.Machines.Register(ctx, &pb.Machine{MachineId: machineID}, "test", time.Now()); err != nil {
		return err
	}
	op, err := r.Engine.Start(ctx, operationstore.StartRequest{MachineID: machineID, RequestID: "q",
		Type: fleet.EnterMaintenance})
	for i := 0; err == nil && i < 2; i++ {
		err = r.Engine.Look(ctx, op.GetOperationId())
	}
	return err
}

// checkTales: numbers without gaps, beginning with the first change after the state that came first.
func checkTales(r *publictest.Rig, ctx context.Context, tales map[string]*tale) error {
	for id, got := range tales {
		all, err := r.Store.Logs.EventsOf(ctx, id, 0, 1000)
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
