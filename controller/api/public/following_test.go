package public_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func site(id, site, rack string) *pb.Machine {
	return &pb.Machine{MachineId: id, Spec: &pb.MachineSpec{Provider: "fake", Site: site, Rack: rack}}
}

// follower is a client that is held to selections.
type follower struct {
	r      *publictest.Rig
	ctx    context.Context
	cursor string
}

// next reads changes until something comes, and returns it as "m-1 r1" for machines and "m-1 gone" for tombstones.
func (f *follower) next(t *testing.T) (out []string) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() bool {
		for more := true; more; {
			page, err := f.r.Machines.ListMachines(f.ctx, &pb.ListMachinesRequest{Cursor: f.cursor})
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range page.GetMachines() {
				out = append(out, m.GetMachineId()+" "+told(m))
			}
			f.cursor, more = page.GetNextCursor(), page.GetMore()
		}
		return len(out) > 0
	}, "nothing comes")
	return out
}

// told is the rack of a machine, "gone" for a tombstone that shows nothing else, and the message otherwise.
func told(m *pb.Machine) string {
	switch {
	case proto.Equal(m, &pb.Machine{MachineId: m.GetMachineId(), DeletedAt: m.GetDeletedAt()}):
		return "gone"
	case m.GetDeletedAt() != nil || m.GetSpec().GetSite() != "a":
		return m.String()
	}
	return m.GetSpec().GetRack()
}

// A caller with a selection follows its machines by the cursor: one that leaves is gone, whatever becomes of it.
func TestChangesWithinASelection(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 4 {
		r.Register(site(fmt.Sprint("m-", i), []string{"a", "b"}[i%2], "r1"))
	}
	f := &follower{r: r, ctx: publictest.Within(t.Context(), "site=a")}
	list, err := r.Machines.ListMachines(f.ctx, &pb.ListMachinesRequest{})
	if err != nil || len(list.GetMachines()) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	update := func(m *pb.Machine) {
		t.Helper()
		if _, err := r.Machines.UpdateMachine(t.Context(), &pb.UpdateMachineRequest{Machine: m}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want ...string) {
		t.Helper()
		if got := f.next(t); !slices.Equal(got, want) {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	// What was registered a moment ago may come once more: a page ends before the oldest open transaction.
	f.cursor = list.GetNextCursor()
	update(site("m-0", "a", "r2"))
	for !slices.Contains(f.next(t), "m-0 r2") {
	}
	update(site("m-1", "b", "secret")) // outside, before and after
	update(site("m-0", "b", "secret"))
	expect("m-0 gone")
	update(site("m-0", "b", "secret2")) // outside: nothing more
	update(site("m-3", "a", "r3"))
	expect("m-3 r3")
	if _, err := r.Machines.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{MachineId: "m-3"}); err != nil {
		t.Fatal(err)
	}
	expect("m-3 gone")
	update(site("m-2", "b", "secret"))
	update(site("m-2", "a", "r4")) // out and in again: it is inside
	expect("m-2 r4")
	update(site("m-0", "a", "r5"))
	expect("m-0 r5")
	// A cursor is good for its selections.
	for _, ctx := range []context.Context{t.Context(), publictest.Within(t.Context(), "site=b"),
		publictest.Within(t.Context(), "site=a", "site=b")} {
		_, err := r.Machines.ListMachines(ctx, &pb.ListMachinesRequest{Cursor: f.cursor})
		publictest.Wants(t, err, failure.KindPrecondition, "CURSOR_EXPIRED", "cursor")
		s, err := r.Machines.WatchMachines(ctx, &pb.WatchMachinesRequest{Cursor: f.cursor})
		if err == nil {
			_, err = s.Recv()
		}
		publictest.Wants(t, err, failure.KindPrecondition, "CURSOR_EXPIRED", "cursor")
	}
}

// A watch within a selection reports machines that leave, by the id alone, and goes on by its cursors.
func TestWatchWithinASelection(t *testing.T) {
	r := publictest.NewRig(t, func(c *service.Config) { c.PollEvery, c.BookmarkEvery = 20*time.Millisecond, time.Hour })
	r.Register(site("m-0", "a", "r1"))
	r.Register(site("m-1", "b", "r1"))
	update := func(m *pb.Machine) {
		t.Helper()
		if _, err := r.Machines.UpdateMachine(t.Context(), &pb.UpdateMachineRequest{Machine: m}); err != nil {
			t.Error(err)
		}
	}
	cursor := ""
	script := func(steps ...any) {
		t.Helper()
		ctx, cancel := context.WithTimeout(publictest.Within(t.Context(), "site=a"), time.Minute)
		defer cancel()
		s, err := r.Machines.WatchMachines(ctx, &pb.WatchMachinesRequest{Cursor: cursor})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range steps {
			if do, ok := step.(func()); ok {
				do()
				continue
			}
			for got := ""; got != step; {
				ev, err := s.Recv()
				if err != nil {
					t.Fatalf("waiting for %q: %v", step, err)
				}
				cursor = ev.GetCursor()
				got = strings.TrimSpace(ev.GetKind().String() + " " + ev.GetMachine().GetMachineId())
				if ev.GetMachine() != nil {
					got += " " + told(ev.GetMachine())
				}
				// What was registered a moment ago may come once more.
				if got != step && got != "CHANGED m-0 r1" {
					t.Fatalf("%q, want %q", got, step)
				}
			}
		}
	}
	script("CURRENT m-0 r1", "BOOKMARK",
		func() { update(site("m-0", "a", "r2")) }, "CHANGED m-0 r2",
		func() { update(site("m-1", "b", "secret")); update(site("m-0", "b", "secret")) }, "LEFT m-0 gone",
		func() { update(site("m-1", "a", "r3")) }, "CHANGED m-1 r3",
		func() {
			if _, err := r.Machines.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{MachineId: "m-1"}); err != nil {
				t.Error(err)
			}
		}, "LEFT m-1 gone")
	update(site("m-0", "a", "r4"))
	script("CHANGED m-0 r4", func() { update(site("m-0", "c", "secret")) }, "LEFT m-0 gone")
}

// A caller with a selection lists and watches the work on its machines, and none on others.
func TestWorkWithinASelection(t *testing.T) {
	r := publictest.NewRig(t, func(c *service.Config) { c.PollEvery = 20 * time.Millisecond })
	r.Register(site("m-0", "a", "r1"))
	r.Register(site("m-1", "b", "r1"))
	start := func(id, request string) string {
		t.Helper()
		op, err := r.Machines.EnterMaintenance(t.Context(),
			&pb.EnterMaintenanceRequest{MachineId: id, RequestId: request})
		if err != nil {
			t.Fatal(err)
		}
		return op.GetOperationId()
	}
	inside, outside := start("m-0", "1"), start("m-1", "1")
	ctx := publictest.Within(t.Context(), "site=a")
	listed := func(ctx context.Context) (out []string) {
		t.Helper()
		ops, err := r.Operations.ListOperations(ctx, &pb.ListOperationsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		runs, err := r.Runs.ListRuns(ctx, &pb.ListRunsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range ops.GetOperations() {
			out = append(out, op.GetOperationId())
		}
		if len(runs.GetRuns()) != len(out) || int(ops.GetTotalSize()) != len(out) {
			t.Errorf("%d operations, %d runs, %d in all", len(out), len(runs.GetRuns()), ops.GetTotalSize())
		}
		return out
	}
	if got := listed(ctx); !slices.Equal(got, []string{inside}) {
		t.Errorf("%v, want %s", got, inside)
	}
	if got := listed(t.Context()); len(got) != 2 {
		t.Errorf("without a selection: %v", got)
	}
	if _, err := r.Workflows.ListWorkflows(ctx, &pb.ListWorkflowsRequest{}); err != nil {
		t.Error(err)
	}
	watching, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	s, err := r.Operations.WatchOperations(watching, &pb.WatchOperationsRequest{FromBeginning: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{outside, inside} {
		if err := r.Engine.Look(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	cursor := ""
	for range 2 {
		ev, err := s.Recv()
		if err != nil || ev.GetSnapshot().GetOperationId() != inside {
			t.Fatalf("%v, %v", ev, err)
		}
		cursor = ev.GetCursor()
	}
	other, err := r.Operations.WatchOperations(publictest.Within(t.Context(), "site=b"),
		&pb.WatchOperationsRequest{Cursor: cursor})
	if err == nil {
		_, err = other.Recv()
	}
	publictest.Wants(t, err, failure.KindPrecondition, "CURSOR_EXPIRED", "cursor")
	// A machine that leaves takes the streams about it along.
	one, err := r.Operations.StreamOperationLogs(watching, &pb.StreamOperationLogsRequest{OperationId: inside})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Machines.UpdateMachine(t.Context(),
		&pb.UpdateMachineRequest{Machine: site("m-0", "b", "r1")}); err != nil {
		t.Fatal(err)
	}
	if _, err = one.Recv(); err == nil {
		err = errors.New("a chunk has come")
	}
	publictest.Wants(t, err, failure.KindDenied, "OUTSIDE_SELECTION", "")
}
