package state_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/state"
)

var t0 = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

func open(t *testing.T, cfg state.Config) *state.Store {
	t.Helper()
	s, err := state.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func receive(t *testing.T, s *state.Store, id string) {
	t.Helper()
	_, known, err := s.Receive(t.Context(), state.Command{ID: id, TargetID: "m", Spec: []byte("spec"), BootID: "b1",
		ReceivedAt: t0})
	if err != nil || known {
		t.Fatalf("receive %s: known %v, %v", id, known, err)
	}
}

func TestALifeOfACommand(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{Dir: t.TempDir()})
	ctx := t.Context()
	receive(t, s, "c")
	if err := s.Settle(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	must(t, s.Start(ctx, "c", []byte(`{"boot":"b1"}`), nil, t0))
	if err := s.Start(ctx, "c", nil, nil, t0); !errors.Is(err, state.ErrConflict) {
		t.Fatalf("started twice: %v", err)
	}
	stored, known, err := s.Receive(ctx, state.Command{ID: "c", TargetID: "other", ReceivedAt: t0})
	if err != nil || !known || stored.State != state.Started || stored.TargetID != "m" ||
		string(stored.Intent) != `{"boot":"b1"}` {
		t.Fatalf("repeat gave %+v, %v, %v", stored, known, err)
	}
	if stored.Settled {
		t.Fatal("a command that is not done was settled")
	}
	must(t, s.Unstart(ctx, "c"))
	must(t, s.Start(ctx, "c", []byte(`{}`), nil, t0))
	must(t, s.Finish(ctx, "c", []byte("first"), t0))
	if err := s.Finish(ctx, "c", []byte("second"), t0); !errors.Is(err, state.ErrConflict) {
		t.Fatalf("finished twice: %v", err)
	}
	c, found, err := s.Command(ctx, "c")
	if err != nil || !found || string(c.Result) != "first" || !c.DoneAt.Equal(t0) {
		t.Fatalf("got %+v, %v, %v", c, found, err)
	}
}

func TestOnlySettledCommandsAreEverEvicted(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{Dir: t.TempDir()})
	ctx := t.Context()
	for _, id := range []string{"received", "started", "done", "settled-old", "settled-new"} {
		receive(t, s, id)
	}
	must(t, s.Start(ctx, "started", []byte("{}"), nil, t0))
	must(t, s.Finish(ctx, "done", []byte("r"), t0))
	must(t, s.Finish(ctx, "settled-old", []byte("r"), t0))
	must(t, s.Finish(ctx, "settled-new", []byte("r"), t0.Add(state.Retention)))
	must(t, s.Settle(ctx, "settled-old"))
	must(t, s.Settle(ctx, "settled-new"))
	if n, err := s.Evict(ctx, t0.Add(state.Retention)); n != 0 || err != nil {
		t.Fatalf("evicted %d at seven days sharp, %v", n, err)
	}
	if n, err := s.Evict(ctx, t0.Add(state.Retention+time.Second)); n != 1 || err != nil {
		t.Fatalf("evicted %d, %v", n, err)
	}
	// A clock that jumped to 2090 evicts settled commands and nothing else.
	if n, err := s.Evict(ctx, t0.AddDate(64, 0, 0)); n != 1 || err != nil {
		t.Fatalf("evicted %d, %v", n, err)
	}
	list, err := s.Unsettled(ctx)
	must(t, err)
	if len(list) != 3 {
		t.Fatalf("left are %d", len(list))
	}
}

func TestEverythingSurvivesARestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := state.Open(t.Context(), state.Config{Dir: dir})
	must(t, err)
	ctx := t.Context()
	receive(t, s, "c")
	must(t, s.Start(ctx, "c", []byte("{}"), nil, t0))
	first, err := s.NextGrantSeqs(ctx, "c")
	if err != nil || len(first[0].Earlier) != 0 {
		t.Fatalf("the first ask knows of %v before it, %v", first, err)
	}
	seq := first[0].Seq
	must(t, s.Lock(ctx, "why"))
	must(t, s.SawControllerTime(ctx, t0))
	must(t, s.SawControllerTime(ctx, t0.Add(-time.Hour)))
	must(t, s.Append(ctx, report("r1"), t0))
	before, err := s.Meta(ctx)
	must(t, err)
	must(t, s.Close())
	if _, err := s.Meta(ctx); !errors.Is(err, state.ErrFenced) {
		t.Fatalf("closed store: %v", err)
	}
	s = open(t, state.Config{Dir: dir})
	after, err := s.Meta(ctx)
	must(t, err)
	if after != before || seq == 0 || after.LastGrantSeq != seq || after.LastEventSeq != 1 ||
		!after.ControllerTime.Equal(t0) || after.LockedReason != "why" {
		t.Fatalf("before %+v, after %+v", before, after)
	}
	next, err := s.NextGrantSeqs(ctx, "c", "another", "c")
	if err != nil || next[0].Seq <= seq || next[1].Seq <= next[0].Seq || next[2].Seq <= next[1].Seq ||
		!slices.Equal(next[0].Earlier, []uint64{seq}) || len(next[1].Earlier) != 0 ||
		!slices.Equal(next[2].Earlier, []uint64{seq, next[0].Seq}) {
		t.Fatalf("the asks after %d are %v, %v", seq, next, err)
	}
	list, err := s.Unsettled(ctx)
	if err != nil || len(list) != 1 || list[0].State != state.Started {
		t.Fatalf("commands %+v, %v", list, err)
	}
}

func TestAFencedHandleWritesNothing(t *testing.T) {
	t.Parallel()
	for _, memory := range []bool{false, true} {
		s := open(t, state.Config{Dir: t.TempDir(), InMemory: memory})
		receive(t, s, "c")
		next := s.Reopen()
		if err := s.Start(t.Context(), "c", []byte("{}"), nil, t0); !errors.Is(err, state.ErrFenced) {
			t.Fatalf("fenced handle: %v", err)
		}
		c, found, err := next.Command(t.Context(), "c")
		if err != nil || !found || c.State != state.Received {
			t.Fatalf("in memory %v: %+v, %v, %v", memory, c, found, err)
		}
	}
}

func report(kind string) *fleetv1.Event {
	return &fleetv1.Event{Body: &fleetv1.Event_Report{Report: &fleetv1.Report{Kind: kind}}}
}

func progress() *fleetv1.Event {
	return &fleetv1.Event{Body: &fleetv1.Event_Progress{Progress: &fleetv1.ProgressReport{}}}
}

func logLine() *fleetv1.Event {
	return &fleetv1.Event{Body: &fleetv1.Event_Log{Log: &fleetv1.LogLines{}}}
}

func heartbeat() *fleetv1.Event {
	return &fleetv1.Event{Body: &fleetv1.Event_Heartbeat{Heartbeat: &fleetv1.Heartbeat{}}}
}

func inventory() *fleetv1.Event {
	return &fleetv1.Event{Body: &fleetv1.Event_Inventory{Inventory: &fleetv1.InventoryReport{}}}
}

func TestTheCapTakesTheLowestPriorityFirst(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{Dir: t.TempDir(), MaxEvents: 5})
	ctx := t.Context()
	for _, e := range []*fleetv1.Event{report("a"), inventory(), heartbeat(), logLine(), progress(), progress(), logLine(),
		report("b"), report("c"), inventory(), logLine()} {
		must(t, s.Append(ctx, e, t0))
	}
	list, err := s.Events(ctx, 0, 100, t0)
	must(t, err)
	var got []string
	for _, e := range list {
		got = append(got, fmt.Sprintf("%d:%T", e.GetSeq(), e.GetBody()))
	}
	want := []string{
		"1:*fleetv1.Event_Report", "2:*fleetv1.Event_Inventory", "8:*fleetv1.Event_Report", "9:*fleetv1.Event_Report",
		"10:*fleetv1.Event_Inventory", "12:*fleetv1.Event_Dropped",
	}
	if !slices.Equal(got, want) {
		t.Fatalf("got  %v\nwant %v", got, want)
	}
	dropped := list[len(list)-1].GetDropped().GetByPriority()
	if fmt.Sprint(dropped) != "map[heartbeat:1 log:3 progress:2]" {
		t.Fatalf("dropped %v", dropped)
	}
	// The notice comes once, and is acknowledged like any other.
	list, err = s.Events(ctx, 10, 100, t0)
	if err != nil || len(list) != 1 {
		t.Fatalf("got %d, %v", len(list), err)
	}
	must(t, s.Trim(ctx, 12))
	if n, err := s.BufferedEvents(ctx); n != 0 || err != nil {
		t.Fatalf("%d left, %v", n, err)
	}
	must(t, s.Append(ctx, report("d"), t0))
	list, err = s.Events(ctx, 0, 100, t0)
	if err != nil || len(list) != 1 || list[0].GetSeq() != 13 {
		t.Fatalf("numbers do not go on: %v, %v", list, err)
	}
}

func TestTheCapIsTenThousand(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{InMemory: true})
	for range state.MaxEvents + 3 {
		must(t, s.Append(t.Context(), logLine(), t0))
	}
	if n, err := s.BufferedEvents(t.Context()); n != 10_000 || err != nil {
		t.Fatalf("%d buffered, %v", n, err)
	}
	list, err := s.Events(t.Context(), 0, 1, t0)
	if err != nil || list[0].GetSeq() != 4 {
		t.Fatalf("the oldest is %v, %v", list, err)
	}
}

func TestAFullDiskLosesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{Dir: t.TempDir()})
	ctx := t.Context()
	receive(t, s, "before")
	must(t, s.LimitBytes(ctx, 1)) // no page more than there are
	big := make([]byte, 64<<10)
	_, _, err := s.Receive(ctx, state.Command{ID: "big", TargetID: "m", Spec: big, ReceivedAt: t0})
	if !errors.Is(err, state.ErrStorageFull) {
		t.Fatalf("got %v", err)
	}
	if err := s.Finish(ctx, "before", big, t0); !errors.Is(err, state.ErrStorageFull) {
		t.Fatalf("got %v", err)
	}
	if _, found, err := s.Command(ctx, "big"); found || err != nil {
		t.Fatalf("half of it is there: %v, %v", found, err)
	}
	must(t, s.LimitBytes(ctx, 0))
	must(t, s.Finish(ctx, "before", big, t0))
}

func TestNewStateIDGivesUpWhatIsOpen(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{Dir: t.TempDir()})
	ctx := t.Context()
	for _, id := range []string{"open", "done"} {
		receive(t, s, id)
	}
	must(t, s.Finish(ctx, "done", []byte("mine"), t0))
	old, err := s.StateID(ctx)
	must(t, err)
	id, err := s.NewStateID(ctx, t0, func(c state.Command, was string) ([]byte,
		error) {
		return []byte("lost " + c.ID + " " + was), nil
	})
	must(t, err)
	if now, err := s.StateID(ctx); err != nil || now != id || id == old {
		t.Fatalf("state id %s, was %s, %v", now, old, err)
	}
	for cmd, want := range map[string]string{"open": "lost open " + old, "done": "mine"} {
		c, _, err := s.Command(ctx, cmd)
		if err != nil || c.State != state.Done || string(c.Result) != want {
			t.Fatalf("%s: %+v, %v", cmd, c, err)
		}
	}
}

// Events that a copy shares with its original are deleted as far as the original has delivered them. Those that the
// copy has added are kept, though the original has used their numbers too.
func TestEventsOfAMemoryGivenUp(t *testing.T) {
	t.Parallel()
	for stored, want := range map[uint64][]string{0: {"1", "2", "3", "mine", "later"}, 2: {"3", "mine", "later"},
		9: {"mine", "later"}} {
		s := open(t, state.Config{Dir: t.TempDir()})
		ctx := t.Context()
		line := func(text string) {
			must(t, s.Append(ctx, &fleetv1.Event{Body: &fleetv1.Event_Log{Log: &fleetv1.LogLines{Data: []byte(text)}}}, t0))
		}
		for _, text := range []string{"1", "2", "3"} {
			line(text)
		}
		must(t, s.Doubt(ctx))
		line("mine")
		must(t, s.Doubt(ctx)) // the copy's first process ended before it had a session
		old, err := s.StateID(ctx)
		must(t, err)
		_, err = s.NewStateID(ctx, t0, nil)
		must(t, err)
		line("later")
		if m, err := s.Meta(ctx); err != nil || !m.InDoubt || m.PreviousStateID != old {
			t.Fatalf("%+v, %v", m, err)
		}
		must(t, s.Recognized(ctx, stored))
		if m, err := s.Meta(ctx); err != nil || m.InDoubt || m.PreviousStateID != "" {
			t.Fatalf("%+v, %v", m, err)
		}
		list, err := s.Events(ctx, 0, 10, t0)
		must(t, err)
		var got []string
		for _, e := range list {
			got = append(got, string(e.GetLog().GetData()))
		}
		if !slices.Equal(got, want) {
			t.Errorf("with %d stored: %v", stored, got)
		}
	}
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{Dir: t.TempDir()})
	ctx := t.Context()
	var got map[string]int
	if found, err := s.GetJSON(ctx, "k", &got); found || err != nil {
		t.Fatalf("found %v, %v", found, err)
	}
	must(t, s.PutJSON(ctx, "k", map[string]int{"a": 1}))
	if found, err := s.GetJSON(ctx, "k", &got); !found || err != nil || got["a"] != 1 {
		t.Fatalf("got %v, %v, %v", got, found, err)
	}
	must(t, s.PutJSON(ctx, "k", nil))
	if found, err := s.GetJSON(ctx, "k", &got); found || err != nil {
		t.Fatalf("found %v, %v", found, err)
	}
}

func TestClaimIsForOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	release, err := state.Claim(dir)
	must(t, err)
	if _, err := state.Claim(dir); !errors.Is(err, state.ErrInUse) {
		t.Fatalf("claimed twice: %v", err)
	}
	must(t, release())
	release, err = state.Claim(dir)
	must(t, err)
	must(t, release())
}

// A child between fork and exec has the files of its parent.
func TestAClaimEndsThoughAChildSharesItsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	release, err := state.Claim(dir)
	must(t, err)
	open, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	shared := -1
	for _, f := range open {
		if name, err := os.Readlink("/proc/self/fd/" + f.Name()); err == nil && name == filepath.Join(dir, "agent.lock") {
			fd, err := strconv.Atoi(f.Name())
			must(t, err)
			shared, err = unix.Dup(fd)
			must(t, err)
		}
	}
	if shared < 0 {
		t.Fatal("the lock's file is not open")
	}
	must(t, release())
	release, err = state.Claim(dir)
	must(t, err)
	must(t, release())
	must(t, unix.Close(shared))
}

func TestADirectoryNameMayHoldAnything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() + "/a b?c#d%41&e"
	must(t, os.Mkdir(dir, 0o700))
	s := open(t, state.Config{Dir: dir})
	receive(t, s, "c")
	if _, err := os.Stat(dir + "/" + state.FileName); err != nil {
		t.Fatal(err)
	}
}
