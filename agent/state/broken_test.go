package state_test

import (
	"context"
	"database/sql"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/segment"
	"github.com/ingot-metal/ingot/agent/state"
)

// uses are everything that a store can be asked, with what it needs to be there: a command "received", one "started",
// one "done", a dropped event, a site document, a lease.
var uses = map[string]func(ctx context.Context, s *state.Store) error{
	"receive": func(ctx context.Context, s *state.Store) error {
		_, _, err := s.Receive(ctx, state.Command{ID: "new", TargetID: "m", BootID: "b1", ReceivedAt: t0})
		return err
	},
	"receive again": func(ctx context.Context, s *state.Store) error {
		_, _, err := s.Receive(ctx, state.Command{ID: "received", TargetID: "m", BootID: "b1", ReceivedAt: t0})
		return err
	},
	"start": func(ctx context.Context, s *state.Store) error {
		return s.Start(ctx, "received", nil, []byte("g"),
			t0)
	},
	"unstart":       func(ctx context.Context, s *state.Store) error { return s.Unstart(ctx, "started") },
	"update intent": func(ctx context.Context, s *state.Store) error { return s.UpdateIntent(ctx, "started", nil) },
	"finish":        func(ctx context.Context, s *state.Store) error { return s.Finish(ctx, "started", nil, t0) },
	"settle":        func(ctx context.Context, s *state.Store) error { return s.Settle(ctx, "done") },
	"command":       func(ctx context.Context, s *state.Store) error { _, _, err := s.Command(ctx, "done"); return err },
	"unsettled":     func(ctx context.Context, s *state.Store) error { _, err := s.Unsettled(ctx); return err },
	"evict":         func(ctx context.Context, s *state.Store) error { _, err := s.Evict(ctx, t0); return err },
	"append":        func(ctx context.Context, s *state.Store) error { return s.Append(ctx, line("x"), t0) },
	"append inventory": func(ctx context.Context, s *state.Store) error {
		return s.AppendInventory(ctx, &fleetv1.InventoryReport{Hash: "h"}, t0)
	},
	"append finding": func(ctx context.Context, s *state.Store) error {
		return s.AppendFinding(ctx, &fleetv1.Report{Kind: "raid"}, "degraded", t0)
	},
	"finding":  func(ctx context.Context, s *state.Store) error { _, err := s.Finding(ctx, "raid"); return err },
	"events":   func(ctx context.Context, s *state.Store) error { _, err := s.Events(ctx, 0, 10, t0); return err },
	"trim":     func(ctx context.Context, s *state.Store) error { return s.Trim(ctx, 100) },
	"buffered": func(ctx context.Context, s *state.Store) error { _, err := s.BufferedEvents(ctx); return err },
	"meta":     func(ctx context.Context, s *state.Store) error { _, err := s.Meta(ctx); return err },
	"state id": func(ctx context.Context, s *state.Store) error { _, err := s.StateID(ctx); return err },
	"grant number": func(ctx context.Context, s *state.Store) error {
		_, err := s.NextGrantSeqs(ctx, "received")
		return err
	},
	"controller time": func(ctx context.Context, s *state.Store) error { return s.SawControllerTime(ctx, t0) },
	"lock":            func(ctx context.Context, s *state.Store) error { return s.Lock(ctx, "x") },
	"inventory hash":  func(ctx context.Context, s *state.Store) error { _, err := s.InventoryHash(ctx); return err },
	"new state id": func(ctx context.Context, s *state.Store) error {
		_, err := s.NewStateID(ctx, t0, func(state.Command, string) ([]byte, error) { return []byte("lost"), nil })
		return err
	},
	"doubt":      func(ctx context.Context, s *state.Store) error { return s.Doubt(ctx) },
	"recognized": func(ctx context.Context, s *state.Store) error { return s.Recognized(ctx, 1) },
	"put":        func(ctx context.Context, s *state.Store) error { return s.PutJSON(ctx, "k", 1) },
	"get":        func(ctx context.Context, s *state.Store) error { _, err := s.GetJSON(ctx, "k", new(int)); return err },
	"save document": func(ctx context.Context, s *state.Store) error {
		return s.Site().SaveSiteDocument(ctx, &fleetv1.SiteDocument{Revision: 2})
	},
	"document": func(ctx context.Context, s *state.Store) error { _, err := s.Site().SiteDocument(ctx); return err },
	"save leases": func(ctx context.Context, s *state.Store) error {
		return s.Site().SaveLeases(ctx, []lease.Lease{leaseOf("10.0.0.2")})
	},
	"leases":   func(ctx context.Context, s *state.Store) error { _, err := s.Site().LoadLeases(ctx, "s"); return err },
	"writable": func(ctx context.Context, s *state.Store) error { return s.Writable(ctx) },
	"limit":    func(ctx context.Context, s *state.Store) error { return s.LimitBytes(ctx, 1<<20) },
}

func line(text string) *fleetv1.Event {
	return &fleetv1.Event{Body: &fleetv1.Event_Log{Log: &fleetv1.LogLines{CommandId: text}}}
}

// template is a database with something in every table.
var template = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "state-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	s, err := state.Open(ctx, state.Config{Dir: dir, MaxEvents: 2})
	if err != nil {
		return nil, err
	}
	var errs []error
	do := func(err error) { errs = append(errs, err) }
	for _, id := range []string{"received", "started", "done"} {
		_, _, err := s.Receive(ctx, state.Command{ID: id, TargetID: "m", Spec: []byte("spec"), BootID: "b1", ReceivedAt: t0})
		do(err)
	}
	do(s.Start(ctx, "started", []byte("{}"), nil, t0))
	do(s.Start(ctx, "done", []byte("{}"), nil, t0))
	do(s.Finish(ctx, "done", []byte("r"), t0))
	for range 3 {
		do(s.Append(ctx, line("c"), t0))
	}
	_, err = s.NextGrantSeqs(ctx, "received")
	do(err)
	do(s.PutJSON(ctx, "k", 1))
	do(s.SawControllerTime(ctx, t0.Add(-time.Second)))
	do(s.Site().SaveSiteDocument(ctx, &fleetv1.SiteDocument{Revision: 1}))
	do(s.Site().SaveLeases(ctx, []lease.Lease{leaseOf("10.0.0.1")}))
	do(s.Doubt(ctx))
	do(s.Close())
	b, err := os.ReadFile(filepath.Join(dir, state.FileName))
	do(err)
	return b, errors.Join(errs...)
})

func leaseOf(address string) lease.Lease {
	return lease.Lease{Segment: "s", Address: netip.MustParseAddr(address), MAC: segment.MAC{2, 0, 0, 0, 0, 1}}
}

// filled is a store with something in every table, and its directory.
func filled(t *testing.T) (*state.Store, string) {
	t.Helper()
	b, err := template()
	must(t, err)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, state.FileName), b, 0o600))
	return open(t, state.Config{Dir: dir, MaxEvents: 2}), dir
}

// TestEveryUseWorks is what the two tests below differ from.
func TestEveryUseWorks(t *testing.T) {
	t.Parallel()
	for name, use := range uses {
		s, _ := filled(t)
		if err := use(t.Context(), s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestABrokenDatabaseIsNotAnEmptyOne: whatever table is damaged, each use that touches it returns an error. An agent
// that took a failure for "nothing there" would execute a command again.
func TestABrokenDatabaseIsNotAnEmptyOne(t *testing.T) {
	t.Parallel()
	touches := map[string][]string{
		"commands": {"receive", "receive again", "start", "unstart", "update intent", "finish", "settle", "command",
			"unsettled", "evict", "new state id"},
		"events": {"append", "append inventory", "append finding", "events", "trim", "buffered",
			"recognized"},
		"dropped":       {"append", "append inventory", "append finding", "events"},
		"site_document": {"save document", "document"},
		"leases":        {"save leases", "leases"},
		"meta": {"append", "append inventory", "append finding", "finding", "meta", "state id", "grant number",
			"controller time", "lock",
			"inventory hash", "new state id",
			"doubt", "recognized", "put", "get", "writable"},
	}
	for table, names := range touches {
		s, dir := filled(t)
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, state.FileName))
		must(t, err)
		_, err = db.ExecContext(t.Context(), "DROP TABLE "+table)
		must(t, errors.Join(err, db.Close()))
		for _, name := range names {
			if err := uses[name](t.Context(), s); err == nil {
				t.Errorf("%s: no error without the table %s", name, table)
			}
		}
	}
}

// TestDamagedValuesAreNotTakenForNone: a number or a body that cannot be read is an error, not 0 and not nothing.
func TestDamagedValuesAreNotTakenForNone(t *testing.T) {
	t.Parallel()
	for what, names := range map[string][]string{
		"UPDATE meta SET value = x'ff'": {"append", "append inventory", "append finding",
			"meta", "state id", "grant number", "controller time", "recognized", "get"},
		"UPDATE events SET body = x'ff'":        {"events"},
		"UPDATE site_document SET body = x'ff'": {"document"},
		"UPDATE leases SET body = x'ff'":        {"leases"},
		"CREATE TRIGGER f BEFORE INSERT ON meta BEGIN SELECT RAISE(ABORT, 'no'); END": {"append", "grant number",
			"lock", "new state id", "put", "writable"},
		"CREATE TRIGGER f BEFORE INSERT ON commands BEGIN SELECT RAISE(ABORT, 'no'); END": {"receive"},
		"CREATE TRIGGER f BEFORE UPDATE ON commands BEGIN SELECT RAISE(ABORT, 'no'); END": {"start", "unstart",
			"update intent", "finish", "settle", "new state id"},
		"CREATE TRIGGER f BEFORE INSERT ON events BEGIN SELECT RAISE(ABORT, 'no'); END": {"append", "append inventory",
			"events"},
		"CREATE TRIGGER f BEFORE DELETE ON events BEGIN SELECT RAISE(ABORT, 'no'); END": {"append", "append inventory",
			"trim"},
		"CREATE TRIGGER f BEFORE DELETE ON dropped BEGIN SELECT RAISE(ABORT, 'no'); END":       {"events"},
		"CREATE TRIGGER f BEFORE INSERT ON leases BEGIN SELECT RAISE(ABORT, 'no'); END":        {"save leases"},
		"CREATE TRIGGER f BEFORE INSERT ON site_document BEGIN SELECT RAISE(ABORT, 'no'); END": {"save document"},
	} {
		s, dir := filled(t)
		db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, state.FileName))
		must(t, err)
		_, err = db.ExecContext(t.Context(), what)
		must(t, errors.Join(err, db.Close()))
		for _, name := range names {
			if err := uses[name](t.Context(), s); err == nil {
				t.Errorf("%s: no error after %s", name, what)
			}
		}
	}
}

// TestAFencedStoreAnswersNothing: another handle owns the memory.
func TestAFencedStoreAnswersNothing(t *testing.T) {
	t.Parallel()
	s, _ := filled(t)
	s.Fence()
	for name, use := range uses {
		if err := use(t.Context(), s); !errors.Is(err, state.ErrFenced) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAFailedUseChangesNothing: a transaction that fails half-way is taken back.
func TestAFailedUseChangesNothing(t *testing.T) {
	t.Parallel()
	s, _ := filled(t)
	before, err := s.Meta(t.Context())
	must(t, err)
	_, err = s.NewStateID(t.Context(), t0, func(state.Command, string) ([]byte, error) { return nil, errors.New("no") })
	if err == nil {
		t.Fatal("a memory was given up whose commands have no results")
	}
	after, err := s.Meta(t.Context())
	must(t, err)
	if before != after {
		t.Errorf("%+v became %+v", before, after)
	}
	if _, err := s.Unsettled(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAnEventOfNoKindIsRefused: it would be dropped first, and the lost event could not be named.
func TestAnEventOfNoKindIsRefused(t *testing.T) {
	t.Parallel()
	s, _ := filled(t)
	select {
	case <-s.Changed():
	default:
	}
	if err := s.Append(t.Context(), &fleetv1.Event{}, t0); err == nil {
		t.Error("buffered")
	}
	select {
	case <-s.Changed():
		t.Error("says that something was appended")
	default:
	}
	must(t, s.Append(t.Context(), line("c"), t0))
	select {
	case <-s.Changed():
	default:
		t.Error("does not say that something was appended")
	}
}

// TestNumbersBeginAtOne: 0 stands for "none yet".
func TestNumbersBeginAtOne(t *testing.T) {
	t.Parallel()
	s := open(t, state.Config{InMemory: true})
	m, err := s.Meta(t.Context())
	must(t, err)
	if m.LastGrantSeq != 0 || m.LastEventSeq != 0 || !m.ControllerTime.IsZero() || m.SharedEventSeq != 0 || m.InDoubt ||
		m.StateID == "" {
		t.Errorf("a new memory is %+v", m)
	}
	if n, err := s.NextGrantSeqs(t.Context(), "received"); err != nil || n[0].Seq == 0 {
		t.Errorf("the first ask has number %v, %v", n, err)
	}
	e := line("c")
	if err := s.Append(t.Context(), e, t0); err != nil || e.GetSeq() != 1 {
		t.Errorf("the first event has number %d, %v", e.GetSeq(), err)
	}
}
