package state_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/state"
)

// ample is a time within which everything that does not hang has ended.
const ample = time.Minute

// TestANewCommandIsAnsweredAsItIsStored: received, and neither started nor done.
func TestANewCommandIsAnsweredAsItIsStored(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{InMemory: true})
	got, known, err := s.Receive(t.Context(), state.Command{ID: "c", TargetID: "m", Spec: []byte("spec"), ReceivedAt: t0})
	if err != nil || known || got.ID != "c" || got.State != state.Received || string(got.Spec) != "spec" {
		t.Errorf("%+v, %v, %v", got, known, err)
	}
	c, found, err := s.Command(t.Context(), "c")
	if err != nil || !found || !c.ReceivedAt.Equal(t0) || !c.StartedAt.IsZero() || !c.DoneAt.IsZero() {
		t.Errorf("%+v, %v, %v", c, found, err)
	}
}

// TestTheGrantOfTheLastStartIsKept: also over a start that needs none, and a new state id.
func TestTheGrantOfTheLastStartIsKept(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{InMemory: true})
	for _, c := range []struct{ id, grant string }{{"a", "1"}, {"b", ""}} {
		receive(t, s, c.id)
		must(t, s.Start(t.Context(), c.id, nil, []byte(c.grant), t0))
		if m, err := s.Meta(t.Context()); err != nil || m.StartedGrant != "1" {
			t.Errorf("after %s: %q, %v", c.id, m.StartedGrant, err)
		}
	}
	id, err := s.NewStateID(t.Context(), t0, func(state.Command, string) ([]byte, error) { return nil, nil })
	must(t, err)
	if m, err := s.Meta(t.Context()); err != nil || m.StartedGrant != "1" || m.StateID != id || id == "" {
		t.Errorf("after a new state id: %+v, %v", m, err)
	}
}

// TestTheHashOfTheLastInventory: it is remembered with the event, which wakes the sender.
func TestTheHashOfTheLastInventory(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{InMemory: true})
	if hash, err := s.InventoryHash(t.Context()); hash != "" || err != nil {
		t.Errorf("of none: %q, %v", hash, err)
	}
	must(t, s.AppendInventory(t.Context(), &fleetv1.InventoryReport{Hash: "h1"}, t0))
	select {
	case <-s.Changed():
	default:
		t.Error("nobody is told of the inventory")
	}
	if hash, err := s.InventoryHash(t.Context()); hash != "h1" || err != nil {
		t.Errorf("%q, %v", hash, err)
	}
	s.Fence()
	if err := s.AppendInventory(t.Context(), &fleetv1.InventoryReport{Hash: "h2"}, t0); err == nil {
		t.Error("a fenced handle took an inventory")
	}
	select {
	case <-s.Changed():
		t.Error("says that an inventory was appended that was not")
	default:
	}
}

// TestTheStateOfTheLastFinding: it is remembered with its report, which wakes the sender, for each kind by itself. An
// old copy that takes a new state id has reported nothing.
func TestTheStateOfTheLastFinding(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{InMemory: true})
	is := func(when, kind, want string) {
		t.Helper()
		if got, err := s.Finding(t.Context(), kind); got != want || err != nil {
			t.Errorf("%s: the finding of %s is %q, %v, want %q", when, kind, got, err, want)
		}
	}
	is("at first", "raid", "")
	for _, found := range []string{"md0 degraded", "md0 well"} {
		must(t, s.AppendFinding(t.Context(), &fleetv1.Report{Kind: "raid"}, found, t0))
		select {
		case <-s.Changed():
		default:
			t.Errorf("the sender is not woken for %q", found)
		}
		is("after a report", "raid", found)
	}
	is("after a report of another kind", "update", "")
	list, err := s.Events(t.Context(), 0, 10, t0)
	if err != nil || len(list) != 2 || list[1].GetReport().GetKind() != "raid" {
		t.Errorf("the events are %v, %v", list, err)
	}
	_, err = s.NewStateID(t.Context(), t0, nil)
	must(t, err)
	is("of a new state id", "raid", "")
	s.Fence()
	if err := s.AppendFinding(t.Context(), &fleetv1.Report{Kind: "raid"}, "x", t0); !errors.Is(err, state.ErrFenced) {
		t.Errorf("a fenced handle took a finding: %v", err)
	}
	select {
	case <-s.Changed():
		t.Error("the sender is woken for a report that was not appended")
	default:
	}
}

// TestEveryFieldOfACommandIsKept: each stored field of a command is read back unchanged, by every call that reads it.
func TestEveryFieldOfACommandIsKept(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{InMemory: true})
	want := state.Command{
		ID: "c", TargetID: "m", Spec: []byte("spec"), Digest: []byte("digest"), State: state.Received, BootID: "b1",
		ReceivedAt: t0,
	}
	is := func(when string) {
		t.Helper()
		one, found, err := s.Command(t.Context(), "c")
		if err != nil || !found || !reflect.DeepEqual(one, want) {
			t.Errorf("%s: %+v, %t, %v, want %+v", when, one, found, err, want)
		}
		again, known, err := s.Receive(t.Context(), state.Command{ID: "c", TargetID: "other", ReceivedAt: t0.Add(9)})
		if err != nil || !known || !reflect.DeepEqual(again, want) {
			t.Errorf("%s, received again: %+v, %t, %v", when, again, known, err)
		}
		list, err := s.Unsettled(t.Context())
		if err != nil || !want.Settled && (len(list) != 1 || !reflect.DeepEqual(list[0], want)) ||
			want.Settled && len(list) != 0 {
			t.Errorf("%s, in the list: %+v, %v", when, list, err)
		}
	}
	_, _, err := s.Receive(t.Context(), state.Command{ID: "c", TargetID: "m", Spec: []byte("spec"),
		Digest: []byte("digest"), BootID: "b1", ReceivedAt: t0})
	must(t, err)
	is("received")
	must(t, s.Start(t.Context(), "c", []byte("intent"), nil, t0.Add(time.Second)))
	want.State, want.Intent, want.StartedAt = state.Started, []byte("intent"), t0.Add(time.Second)
	is("started")
	must(t, s.Unstart(t.Context(), "c"))
	want.State, want.Intent, want.StartedAt = state.Received, nil, time.Time{}
	is("taken back")
	must(t, s.Start(t.Context(), "c", []byte("intent"), nil, t0.Add(2*time.Second)))
	must(t, s.UpdateIntent(t.Context(), "c", []byte("another")))
	want.State, want.Intent, want.StartedAt = state.Started, []byte("another"), t0.Add(2*time.Second)
	is("with another intent")
	must(t, s.Finish(t.Context(), "c", []byte("result"), t0.Add(3*time.Second)))
	want.State, want.Result, want.DoneAt = state.Done, []byte("result"), t0.Add(3*time.Second)
	is("done")
	must(t, s.Settle(t.Context(), "c"))
	want.Settled = true
	is("settled")
	for i, v := 0, reflect.ValueOf(want); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("no value of %s was stored", v.Type().Field(i).Name)
		}
	}
}

// TestWhatASiteServesBy: the document and the leases come back as they were saved last.
func TestWhatASiteServesBy(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{InMemory: true})
	if doc, err := s.Site().SiteDocument(t.Context()); doc != nil || err != nil {
		t.Errorf("of none: %v, %v", doc, err)
	}
	for revision := range int64(3) {
		must(t, s.Site().SaveSiteDocument(t.Context(), &fleetv1.SiteDocument{Revision: revision}))
	}
	if doc, err := s.Site().SiteDocument(t.Context()); err != nil || doc.GetRevision() != 2 {
		t.Errorf("%v, %v", doc, err)
	}
	a, b := leaseOf("10.0.0.1"), leaseOf("10.0.0.2")
	must(t, s.Site().SaveLeases(t.Context(), []lease.Lease{b, a}))
	b.Hostname = "b"
	must(t, s.Site().SaveLeases(t.Context(), []lease.Lease{b}))
	if got, err := s.Site().
		LoadLeases(t.Context(), "s"); err != nil ||
		fmt.Sprint(got) != fmt.Sprint([]lease.Lease{a, b}) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestHowFarAMemoryIsShared: the last event's number at the doubt; a controller time that was never told is none.
func TestHowFarAMemoryIsShared(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{InMemory: true})
	must(t, s.SawControllerTime(t.Context(), time.Time{}))
	first := open(t, state.Config{InMemory: true})
	must(t, first.SawControllerTime(t.Context(), time.UnixMilli(1)))
	if m, err := first.Meta(t.Context()); err != nil || !m.ControllerTime.Equal(time.UnixMilli(1)) {
		t.Errorf("the first time of all: %+v, %v", m, err)
	}
	for range 3 {
		must(t, s.Append(t.Context(), line("c"), t0))
	}
	must(t, s.Doubt(t.Context()))
	must(t, s.Append(t.Context(), line("c"), t0))
	if m, err := s.Meta(t.Context()); err != nil || !m.InDoubt || m.SharedEventSeq != 3 || m.LastEventSeq != 4 ||
		!m.ControllerTime.IsZero() {
		t.Errorf("%+v, %v", m, err)
	}
}

// TestABufferOfNoticesAlone: notices of losses are never given up, so a buffer that they fill keeps nothing else, and
// goes on.
func TestABufferOfNoticesAlone(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{InMemory: true, MaxEvents: 1})
	for range 5 {
		must(t, s.Append(t.Context(), line("a"), t0))
		must(t, s.Append(t.Context(), line("b"), t0))
		list, err := s.Events(t.Context(), 0, 100, t0)
		must(t, err)
		if len(list) == 0 || list[len(list)-1].GetDropped() == nil {
			t.Fatalf("no notice in %v", list)
		}
	}
}

// TestAMemoryIsOneForAllCallers: a database in memory belongs to one connection, however many calls run at once.
func TestAMemoryIsOneForAllCallers(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{InMemory: true})
	const callers, each = 8, 50
	errs := make([]error, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for range each {
				_, err := s.BufferedEvents(t.Context())
				errs[i] = errors.Join(errs[i], s.Append(t.Context(), line("c"), t0), err)
			}
		})
	}
	all.Wait()
	must(t, errors.Join(errs...))
	if n, err := s.BufferedEvents(t.Context()); n != callers*each || err != nil {
		t.Errorf("%d events, %v", n, err)
	}
}

// TestALimitIsHeldToThePage: the database takes the room that it may have, and no page more.
func TestALimitIsHeldToThePage(t *testing.T) {
	t.Parallel()
	const page, pages = 4096, 40
	dir := t.TempDir()
	s, err := state.Open(t.Context(), state.Config{Dir: dir})
	must(t, err)
	must(t, s.LimitBytes(t.Context(), page*pages))
	for i := 0; err == nil; i++ {
		_, _, err = s.Receive(t.Context(), state.Command{ID: fmt.Sprint(i), Spec: make([]byte, page), ReceivedAt: t0})
	}
	if !errors.Is(err, state.ErrStorageFull) {
		t.Error(err)
	}
	if err := s.Finish(t.Context(), "none", nil, t0); !errors.Is(err, state.ErrConflict) ||
		errors.Is(err, state.ErrStorageFull) {
		t.Errorf("a command that is not there: %v", err)
	}
	must(t, s.Close())
	info, err := os.Stat(filepath.Join(dir, state.FileName))
	must(t, err)
	if info.Size() > page*pages || info.Size() < page*(pages-3) {
		t.Errorf("%d bytes, which are %d pages", info.Size(), info.Size()/page)
	}
}

// TestWhatIsNoDatabaseIsNotOpened: nor is one of another program, or one that cannot be written.
func TestWhatIsNoDatabaseIsNotOpened(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(dir string){
		"no database": func(dir string) {
			must(t, os.WriteFile(filepath.Join(dir, state.FileName), []byte(strings.Repeat("no database ", 1000)), 0o600))
		},
		"another program's": func(dir string) {
			_, err := second(t, dir).ExecContext(t.Context(), "CREATE TABLE commands (x)")
			must(t, err)
		},
		"one that takes no name": func(dir string) {
			_, err := second(t, dir).ExecContext(t.Context(),
				`CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
				CREATE TRIGGER f BEFORE INSERT ON meta BEGIN SELECT RAISE(ABORT, 'no'); END`)
			must(t, err)
		},
		"a directory": func(dir string) { inTheWay(t, dir, state.FileName) },
	} {
		dir := t.TempDir()
		spoil(dir)
		if s, err := state.Open(t.Context(), state.Config{Dir: dir}); err == nil {
			t.Errorf("%s is opened", name)
			must(t, s.Close())
		} else if s != nil {
			t.Errorf("%s: a handle beside %v", name, err)
		}
	}
}

// TestTheJournalIsWrittenAhead: other processes read while one writes.
func TestTheJournalIsWrittenAhead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open(t, state.Config{Dir: dir})
	var mode string
	must(t, second(t, dir).QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&mode))
	if mode != "wal" {
		t.Errorf("journal mode %s", mode)
	}
}
