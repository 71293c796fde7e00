package state_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/state"
)

const pageSize = 4096

// reads are the reads of a store.
var reads = map[string]func(ctx context.Context, s *state.Store) (any, error){
	"unsettled": func(ctx context.Context, s *state.Store) (any, error) { return s.Unsettled(ctx) },
	"command": func(ctx context.Context, s *state.Store) (any, error) {
		c, _, err := s.Command(ctx, "c7")
		return c, err
	},
	"events": func(ctx context.Context, s *state.Store) (any, error) {
		list, err := s.Events(ctx, 0, 1000, t0)
		return len(list), err
	},
	"buffered": func(ctx context.Context, s *state.Store) (any, error) { return s.BufferedEvents(ctx) },
	"meta":     func(ctx context.Context, s *state.Store) (any, error) { return s.Meta(ctx) },
	"document": func(ctx context.Context, s *state.Store) (any, error) {
		doc, err := s.Site().SiteDocument(ctx)
		return doc.GetRevision(), err
	},
	"leases": func(ctx context.Context, s *state.Store) (any, error) { return s.Site().LoadLeases(ctx, "s") },
	"get": func(ctx context.Context, s *state.Store) (any, error) {
		var v string
		found, err := s.GetJSON(ctx, "7", &v)
		return fmt.Sprint(found, v), err
	},
}

// large is a database whose tables have many pages each, and as many events as it may have.
func large(t *testing.T, dir string) {
	t.Helper()
	ctx := t.Context()
	s, err := state.Open(ctx, state.Config{Dir: dir})
	must(t, err)
	var leases []lease.Lease
	for i := range 30 {
		_, _, err := s.Receive(ctx, state.Command{ID: fmt.Sprint("c", i), Spec: make([]byte, 500), ReceivedAt: t0})
		must(t, err)
		must(t, s.PutJSON(ctx, strconv.Itoa(i), strings.Repeat("x", 500)))
		leases = append(leases, leaseOf(fmt.Sprint("10.0.0.", i)), leaseOf(fmt.Sprint("10.0.1.", i)))
	}
	must(t, s.Site().SaveLeases(ctx, leases))
	must(t, s.Site().SaveSiteDocument(ctx, &fleetv1.SiteDocument{Revision: 7}))
	must(t, s.Close())
	db := second(t, dir)
	_, err = db.ExecContext(ctx, `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 600)
		INSERT INTO events (seq, priority, body) SELECT i, 1, x'' FROM n;
		INSERT INTO meta (key, value) VALUES ('event_seq', '600'); PRAGMA wal_checkpoint(TRUNCATE)`)
	must(t, err)
}

// TestADamagedPageIsNotTakenForNothing: whichever page of the file is lost, each answer is the right one or an error.
// An event is not buffered where their number is unknown.
func TestADamagedPageIsNotTakenForNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	large(t, dir)
	whole, err := os.ReadFile(filepath.Join(dir, state.FileName))
	must(t, err)
	want := map[string]string{}
	s := open(t, state.Config{Dir: dir, MaxEvents: 600})
	for name, read := range reads {
		got, err := read(t.Context(), s)
		must(t, err)
		want[name] = fmt.Sprint(got)
	}
	errs, opened := 0, 0
	for page := range len(whole) / pageSize {
		dir := t.TempDir()
		damaged := bytes.Clone(whole)
		copy(damaged[page*pageSize:(page+1)*pageSize], bytes.Repeat([]byte{0xff}, pageSize))
		must(t, os.WriteFile(filepath.Join(dir, state.FileName), damaged, 0o600))
		s, err := state.Open(t.Context(), state.Config{Dir: dir, MaxEvents: 600})
		if err != nil {
			errs++
			continue
		}
		opened++
		for name, read := range reads {
			got, err := read(t.Context(), s)
			if err != nil {
				errs++
			} else if fmt.Sprint(got) != want[name] {
				t.Errorf("%s without page %d: %.100s, want %.100s", name, page+1, fmt.Sprint(got), want[name])
			}
		}
		appended := s.Append(t.Context(), line("c"), t0)
		if _, err := s.BufferedEvents(t.Context()); err != nil && appended == nil {
			t.Errorf("an event is buffered without page %d, and how many there are is not known: %v", page+1, err)
		}
		if err := s.Close(); err != nil {
			t.Log(err)
		}
	}
	if errs == 0 || opened == 0 {
		t.Errorf("%d errors, %d opened", errs, opened)
	}
}

const (
	roomVariable = "INGOT_TEST_STATE_ROOM"
	dirVariable  = "INGOT_TEST_STATE_DIR"
)

// limited runs a test of this package in a process whose files may not grow beyond so many bytes, and returns its
// output's lines.
func limited(t *testing.T, test, dir string, room int) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), roomVariable+"="+strconv.Itoa(room), dirVariable+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var lines []string
	for scanner := bufio.NewScanner(bytes.NewReader(out)); scanner.Scan(); {
		lines = append(lines, scanner.Text())
	}
	return lines
}

// limit takes the room from this process, for which it was started.
func limit(t *testing.T) {
	t.Helper()
	room, err := strconv.ParseUint(os.Getenv(roomVariable), 10, 64)
	must(t, err)
	must(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: room, Max: room}))
}

// TestACommandIsReceivedWhenItIsStored: the process's files cannot grow any more, so that a commit fails, and the
// process ends.
func TestACommandIsReceivedWhenItIsStored(t *testing.T) {
	if dir := os.Getenv(dirVariable); dir != "" {
		s, err := state.Open(t.Context(), state.Config{Dir: dir})
		must(t, err)
		limit(t)
		for i := 0; err == nil && i < 100; i++ {
			if _, _, err = s.Receive(t.Context(), state.Command{ID: fmt.Sprint("c", i), Spec: make([]byte, 500),
				ReceivedAt: t0}); err == nil {
				fmt.Printf("received c%d\n", i)
			}
		}
		fmt.Println("then", err)
		return // as a process that is killed: the store is not closed
	}
	_, dir := filled(t)
	received := map[string]bool{}
	for _, line := range limited(t, t.Name(), dir, 100_000) {
		if id, is := strings.CutPrefix(line, "received "); is {
			received[id] = true
		}
	}
	if len(received) == 0 || len(received) == 100 {
		t.Fatalf("%d commands were received", len(received))
	}
	s := open(t, state.Config{Dir: dir})
	for i := range 100 {
		id := fmt.Sprint("c", i)
		if _, found, err := s.Command(t.Context(), id); found != received[id] || err != nil {
			t.Errorf("%s: received %t, stored %t, %v", id, received[id], found, err)
		}
	}
}

// TestAStoreWithoutRoomToOpenSaysSo: what the processes that have it open share needs room, too.
func TestAStoreWithoutRoomToOpenSaysSo(t *testing.T) {
	if dir := os.Getenv(dirVariable); dir != "" {
		limit(t)
		if _, err := state.Open(t.Context(), state.Config{Dir: dir}); !errors.Is(err, state.ErrStorageFull) {
			t.Fatalf("open: %v", err)
		}
		return
	}
	for _, room := range []int{0, 1000} {
		b, err := template()
		must(t, err)
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, state.FileName), b, 0o600))
		limited(t, t.Name(), dir, room)
	}
}
