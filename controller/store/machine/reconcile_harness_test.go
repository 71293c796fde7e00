package machine_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
)

// committed is one change of one machine that has certainly been committed: between the two times, at the earliest
// and at the latest.
type committed struct {
	version       int64
	xid           uint64
	before, after time.Time
}

// ledger is what the writers have done.
type ledger struct {
	mu      sync.Mutex
	changes map[string][]committed // by machine
}

func (l *ledger) add(machine string, c committed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changes[machine] = append(l.changes[machine], c)
}

// page is one read of a reader: when, and which transaction it has passed.
type page struct {
	start, end time.Time
	passed     uint64
}

type sighting struct {
	page    int
	version int64
}

// reader is what one reader has seen.
type reader struct {
	name  string
	pages []page
	seen  map[string][]sighting // by machine, versions never fall
	// next reads a page and moves on. more says that there is more right now.
	next func(ctx context.Context, r *reader) (found map[string]int64, passed uint64, more bool, err error)
}

// read takes one page into the books.
func (r *reader) read(ctx context.Context) (more bool, err error) {
	start := time.Now()
	found, passed, more, err := r.next(ctx, r)
	if err != nil {
		return false, fmt.Errorf("%s: %w", r.name, err)
	}
	r.pages = append(r.pages, page{start, time.Now(), passed})
	for m, v := range found {
		if last := r.last(m); v > last {
			r.seen[m] = append(r.seen[m], sighting{len(r.pages) - 1, v})
		} else if v < last {
			return false, fmt.Errorf("%s: machine %s went back from version %d to %d", r.name, m, last, v)
		}
	}
	return more, nil
}

func (r *reader) last(machine string) int64 {
	s := r.seen[machine]
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].version
}

// lastAt is the newest version that was seen up to a page.
func (r *reader) lastAt(machine string, page int) int64 {
	s := r.seen[machine]
	i := sort.Search(len(s), func(i int) bool { return s[i].page > page })
	if i == 0 {
		return 0
	}
	return s[i-1].version
}

// missing lists the machines whose last version the reader has not seen.
func (r *reader) missing(versions map[string]int64) []string {
	var out []string
	for m, v := range versions {
		if r.last(m) < v {
			out = append(out, fmt.Sprintf("%s: seen %d of %d", m, r.last(m), v))
		}
	}
	sort.Strings(out)
	return out
}

// passedBy lists the changes that the reader went past: at a page that was read while the change was certainly the
// machine's newest one, it stood behind the change and had not seen it. checked is how many changes could be judged.
func (r *reader) passedBy(l *ledger) (out []string, checked int) {
	for m, changes := range l.changes {
		sort.Slice(changes, func(i, j int) bool { return changes[i].version < changes[j].version })
		for i, c := range changes {
			until := time.Now()
			if i+1 < len(changes) {
				until = changes[i+1].before
			}
			p := sort.Search(len(r.pages), func(p int) bool { return r.pages[p].end.After(until) }) - 1
			if p < 0 || r.pages[p].start.Before(c.after) || r.pages[p].passed <= c.xid {
				continue
			}
			checked++
			if got := r.lastAt(m, p); got < c.version {
				out = append(out, fmt.Sprintf("%s went past version %d of %s, having seen %d", r.name, c.version, m, got))
			}
		}
	}
	return out, checked
}

func versionsOf(machines []*baremetalv1.Machine) map[string]int64 {
	out := map[string]int64{}
	for _, m := range machines {
		out[m.GetMachineId()] = m.GetVersion()
	}
	return out
}

// xidOf looks into a cursor, which is opaque to everybody but this test.
func xidOf(cursor string) (uint64, error) {
	b, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return 0, err
	}
	var c struct{ X string }
	if err := json.Unmarshal(b, &c); err != nil {
		return 0, err
	}
	return strconv.ParseUint(c.X, 10, 64)
}

// byCursor follows the opaque cursor.
func byCursor(s *store.Store, name, from string, size int32) *reader {
	cursor := from
	return &reader{name: name, seen: map[string][]sighting{},
		next: func(ctx context.Context, _ *reader) (map[string]int64, uint64, bool, error) {
			c, err := s.MachineFeed.Reconcile(ctx, cursor, time.Time{}, size)
			if err != nil {
				return nil, 0, false, err
			}
			cursor = c.Next
			passed, err := xidOf(cursor)
			return versionsOf(c.Machines), passed, c.More, err
		}}
}

// bySafeTime starts anew by safe_updated_since after each round.
func bySafeTime(s *store.Store, size int32) *reader {
	var since time.Time
	cursor := ""
	return &reader{name: "by safe_updated_since", seen: map[string][]sighting{},
		next: func(ctx context.Context, _ *reader) (map[string]int64, uint64, bool, error) {
			from := since
			if cursor != "" {
				from = time.Time{}
			}
			c, err := s.MachineFeed.Reconcile(ctx, cursor, from, size)
			if err != nil {
				return nil, 0, false, err
			}
			if cursor = c.Next; !c.More {
				cursor, since = "", c.SafeSince
			}
			return versionsOf(c.Machines), 0, c.More, nil
		}}
}

// byWalk walks the fleet once, then follows the cursor that was taken before its first page.
func byWalk(s *store.Store, size int32) *reader {
	var after *reader
	lastID := ""
	return &reader{name: "by a walk", seen: map[string][]sighting{},
		next: func(ctx context.Context, r *reader) (map[string]int64, uint64, bool, error) {
			if after == nil {
				head, _, err := s.MachineFeed.HeadCursor(ctx)
				if err != nil {
					return nil, 0, false, err
				}
				after = byCursor(s, "", head, size)
			}
			if lastID != "end" {
				machines, err := s.Machines.WalkMachines(ctx, machinestore.MachineFilter{AfterID: lastID, Limit: size})
				if lastID = "end"; len(machines) == int(size) {
					lastID = machines[size-1].GetMachineId()
				}
				return versionsOf(machines), 0, true, err
			}
			return after.next(ctx, after)
		}}
}

// byPlainTime is what many would write: everything above the newest time seen. It misses changes.
func byPlainTime(s *store.Store, size int32) *reader {
	last := time.Unix(0, 0)
	return &reader{name: "by plain updated_at", seen: map[string][]sighting{},
		next: func(ctx context.Context, _ *reader) (map[string]int64, uint64, bool, error) {
			rows, err := s.DB.Pool().Query(ctx,
				"SELECT machine_id, version, updated_at FROM machines WHERE updated_at > $1 ORDER BY updated_at LIMIT $2", last,
				size)
			if err != nil {
				return nil, 0, false, err
			}
			found := map[string]int64{}
			var id string
			var version int64
			tag, err := pgx.ForEachRow(rows, []any{&id, &version, &last}, func() error { found[id] = version; return nil })
			return found, 0, tag.RowsAffected() == int64(size), err
		}}
}

// tableVersions is the truth. Tombstones are left out on demand.
func tableVersions(t testing.TB, s *store.Store, tombstones bool) map[string]int64 {
	t.Helper()
	rows, err := s.DB.Pool().Query(t.Context(), "SELECT machine_id, version FROM machines WHERE $1 OR deleted_at IS NULL",
		tombstones)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int64{}
	var id string
	var version int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &version}, func() error { out[id] = version; return nil }); err != nil {
		t.Fatal(err)
	}
	return out
}
