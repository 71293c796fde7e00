package machine_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func quick(c *service.Config) {
	c.PageRows, c.PollEvery, c.BookmarkEvery = 3, 20*time.Millisecond, 50*time.Millisecond
}

// watch hands messages on until each returns an error; publictest.ErrStop ends it well.
func watch(
	ctx context.Context,
	r *publictest.Rig,
	q *pb.WatchMachinesRequest,
	each func(*pb.MachineEvent) error,
) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := r.Machines.WatchMachines(ctx, q)
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

// settle waits until no transaction of the server is older than what was written so far. While there is one, also of
// another test, a watch may repeat what a list has shown.
func settle(r *publictest.Rig) {
	r.T.Helper()
	pool := r.Store.DB.Pool()
	var own string
	if err := pool.QueryRow(r.T.Context(), "SELECT pg_current_xact_id()::text").Scan(&own); err != nil {
		r.T.Fatal(err)
	}
	testkit.Eventually(r.T, time.Minute, func() bool {
		var over bool
		const query = "SELECT pg_snapshot_xmin(pg_current_snapshot()) > $1::text::xid8"
		return pool.QueryRow(r.T.Context(), query, own).Scan(&over) == nil && over
	}, "an older transaction goes on")
}

// script watches, and compares what comes: "CURRENT m-1". What stands behind such a line is done when it has come. Of
// bookmarks only those that the script waits for count.
func script(r *publictest.Rig, q *pb.WatchMachinesRequest, steps ...any) {
	r.T.Helper()
	settle(r)
	at := 0
	next := func() error {
		for at < len(steps) {
			do, ok := steps[at].(func())
			if !ok {
				return nil
			}
			at++
			do()
		}
		return publictest.ErrStop
	}
	ctx, cancel := context.WithTimeout(r.T.Context(), time.Minute)
	defer cancel()
	err := watch(ctx, r, q, func(ev *pb.MachineEvent) error {
		q.Cursor = ev.GetCursor()
		got := strings.TrimSpace(ev.GetKind().String() + " " + ev.GetMachine().GetMachineId())
		if got == "BOOKMARK" && steps[at] != got {
			return nil
		}
		if ev.GetCursor() == "" || steps[at] != got {
			return fmt.Errorf("%q came with cursor %q, want %v", got, ev.GetCursor(), steps[at])
		}
		at++
		return next()
	})
	if !errors.Is(err, publictest.ErrStop) {
		r.T.Fatalf("at step %d, %v: %v", at, steps[min(at, len(steps)-1)], err)
	}
}

// change sets a machine's rack.
func change(r *publictest.Rig, id, rack string) func() {
	return func() {
		r.T.Helper()
		_, err := r.Machines.UpdateMachine(r.T.Context(),
			&pb.UpdateMachineRequest{Machine: &pb.Machine{MachineId: id, Spec: &pb.MachineSpec{Rack: rack}}})
		if err != nil {
			r.T.Error(err)
		}
	}
}

func remove(r *publictest.Rig, id string) func() {
	return func() {
		r.T.Helper()
		if _, err := r.Machines.DeleteMachine(r.T.Context(), &pb.DeleteMachineRequest{MachineId: id}); err != nil {
			r.T.Error(err)
		}
	}
}

func TestWatchMachines(t *testing.T) {
	r := publictest.NewRig(t, quick)
	for i := range 4 {
		m := publictest.NewMachine(i)
		m.Spec.Rack = fmt.Sprint("r", i%2)
		r.Register(m)
	}
	q := &pb.WatchMachinesRequest{Filter: "rack=r1"}
	script(r, q, "CURRENT m-001", "CURRENT m-003", "BOOKMARK",
		change(r, "m-000", "r2"), change(r, "m-002", "r1"), "CHANGED m-002", // m-000 did not match, and does not
		change(r, "m-001", "r2"), "LEFT m-001",
		change(r, "m-001", "r3"), remove(r, "m-000"), remove(r, "m-003"), "DELETED m-003",
		func() { r.Register(&pb.Machine{MachineId: "m-new", Spec: &pb.MachineSpec{Rack: "r1"}}) }, "CHANGED m-new",
		"BOOKMARK")
	// What happens while nobody listens comes after the resume; the client may have had any machine.
	change(r, "m-new", "r9")()
	change(r, "m-001", "r4")()
	script(r, q, "LEFT m-new", "LEFT m-001", change(r, "m-001", "r5"), change(r, "m-001", "r1"), "CHANGED m-001")
}

// A watch of everything knows no machine by itself: nothing leaves it.
func TestWatchAllMachines(t *testing.T) {
	r := publictest.NewRig(t, quick)
	r.Register(publictest.NewMachine(1))
	script(r, &pb.WatchMachinesRequest{}, "CURRENT m-001", "BOOKMARK", change(r, "m-001", "r1"), "CHANGED m-001",
		remove(r, "m-001"), "DELETED m-001")
}

// A watch goes on from any of its cursors, in the middle of its beginning, too, and from that of a list.
func TestWatchResumes(t *testing.T) {
	r := publictest.NewRig(t, quick)
	var want []string
	for i := range 7 {
		r.Register(publictest.NewMachine(i))
		want = append(want, "CURRENT "+publictest.NewMachine(i).GetMachineId())
	}
	settle(r) // a cursor made beside an older transaction repeats what that one's end may have hidden
	list, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	q := &pb.WatchMachinesRequest{Filter: "phase=FACTORY_READY"}
	for _, line := range want {
		script(r, q, line)
	}
	change(r, "m-000", "r1")()
	change(r, "m-006", "r1")()
	script(r, q, "BOOKMARK", "CHANGED m-000")
	script(r, q, "CHANGED m-006", "BOOKMARK")
	script(r, &pb.WatchMachinesRequest{Cursor: list.GetNextCursor()}, "CHANGED m-000", "CHANGED m-006", "BOOKMARK")
	// Its own cursor is one of a list, too.
	changes, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{Cursor: q.GetCursor()})
	if err != nil || len(changes.GetMachines()) != 0 {
		t.Errorf("a list from the cursor of a watch: %v, %v", changes, err)
	}
}

func TestWatchesThatAreRefused(t *testing.T) {
	r := publictest.NewRig(t, quick)
	for i := range 2 {
		r.Register(publictest.NewMachine(i))
	}
	q := &pb.WatchMachinesRequest{}
	script(r, q, "CURRENT m-000")
	refused := func(q *pb.WatchMachinesRequest, kind failure.Kind, reason, field string) {
		t.Helper()
		err := watch(t.Context(), r, q, func(ev *pb.MachineEvent) error { return fmt.Errorf("came: %v", ev) })
		publictest.Wants(t, err, kind, reason, field)
	}
	refused(&pb.WatchMachinesRequest{Filter: "colour=red"}, failure.KindInvalid, "INVALID_FILTER", "filter")
	refused(&pb.WatchMachinesRequest{Cursor: "nonsense"}, failure.KindInvalid, "INVALID_CURSOR", "cursor")
	refused(&pb.WatchMachinesRequest{Cursor: "list.nonsense"}, failure.KindInvalid, "INVALID_CURSOR", "cursor")
	refused(&pb.WatchMachinesRequest{Cursor: q.GetCursor(), Filter: "rack=r1"}, failure.KindInvalid, "INVALID_CURSOR",
		"cursor")
	_, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{Cursor: q.GetCursor()})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_CURSOR", "cursor")
	list, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Store.DB.Pool().Exec(t.Context(), "UPDATE cluster_state SET incarnation = 'another'"); err != nil {
		t.Fatal(err)
	}
	refused(&pb.WatchMachinesRequest{Cursor: list.GetNextCursor()}, failure.KindPrecondition, "CURSOR_EXPIRED", "cursor")
	refused(q, failure.KindPrecondition, "CURSOR_EXPIRED", "cursor")
}

// A watch that is under way ends with the history that it follows.
func TestWatchEndsWithItsIncarnation(t *testing.T) {
	r := publictest.NewRig(t, quick)
	err := watch(t.Context(), r, &pb.WatchMachinesRequest{}, func(*pb.MachineEvent) error {
		_, err := r.Store.DB.Pool().Exec(t.Context(), "UPDATE cluster_state SET incarnation = 'another'")
		return err
	})
	publictest.Wants(t, err, failure.KindPrecondition, "CURSOR_EXPIRED", "cursor")
}

// TestWatchMissesNothing: a client that applies what comes has in the end what a list shows, whatever happens meanwhile
// and however often it is cut off.
func TestWatchMissesNothing(t *testing.T) {
	r := publictest.NewRig(t, quick)
	const machines, changes = 12, 120
	for i := range machines {
		r.Register(publictest.NewMachine(i))
	}
	done := make(chan struct{})
	task.Background("change machines", func() {
		defer close(done)
		for i := range changes {
			change(r, publictest.NewMachine(i*7%machines).GetMachineId(), fmt.Sprint("r", i*i%3))()
		}
	})
	has := map[string]int64{}
	q := &pb.WatchMachinesRequest{Filter: "rack=r1"}
	// some takes messages until enough have come.
	some := func(enough func(messages, bookmarks int) bool) {
		t.Helper()
		messages, bookmarks := 0, 0
		err := watch(t.Context(), r, q, func(ev *pb.MachineEvent) error {
			q.Cursor = ev.GetCursor()
			switch id := ev.GetMachine().GetMachineId(); ev.GetKind() {
			case pb.MachineEvent_CURRENT, pb.MachineEvent_CHANGED:
				has[id] = ev.GetMachine().GetVersion()
			case pb.MachineEvent_LEFT, pb.MachineEvent_DELETED:
				delete(has, id)
			case pb.MachineEvent_BOOKMARK:
				bookmarks++
			}
			if messages++; enough(messages, bookmarks) {
				return publictest.ErrStop
			}
			return nil
		})
		if !errors.Is(err, publictest.ErrStop) {
			t.Fatal(err)
		}
	}
	for over := false; !over; {
		some(func(messages, _ int) bool { return messages == 5 })
		select {
		case <-done:
			over = true
		default:
		}
	}
	// The first may be of before the last changes, where the watch begins anew.
	some(func(_, bookmarks int) bool { return bookmarks == 2 })
	list, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{Filter: "rack=r1"})
	if err != nil || len(list.GetMachines()) == 0 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, m := range list.GetMachines() {
		if has[m.GetMachineId()] != m.GetVersion() {
			t.Errorf("%s has version %d, and the client %d", m.GetMachineId(), m.GetVersion(), has[m.GetMachineId()])
		}
		delete(has, m.GetMachineId())
	}
	if len(has) > 0 {
		t.Errorf("the client has machines that do not match: %v", has)
	}
}
