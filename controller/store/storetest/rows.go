package storetest

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/internal/when"
)

var writeRows = flag.Bool("write-rows", false, "write what calls change into testdata/rows, instead of comparing it")

// recorded has the recordings of stores that were made by NewRecorded.
var recorded sync.Map // *store.Store: *recording

// OnEach runs a life on a store whose statements fail one after the other (see NewFaulty), and on one whose changes are
// recorded (see NewRecorded).
func OnEach(t *testing.T, live func(*testing.T, *store.Store)) {
	t.Helper()
	t.Run("each statement fails", func(t *testing.T) {
		t.Parallel()
		s := NewFaulty(t)
		live(t, s)
		Intact(t, s, "m-1")
	})
	OnRecorded(t, live)
}

// OnRecorded runs a life on a store whose changes are recorded alone: one of calls that other lives make as well.
func OnRecorded(t *testing.T, live func(*testing.T, *store.Store)) {
	t.Helper()
	t.Run("rows", func(t *testing.T) {
		t.Parallel()
		live(t, NewRecorded(t))
	})
}

// NewRecorded returns a store of which the changes are recorded: all rows that each call through this package's helpers
// adds, changes and deletes. The test fails where they differ from testdata/rows. Names of things that are drawn by
// chance are numbered, and times are relative to the call.
func NewRecorded(t *testing.T) *store.Store {
	t.Helper()
	s := New(t)
	r := &recording{names: map[string]string{}, count: map[string]int{}}
	r.before = r.read(t, s)
	recorded.Store(s, r)
	t.Cleanup(func() {
		recorded.Delete(s)
		if !t.Failed() {
			r.compare(t)
		}
	})
	return s
}

// recording is what calls have changed so far.
type recording struct {
	text   strings.Builder
	before map[string]storedRow
	names  map[string]string
	count  map[string]int
}

// storedRow is a row of a table.
type storedRow struct {
	table string
	// key is the row's primary key, columns are all of it as text.
	key     string
	columns map[string]string
}

// note records what has changed since the last time.
func (r *recording) note(t testing.TB, s *store.Store, now time.Time) {
	t.Helper()
	after := r.read(t, s)
	var lines []string
	for id, row := range after {
		was, ok := r.before[id]
		if changed := row.changedFrom(was); !ok || len(changed) > 0 {
			lines = append(lines, r.line(row, was, changed, ok, now))
		}
	}
	for id, row := range r.before {
		if _, ok := after[id]; !ok {
			lines = append(lines, fmt.Sprintf("- %s %s", row.table, row.key))
		}
	}
	r.before = after
	// What is drawn by chance must not decide on the order.
	masked := func(line string) string { return drawn.ReplaceAllString(line, "$1") }
	slices.SortStableFunc(lines, func(a, b string) int {
		if c := strings.Compare(masked(a), masked(b)); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	fmt.Fprintf(&r.text, "%s\n", caller())
	for _, line := range lines {
		fmt.Fprintf(&r.text, "  %s\n", r.numbered(line))
	}
}

// line is a row that was added, or the columns of one that have changed.
func (r *recording) line(row, was storedRow, changed []string, old bool, now time.Time) string {
	text := "+ " + row.table
	if old {
		text = "~ " + row.table + " " + row.key + ":"
	}
	for _, c := range changed {
		if v := relative(row.columns[c], now); old {
			text += fmt.Sprintf(" %s %s → %s", c, relative(was.columns[c], now), v)
		} else if v != "null" {
			text += fmt.Sprintf(" %s=%s", c, v)
		}
	}
	return text
}

// changedFrom are the columns that differ, in their order.
func (r storedRow) changedFrom(was storedRow) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.columns)), func(c string) bool {
		return r.columns[c] == was.columns[c] || strings.HasSuffix(c, "xid")
	})
}

var (
	// drawn are ids, and longer runs of what secrets and digests consist of.
	drawn = regexp.MustCompile(`\b([a-z]+-)[0-9a-hjkmnp-tv-z]{26}\b|\\+x[0-9a-f]{16,}|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|` +
		`[A-Za-z0-9_-]{22,}|\b\d{16,}\b`)
	instant = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[.\d]*(Z|\+00:00)`)
	// word is a long name.
	word = regexp.MustCompile(`^([a-z_-]+|[A-Z_]+)$`)
)

// relative writes times relative to the call, by the minute.
func relative(text string, now time.Time) string {
	return instant.ReplaceAllStringFunc(text, func(at string) string {
		v, ok := when.Exact(at)
		if !ok {
			return at
		}
		switch d := v.Sub(now).Round(time.Minute); {
		case d > 0:
			return "now+" + d.String()
		case d < 0:
			return "now" + d.String()
		}
		return "now"
	})
}

// numbered replaces what was drawn by chance by numbers in the order of their first appearance.
func (r *recording) numbered(line string) string {
	return drawn.ReplaceAllStringFunc(line, func(v string) string {
		if word.MatchString(v) {
			return v
		}
		if strings.HasPrefix(v, `\`) {
			return "bytes"
		}
		if r.names[v] == "" {
			kind := "secret"
			if prefix, _, ok := strings.Cut(v, "-"); ok && len(v) == len(prefix)+27 {
				kind = prefix
			}
			r.count[kind]++
			r.names[v] = fmt.Sprintf("%s#%d", kind, r.count[kind])
		}
		return r.names[v]
	})
}

// copies are tables of what other tables have.
var copies = []string{"machine_timeline", "machine_timeline_heads", "timeline_due", "machine_states", "machine_words"}

// read reads all rows.
func (*recording) read(t testing.TB, s *store.Store) map[string]storedRow {
	t.Helper()
	tables, err := s.DB.Pool().
		Query(t.Context(), `SELECT c.relname, coalesce((SELECT array_agg(a.attname::text ORDER BY a.attnum)
		FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
		WHERE i.indrelid = c.oid AND i.indisprimary), '{}')
		FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND c.relname <> ALL ($1)
			AND c.relname NOT LIKE 'river%'`, copies)
	if err != nil {
		t.Fatal(err)
	}
	type table struct {
		Name string
		Keys []string
	}
	list, err := pgx.CollectRows(tables, pgx.RowToStructByPos[table])
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]storedRow{}
	for _, of := range list {
		rows, err := s.DB.Pool().Query(t.Context(), "SELECT to_jsonb(r)::text FROM "+pgx.Identifier{of.Name}.Sanitize()+" r")
		if err != nil {
			t.Fatal(err)
		}
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			var raw map[string]json.RawMessage
			if err := json.Unmarshal([]byte(text), &raw); err != nil {
				t.Fatal(err)
			}
			row := storedRow{table: of.Name, columns: map[string]string{}}
			for c, v := range raw {
				row.columns[c] = string(v)
			}
			var key []string
			for _, k := range of.Keys {
				key = append(key, strings.Trim(row.columns[k], `"`))
			}
			row.key = strings.Join(key, "/")
			out[of.Name+" "+row.key] = row
		}
	}
	return out
}

// caller names the helper through which a call was made, with the test's function where there is none.
func caller() string {
	var pcs [20]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		_, name, _ := strings.Cut(filepath.Base(f.Function), ".") // every function has a package
		if !strings.Contains(name, "recording") && name != "Each" {
			name, _, _ = strings.Cut(strings.TrimPrefix(name, "(*"), ".func") // where there is no closure, all of it
			return strings.ReplaceAll(name, ").", ".")
		}
		if !more {
			return ""
		}
	}
}

// compare compares the recording with the one that is kept.
func (r *recording) compare(t testing.TB) {
	t.Helper()
	name := strings.ReplaceAll(strings.TrimPrefix(strings.TrimSuffix(t.Name(), "/rows"), "Test"), "/", "-")
	path := filepath.Join("testdata", "rows", name+".txt")
	if *writeRows {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(r.text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	was, is := strings.Split(string(want), "\n"), strings.Split(r.text.String(), "\n")
	for i := range max(len(was), len(is)) {
		if i >= len(was) || i >= len(is) || was[i] != is[i] {
			t.Fatalf("%s, line %d: other rows are written; if that is meant, run the test with -args -write-rows.\n"+
				"was: %s\nis:  %s", path, i+1, at(was, i), at(is, i))
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

// Rows returns all rows as NewRecorded writes them: names drawn by chance are numbered, and times are relative to now.
func Rows(t testing.TB, s *store.Store, now time.Time) string {
	t.Helper()
	r := &recording{names: map[string]string{}, count: map[string]int{}}
	r.note(t, s, now)
	return r.text.String()
}

// AtOnce has the store evaluate operations in the transactions that give cause for it, as a controller has it.
func AtOnce(s *store.Store) {
	s.Operations.First.While(func() bool { return true })
	s.Sessions.DecideOpened(s.Operations.DecideNoted)
}
