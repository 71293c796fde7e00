package machine_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/controller/store"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/filter"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// selectionsOf parses the filters of a caller.
func selectionsOf(t testing.TB, texts ...string) machinefilter.Selections {
	t.Helper()
	var all [][]filter.Term
	for _, text := range texts {
		terms, err := filter.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, terms)
	}
	return machinefilter.SelectionsOf(all)
}

// moved is a machine after one committed change.
type moved struct {
	version                 int64
	xid                     uint64
	site, group, team, rack string
	deleted                 bool
	before, after           time.Time
}

// movers move machines between sites, groups and teams, as fast as they can.
type movers struct {
	s   *store.Store
	end time.Time
	ids []string

	mu    sync.Mutex
	moves map[string][]moved // by machine
}

// change runs fn in a transaction, and notes what it has made of the machines.
func (w *movers) change(ctx context.Context, ids []string, fn func(tx pgx.Tx) error) error {
	tx, err := w.s.DB.Pool().Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // committed, or the error that counts is another
	if err := fn(tx); err != nil {
		return err
	}
	rows, err := tx.Query(ctx, `SELECT machine_id, version, change_xid::text::bigint, site, coalesce(spec->>'group', ''),
		coalesce(labels->>'team', ''), coalesce(spec->>'rack', ''), deleted_at IS NOT NULL
		FROM machines WHERE machine_id = ANY($1)`, ids)
	if err != nil {
		return err
	}
	found := map[string]moved{}
	var id string
	var m moved
	_, err = pgx.ForEachRow(rows, []any{&id, &m.version, &m.xid, &m.site, &m.group, &m.team, &m.rack, &m.deleted},
		func() error { found[id] = m; return nil })
	if err != nil {
		return err
	}
	before := time.Now()
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	w.note(found, before)
	return nil
}

func (w *movers) note(found map[string]moved, before time.Time) {
	after := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, m := range found {
		m.before, m.after = before, after
		if last := w.moves[id]; len(last) > 0 && last[len(last)-1].version == m.version {
			continue // the transaction has changed nothing of it
		}
		w.moves[id] = append(w.moves[id], m)
	}
}

// step is one random change of a machine.
func (w *movers) step(ctx context.Context, tx pgx.Tx, id string) error {
	set := func(sql string, value string) error {
		_, err := tx.Exec(ctx, "UPDATE machines SET "+sql+" WHERE machine_id = $1 AND deleted_at IS NULL", id, value)
		return err
	}
	pick := func(values ...string) string { return values[rand.IntN(len(values))] }
	switch rand.IntN(6) {
	case 0:
		return set("spec = jsonb_set(spec, '{site}', to_jsonb($2::text))", pick("a", "b", "c"))
	case 1:
		return set("spec = jsonb_set(spec, '{group}', to_jsonb($2::text))", pick("g1", "g2"))
	case 2:
		return set("labels = jsonb_build_object('team', $2::text)", pick("web", "db", "ai"))
	case 3:
		return set("spec = jsonb_set(spec, '{rack}', to_jsonb($2::text))", pick("r1", "r2", "x1"))
	case 4:
		return set("boot_id = $2", fmt.Sprint(rand.Int()))
	}
	return set("spec = jsonb_set(spec, '{hostname}', to_jsonb($2::text))", fmt.Sprint(rand.Int()))
}

// move changes machines once or several times in one transaction; sometimes it takes a part back, or waits.
func (w *movers) move(ctx context.Context, hold time.Duration) error {
	ids := []string{w.ids[rand.IntN(len(w.ids))], w.ids[rand.IntN(len(w.ids))]}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	return w.change(ctx, ids, func(tx pgx.Tx) error {
		for _, id := range ids {
			for range 1 + rand.IntN(2) {
				if err := w.step(ctx, tx, id); err != nil {
					return err
				}
			}
		}
		if rand.IntN(4) == 0 {
			err := pgx.BeginFunc(ctx, tx, func(nested pgx.Tx) error {
				if err := w.step(ctx, nested, ids[0]); err != nil {
					return err
				}
				return errTakeBack
			})
			if err != errTakeBack {
				return err
			}
		}
		if hold > 0 {
			_, err := tx.Exec(ctx, "SELECT pg_sleep($1)", hold.Seconds())
			return err
		}
		return nil
	})
}

var errTakeBack = fmt.Errorf("take the savepoint back")

// replace deletes a machine, and registers another one.
func (w *movers) replace(ctx context.Context, writer, i int) error {
	id := fmt.Sprintf("n-%d-%d", writer, i)
	_, err := w.s.Machines.Register(ctx, &baremetalv1.Machine{MachineId: id, Labels: map[string]string{"team": "web"},
		Spec: &baremetalv1.MachineSpec{Provider: "fake", Site: "a", Group: "g1", Rack: "r1"}}, "x", time.Now())
	if err != nil {
		return err
	}
	if err := w.change(ctx, []string{id}, func(tx pgx.Tx) error { return w.step(ctx, tx, id) }); err != nil {
		return err
	}
	before := time.Now()
	gone, err := w.s.Nodes.Delete(ctx, id, "x", true, before)
	if err != nil {
		return err
	}
	m := moved{version: gone.GetVersion(), deleted: true}
	const query = "SELECT change_xid::text::bigint FROM machines WHERE machine_id = $1"
	if err := w.s.DB.Pool().QueryRow(ctx, query, id).Scan(&m.xid); err != nil {
		return err
	}
	w.note(map[string]moved{id: m}, before)
	return nil
}

func (w *movers) run(g *task.Group) {
	for n := range 12 {
		g.Go(fmt.Sprintf("mover-%d", n), func(ctx context.Context) error {
			for i := 0; time.Now().Before(w.end); i++ {
				var hold time.Duration
				if n == 0 {
					hold = time.Second
				}
				var err error
				if n%4 == 3 {
					err = w.replace(ctx, n, i)
				} else {
					err = w.move(ctx, hold)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// held is what a narrowed client holds of one machine from one of its pages on. Version 0 is a tombstone.
type held struct {
	page    int
	version int64
}

// narrowReader is a client that is held to selections and keeps a copy of their machines.
type narrowReader struct {
	name   string
	inside func(m moved) bool
	next   func(ctx context.Context) (machines []*baremetalv1.Machine, passed uint64, more bool, err error)
	pages  []page
	has    map[string][]held // by machine
	// stones counts the tombstones of a machine. By time they may be repeated, and by a cursor not.
	stones  map[string]int
	repeats bool
}

func (r *narrowReader) read(ctx context.Context) (bool, error) {
	start := time.Now()
	machines, passed, more, err := r.next(ctx)
	if err != nil {
		return false, fmt.Errorf("%s: %w", r.name, err)
	}
	r.pages = append(r.pages, page{start, time.Now(), passed})
	for _, m := range machines {
		id := m.GetMachineId()
		if m.GetDeletedAt() != nil {
			r.stones[id]++
			if want := (&baremetalv1.Machine{MachineId: id, DeletedAt: m.GetDeletedAt()}); !proto.Equal(m, want) {
				return false, fmt.Errorf("%s: a tombstone shows more than the id: %v", r.name, m)
			}
		} else if seen := (moved{site: m.GetSpec().GetSite(), group: m.GetSpec().GetGroup(),
			team: m.GetLabels()["team"], rack: m.GetSpec().GetRack()}); !r.inside(seen) {
			return false, fmt.Errorf("%s: a machine from outside: %v", r.name, m)
		}
		r.has[id] = append(r.has[id], held{len(r.pages) - 1, m.GetVersion()})
	}
	return more, nil
}

// at is what the client holds of a machine after a page; 0 where it holds nothing.
func (r *narrowReader) at(id string, page int) int64 {
	all := r.has[id]
	i := sort.Search(len(all), func(i int) bool { return all[i].page > page })
	if i == 0 {
		return 0
	}
	return all[i-1].version
}

// wrong lists what the client holds after a page and should not, or should and does not, where a change was certainly
// the machine's newest one while the page was read and the client stood behind it.
func (r *narrowReader) wrong(moves map[string][]moved) (out []string, checked int) {
	for id, all := range moves {
		sort.Slice(all, func(i, j int) bool { return all[i].version < all[j].version })
		newest := uint64(0) // a transaction that has waited for another one may have the smaller id
		for i, m := range all {
			newest = max(newest, m.xid)
			until := time.Now()
			if i+1 < len(all) {
				until = all[i+1].before
			}
			p := sort.Search(len(r.pages), func(p int) bool { return r.pages[p].end.After(until) }) - 1
			if p < 0 || r.pages[p].start.Before(m.after) || r.pages[p].passed <= newest {
				continue
			}
			checked++
			got, want := r.at(id, p), int64(0)
			if r.inside(m) {
				want = m.version
			}
			if got != want {
				out = append(out, fmt.Sprintf("%s: %s is held in version %d, want %d", r.name, id, got, want))
			}
		}
	}
	return out, checked
}

// unfounded lists machines with more tombstones than times that they have left.
func (r *narrowReader) unfounded(moves map[string][]moved) (out []string) {
	for id, stones := range r.stones {
		left, in := 0, true // a machine may have been inside before its first move
		for _, m := range moves[id] {
			now := r.inside(m)
			if in && !now {
				left++
			}
			in = now
		}
		if stones > left {
			out = append(out, fmt.Sprintf("%s: %s has left %d times, and has %d tombstones", r.name, id, left, stones))
		}
	}
	return out
}

// copyOf is what the client holds now.
func (r *narrowReader) copyOf() map[string]int64 {
	out := map[string]int64{}
	for id := range r.has {
		if v := r.at(id, len(r.pages)); v != 0 {
			out[id] = v
		}
	}
	return out
}

func narrowByCursor(t testing.TB, s *store.Store, size int32, inside func(moved) bool, texts ...string) *narrowReader {
	t.Helper()
	in := selectionsOf(t, texts...)
	n := s.MachineFeed.Narrowed(in)
	cursor, _, err := n.HeadCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return &narrowReader{name: fmt.Sprint(texts), inside: inside, has: map[string][]held{}, stones: map[string]int{},
		next: func(ctx context.Context) ([]*baremetalv1.Machine, uint64, bool, error) {
			c, err := n.Reconcile(ctx, cursor, time.Time{}, size)
			if err != nil {
				return nil, 0, false, err
			}
			cursor = c.Next
			passed, err := xidOf(cursor)
			return c.Machines, passed, c.More, err
		}}
}

func narrowBySafeTime(
	t testing.TB, s *store.Store, size int32, inside func(moved) bool, texts ...string,
) *narrowReader {
	t.Helper()
	n := s.MachineFeed.Narrowed(selectionsOf(t, texts...))
	_, since, err := n.HeadCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cursor := ""
	return &narrowReader{name: fmt.Sprint("by time ", texts), inside: inside, has: map[string][]held{},
		stones: map[string]int{}, repeats: true,
		next: func(ctx context.Context) ([]*baremetalv1.Machine, uint64, bool, error) {
			from := since
			if cursor != "" {
				from = time.Time{}
			}
			c, err := n.Reconcile(ctx, cursor, from, size)
			if err != nil {
				return nil, 0, false, err
			}
			if cursor = c.Next; !c.More {
				cursor, since = "", c.SafeSince
			}
			return c.Machines, 0, c.More, nil
		}}
}

// Machines move between selections at full speed beside clients that are held to some: each client's copy is what its
// selections hold, at every page that can be judged and in the end. Nothing of a machine outside is shown.
func TestReconcileWithinSelections(t *testing.T) {
	duration := 15 * time.Second
	if testing.Short() {
		duration = 6 * time.Second
	}
	s := storetest.With(t, store.Config{PoolSize: 32})
	w := &movers{s: s, moves: map[string][]moved{}}
	for i := range 30 {
		w.ids = append(w.ids, fmt.Sprintf("m-%02d", i))
	}
	siteA := func(m moved) bool { return !m.deleted && m.site == "a" }
	webOrG2 := func(m moved) bool { return !m.deleted && (m.team == "web" || m.group == "g2" && m.rack[:1] == "r") }
	notB := func(m moved) bool { return !m.deleted && m.site != "b" && (m.team == "db" || m.team == "ai") }
	readers := []*narrowReader{
		narrowByCursor(t, s, 3, siteA, "site=a"),
		narrowByCursor(t, s, 100, siteA, "site=a"),
		narrowByCursor(t, s, 5, webOrG2, "labels.team=web", "group=g2,rack=r*"),
		narrowByCursor(t, s, 4, notB, "site!=b,labels.team in (db, ai)"),
		narrowBySafeTime(t, s, 7, siteA, "site=a"),
		narrowBySafeTime(t, s, 7, webOrG2, "labels.team=web", "group=g2,rack=r*"),
	}
	for _, id := range w.ids {
		if _, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: id,
			Labels: map[string]string{"team": "web"}, Spec: &baremetalv1.MachineSpec{Provider: "fake", Site: "a", Group: "g1",
				Rack: "r1"}}, "x", time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := w.change(t.Context(), []string{id}, func(pgx.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	w.end = time.Now().Add(duration)
	g, _ := task.New(t.Context())
	w.run(g)
	for _, r := range readers {
		g.Go(r.name, func(ctx context.Context) error {
			for time.Now().Before(w.end) {
				if _, err := r.read(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, r := range readers {
		judgeNarrow(t, s, r, w.moves)
	}
}

// judgeNarrow lets a client read to the end, and compares its copy with the machines.
func judgeNarrow(t *testing.T, s *store.Store, r *narrowReader, moves map[string][]moved) {
	t.Helper()
	want := map[string]int64{}
	for id, all := range moves {
		sort.Slice(all, func(i, j int) bool { return all[i].version < all[j].version })
		if last := all[len(all)-1]; r.inside(last) {
			want[id] = last.version
		}
	}
	// A transaction of another test on this server may hold the last pages back for a moment.
	testkit.Eventually(t, time.Minute, func() bool {
		for more := true; more; {
			var err error
			if more, err = r.read(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		return maps.Equal(r.copyOf(), want)
	}, "%s: the copy is not what the selections hold", r.name)
	bad, checked := r.wrong(moves)
	if !r.repeats {
		bad = append(bad, r.unfounded(moves)...)
	}
	for _, b := range bad {
		t.Error(b)
	}
	stones := 0
	for _, n := range r.stones {
		stones += n
	}
	if stones == 0 {
		t.Errorf("%s: no machine has left", r.name)
	}
	t.Logf("%s: %d pages, %d tombstones, %d changes judged in passing, %d machines in the end", r.name, len(r.pages),
		stones, checked, len(want))
}

// A cursor is good for the selections that it was made for, names no machine outside, and expires with the departures
// behind it.
func TestCursorsWithinSelections(t *testing.T) {
	s := storetest.New(t)
	here, there := s.MachineFeed.Narrowed(selectionsOf(t, "site=a")), s.MachineFeed.Narrowed(selectionsOf(t, "site=b"))
	register := func(id, site string) {
		t.Helper()
		_, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: id,
			Spec: &baremetalv1.MachineSpec{Provider: "fake", Site: site}}, "x", storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
	}
	head, _, err := here.HeadCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wide, _, err := s.MachineFeed.HeadCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		read   func(context.Context, string, time.Time, int32) (*machinestore.Changes, error)
		cursor string
	}{
		"another selection":                {there.Reconcile, head},
		"the whole fleet, by a narrow one": {s.MachineFeed.Reconcile, head},
		"a selection, by a wide one":       {here.Reconcile, wide},
	} {
		_, err := c.read(t.Context(), c.cursor, time.Time{}, 7)
		if storetest.WantReason(t, err, "CURSOR_EXPIRED"); t.Failed() {
			t.Fatal(name)
		}
	}
	register("m-here", "a")
	register("m-there", "b")
	cursor := head
	testkit.Eventually(t, time.Minute, func() bool {
		c, err := here.Reconcile(t.Context(), cursor, time.Time{}, 7)
		if err != nil {
			t.Fatal(err)
		}
		cursor = c.Next
		return len(c.Machines) == 1 && c.Machines[0].GetMachineId() == "m-here"
	}, "the machine does not come")
	// The client has read all; a machine leaves, and retention comes before the client.
	if _, err := s.Machines.Update(t.Context(), &baremetalv1.Machine{MachineId: "m-here",
		Spec: &baremetalv1.MachineSpec{Site: "b"}}, "x", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if err := s.MachineFeed.ForgetDepartures(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := here.CheckCursor(t.Context(), cursor); err != nil {
		t.Errorf("before a departure is old: %v", err)
	}
	if err := s.MachineFeed.ForgetDepartures(t.Context(), time.Now().Add(8*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	_, err = here.Reconcile(t.Context(), cursor, time.Time{}, 7)
	storetest.WantReason(t, err, "CURSOR_EXPIRED")
	storetest.WantReason(t, here.CheckCursor(t.Context(), cursor), "CURSOR_EXPIRED")
	_, err = here.Reconcile(t.Context(), "", time.Now(), 7)
	storetest.WantReason(t, err, "CURSOR_EXPIRED")
	if _, err := s.MachineFeed.Reconcile(t.Context(), wide, time.Time{}, 7); err != nil {
		t.Errorf("a reader of the whole fleet: %v", err)
	}
	testkit.Eventually(t, time.Minute, func() bool { // an open transaction of another test may be older than the departure
		fresh, _, err := here.HeadCursor(t.Context())
		return err == nil && here.CheckCursor(t.Context(), fresh) == nil
	}, "a new cursor is refused")
}
