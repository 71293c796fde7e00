package machine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// writers change machines as fast as they can until their time is over.
type writers struct {
	s      *store.Store
	ledger *ledger
	end    time.Time
	hold   time.Duration
	shared []string
}

// change runs fn in a transaction of its own and commits it. fn returns the machines that it has changed.
func (w *writers) change(ctx context.Context, fn func(tx pgx.Tx) ([]string, error)) error {
	tx, err := w.s.DB.Pool().Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback(context.WithoutCancel(ctx)) // committed, or the error that counts is another
	touched, err := fn(tx)
	if err != nil {
		return err
	}
	if len(touched) == 0 {
		return tx.Rollback(ctx)
	}
	rows, err := tx.Query(ctx,
		"SELECT machine_id, version, change_xid::text::bigint FROM machines WHERE machine_id = ANY($1)", touched)
	if err != nil {
		return err
	}
	found := map[string]committed{}
	var id string
	var c committed
	if _, err := pgx.ForEachRow(rows, []any{&id, &c.version, &c.xid},
		func() error { found[id] = c; return nil }); err != nil {
		return err
	}
	before := time.Now()
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	after := time.Now()
	for id, c := range found {
		c.before, c.after = before, after
		w.ledger.add(id, c)
	}
	return nil
}

// some draws machines in the order of their ids, so that writers don't lock each other out.
func (w *writers) some(n int) []string {
	var out []string
	for range n {
		out = append(out, w.shared[rand.IntN(len(w.shared))])
	}
	slices.Sort(out)
	return slices.Compact(out)
}

const touch = "UPDATE machines SET labels = jsonb_build_object('n', $2::text) WHERE machine_id = $1"

func (w *writers) rows(ctx context.Context, i int) error {
	return w.change(ctx, func(tx pgx.Tx) ([]string, error) {
		ids := w.some(1 + rand.IntN(4))
		for _, id := range ids {
			if _, err := tx.Exec(ctx, touch, id, fmt.Sprint(i)); err != nil {
				return nil, err
			}
		}
		return ids, nil
	})
}

// conditions changes a child table and nothing else.
func (w *writers) conditions(ctx context.Context, i int) error {
	return w.change(ctx, func(tx pgx.Tx) ([]string, error) {
		id, err := w.lockOne(ctx, tx)
		if err != nil {
			return nil, err
		}
		const set = `INSERT INTO machine_conditions (machine_id, type, status, message, last_transition) VALUES ($1, 'Degraded', true, $2, now())
			ON CONFLICT (machine_id, type) DO UPDATE SET message = excluded.message`
		if i%5 == 4 {
			tag, err := tx.Exec(ctx, "DELETE FROM machine_conditions WHERE machine_id = $1", id[0])
			if tag.RowsAffected() == 0 {
				return nil, err
			}
			return id, err
		}
		_, err = tx.Exec(ctx, set, id[0], fmt.Sprint(i))
		return id, err
	})
}

// lockOne locks a machine: what belongs to it may be changed with its row locked only.
func (w *writers) lockOne(ctx context.Context, tx pgx.Tx) ([]string, error) {
	id := w.some(1)
	_, err := tx.Exec(ctx, "SELECT 1 FROM machines WHERE machine_id = $1 FOR UPDATE", id[0])
	return id, err
}

// macs changes the other child table; each writer has addresses of its own.
func (w *writers) macs(writer int) func(context.Context, int) error {
	return func(ctx context.Context, i int) error {
		mac := fmt.Sprintf("02:%02x:00:00:00:%02x", writer, (i/2)%64)
		return w.change(ctx, func(tx pgx.Tx) ([]string, error) {
			if i%2 == 0 {
				id, err := w.lockOne(ctx, tx)
				if err != nil {
					return nil, err
				}
				_, err = tx.Exec(ctx, "INSERT INTO machine_macs (mac, machine_id) VALUES ($1::text::macaddr, $2)", mac, id[0])
				return id, err
			}
			const lock = "SELECT 1 FROM machines m JOIN machine_macs a USING (machine_id) WHERE a.mac = $1::text::macaddr FOR " +
				"UPDATE OF m"
			if _, err := tx.Exec(ctx, lock, mac); err != nil {
				return nil, err
			}
			rows, err := tx.Query(ctx, "DELETE FROM machine_macs WHERE mac = $1::text::macaddr RETURNING machine_id", mac)
			if err != nil {
				return nil, err
			}
			return pgx.CollectRows(rows, pgx.RowTo[string])
		})
	}
}

// rollbacks changes much and takes it back, wholly or in part.
func (w *writers) rollbacks(ctx context.Context, i int) error {
	return w.change(ctx, func(tx pgx.Tx) ([]string, error) {
		ids := w.some(2)
		if len(ids) < 2 {
			return nil, nil
		}
		if _, err := tx.Exec(ctx, touch, ids[0], fmt.Sprint(i)); err != nil || i%2 == 0 {
			return nil, err
		}
		if _, err := tx.Exec(ctx, "SAVEPOINT here"); err != nil {
			return nil, err
		}
		if _, err := tx.Exec(ctx, touch, ids[1], fmt.Sprint(i)); err != nil {
			return nil, err
		}
		_, err := tx.Exec(ctx, "ROLLBACK TO here")
		return ids[:1], err
	})
}

// byAPI registers, updates and deletes machines that nobody else changes.
func (w *writers) byAPI(writer int) func(context.Context, int) error {
	id := ""
	return func(ctx context.Context, i int) error {
		before := time.Now()
		var err error
		switch i % 10 {
		case 0:
			id = fmt.Sprintf("m-api-%d-%d", writer, i)
			_, err = w.s.Machines.Register(ctx, &baremetalv1.Machine{MachineId: id,
				Spec: &baremetalv1.MachineSpec{Provider: "fake"}}, "x", before)
		case 9:
			_, err = w.s.Nodes.Delete(ctx, id, "x", true, before)
		default:
			_, err = w.s.Machines.Update(ctx, &baremetalv1.Machine{MachineId: id, Labels: map[string]string{"n": fmt.Sprint(i)}},
				"x", before)
		}
		if err != nil {
			return err
		}
		c := committed{before: before, after: time.Now()}
		q := "SELECT version, change_xid::text::bigint FROM machines WHERE machine_id = $1"
		if err := w.s.DB.Pool().QueryRow(ctx, q, id).Scan(&c.version, &c.xid); err != nil {
			return err
		}
		w.ledger.add(id, c)
		return nil
	}
}

// slow changes a machine at once and commits much later: the row carries an early time. Between two of them others may
// be read in peace.
func (w *writers) slow(own []string) func(context.Context, int) error {
	return func(ctx context.Context, i int) error {
		if i > 0 {
			<-time.After(w.hold / 3)
		}
		return w.change(ctx, func(tx pgx.Tx) ([]string, error) {
			id := own[i%len(own)]
			if _, err := tx.Exec(ctx, touch, id, fmt.Sprint(i)); err != nil {
				return nil, err
			}
			_, err := tx.Exec(ctx, "SELECT pg_sleep($1)", w.hold.Seconds())
			return []string{id}, err
		})
	}
}

// run starts 16 writers.
func (w *writers) run(g *task.Group, slow []string) {
	kinds := []func(context.Context, int) error{w.slow(slow)}
	for i := len(kinds); i < 16; i++ {
		kinds = append(kinds, []func(context.Context, int) error{w.rows, w.conditions, w.macs(i), w.rollbacks,
			w.byAPI(i)}[i%5])
	}
	for n, kind := range kinds {
		g.Go(fmt.Sprintf("writer-%d", n), func(ctx context.Context) error {
			for i := 0; time.Now().Before(w.end); i++ {
				if err := kind(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// Writers at full speed beside readers with small pages: no reader misses a change. A reader by plain time, in the same
// run, does.
func TestReconcileNeverMisses(t *testing.T) {
	duration, hold := 15*time.Second, 4*time.Second
	if testing.Short() {
		duration, hold = 8*time.Second, 2*time.Second
	}
	s := storetest.With(t, store.Config{PoolSize: 32})
	w := &writers{s: s, ledger: &ledger{changes: map[string][]committed{}}, hold: hold}
	var slow []string
	for i := range 40 {
		id := fmt.Sprintf("m-%02d", i)
		storetest.Register(t, s, id)
		if i < 36 {
			w.shared = append(w.shared, id)
		} else {
			slow = append(slow, id)
		}
	}
	var readers []*reader
	for i := range 4 {
		readers = append(readers, byCursor(s, fmt.Sprintf("cursor %d", i), "", int32(7-i)))
	}
	walk, naive := byWalk(s, 7), byPlainTime(s, 7)
	readers = append(readers, bySafeTime(s, 7), walk, naive)
	w.end = time.Now().Add(duration)
	g, _ := task.New(t.Context())
	w.run(g, slow)
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
	all, alive := tableVersions(t, s, true), tableVersions(t, s, false)
	for _, r := range readers {
		want := all
		if r == walk {
			want = alive // what was deleted before it began is nothing to it
		}
		// A transaction of another test on this server may hold the last pages back for a moment.
		testDrain(t, r, want, r == naive)
	}
	report(t, readers, w.ledger)
	if missed := naive.missing(all); len(missed) == 0 {
		t.Error("the reader by plain time missed nothing: this test would not notice a bad cursor")
	} else {
		t.Logf("the reader by plain time misses the last change of %d machines for ever, such as %s", len(missed), missed[0])
	}
}

func testDrain(t *testing.T, r *reader, want map[string]int64, once bool) {
	t.Helper()
	drain := func() bool {
		for range 10_000 {
			more, err := r.read(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !more {
				break
			}
		}
		return len(r.missing(want)) == 0
	}
	if once {
		drain()
		return
	}
	for deadline := time.Now().Add(30 * time.Second); !drain(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s misses %s", r.name, strings.Join(r.missing(want), "; "))
		}
	}
}

func report(t *testing.T, readers []*reader, l *ledger) {
	t.Helper()
	total := 0
	for _, c := range l.changes {
		total += len(c)
	}
	for _, r := range readers {
		bad, checked := r.passedBy(l)
		for _, b := range bad {
			t.Error(b)
		}
		if strings.HasPrefix(r.name, "cursor") && checked == 0 {
			t.Errorf("%s: no change could be judged", r.name)
		}
		t.Logf("%s: %d pages, %d of %d committed changes of %d machines judged in passing", r.name, len(r.pages), checked,
			total, len(l.changes))
	}
}

// An open transaction of another database on the same server holds pages back. The safe time must be held back too.
func TestSafeTimeBesideOtherDatabases(t *testing.T) {
	other, s := storetest.New(t), storetest.New(t)
	storetest.Register(t, s, "m-1")
	tx, err := other.DB.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) // rolled back below
	if _, err := tx.Exec(t.Context(), "SELECT pg_current_xact_id()"); err != nil {
		t.Fatal(err)
	}
	r := bySafeTime(s, 7)
	testDrain(t, r, nil, true)
	storetest.Register(t, s, "m-1", "02:00:00:00:00:01")
	want := tableVersions(t, s, true)
	testDrain(t, r, want, true)
	if len(r.missing(want)) == 0 {
		t.Fatal("the page was not held back")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	testDrain(t, r, want, false)
}

func TestForeignCursors(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	head, _, err := s.MachineFeed.HeadCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"x", "e30", head[:len(head)-4], strings.Repeat("A", 300)} {
		_, err := s.MachineFeed.Reconcile(t.Context(), bad, time.Time{}, 7)
		storetest.WantReason(t, err, "INVALID_CURSOR")
	}
	if err := s.Incarnations.Restored(t.Context(), storetest.Now()); err != nil {
		t.Fatal(err)
	}
	_, err = s.MachineFeed.Reconcile(t.Context(), head, time.Time{}, 7)
	storetest.WantReason(t, err, "CURSOR_EXPIRED")
	testDrain(t, byCursor(s, "after the restore", "", 7), tableVersions(t, s, true), false)
}

// What changes nothing that a client can see moves no version.
func TestVersionsMoveWithRealChangesOnly(t *testing.T) {
	s := storetest.New(t)
	first := storetest.Register(t, s, "m-1", "02:00:00:00:00:01")
	again := storetest.Register(t, s, "m-1", "02:00:00:00:00:01")
	if again.GetVersion() != first.GetVersion() || !again.GetUpdatedAt().AsTime().Equal(first.GetUpdatedAt().AsTime()) {
		t.Errorf("version %d became %d", first.GetVersion(), again.GetVersion())
	}
	for i, mac := range []string{"02:00:00:00:00:02", "02:00:00:00:00:03"} {
		next := storetest.Register(t, s, "m-1", mac)
		if next.GetVersion() <= again.GetVersion() {
			t.Errorf("change %d: version %d became %d", i, again.GetVersion(), next.GetVersion())
		}
		again = next
	}
	stale := &baremetalv1.Machine{MachineId: "m-1", Version: first.GetVersion(), Labels: map[string]string{"a": "b"}}
	_, err := s.Machines.Update(t.Context(), stale, "x", storetest.Now())
	storetest.WantReason(t, err, "VERSION_CONFLICT")
}

// A large page is read in parts. Each machine on it is what it is by itself, and they are in the order of their
// changes.
func TestLargePage(t *testing.T) {
	s := storetest.New(t)
	begin := storetest.Now()
	const machines = 600
	for _, err := range storetest.Together(t, machines, func(ctx context.Context, i int) error {
		_, err := s.Machines.Register(ctx, &baremetalv1.Machine{
			MachineId: fmt.Sprintf("m-%03d", i), Labels: map[string]string{"number": fmt.Sprint(i)},
			Spec: &baremetalv1.MachineSpec{Provider: "fake"},
		}, "tester", storetest.Now())
		return err
	}) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"m-000", "m-255", "m-256", "m-511", "m-512", "m-599"} {
		storetest.Live(t, s, id)
	}
	rows, err := s.DB.Pool().Query(t.Context(), "SELECT machine_id FROM machines ORDER BY change_xid, machine_id")
	if err != nil {
		t.Fatal(err)
	}
	order, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(order) != machines {
		t.Fatalf("%d machines: %v", len(order), err)
	}
	for _, since := range []time.Time{begin, {}} {
		var page *machinestore.Changes
		// A page ends before the oldest transaction that is open, which may be another test's: databases of one server count
		// together.
		testkit.Eventually(t, time.Minute, func() bool {
			page, err = s.MachineFeed.Reconcile(t.Context(), "", since, 1000)
			return err != nil || len(page.Machines) == machines
		}, "not all machines come")
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, m := range page.Machines {
			ids = append(ids, m.GetMachineId())
			if alone := storetest.Machine(t, s, m.GetMachineId()); !proto.Equal(m, alone) {
				t.Fatalf("on the page:\n%v\nby itself:\n%v", m, alone)
			}
		}
		if !slices.Equal(ids, order) || page.More {
			t.Fatalf("since %v: %d machines, more %t, not in the order of their changes:\n%q\n%q", since, len(ids), page.More,
				ids, order)
		}
		if page, err = s.MachineFeed.Reconcile(t.Context(), "", since, 300); err != nil || len(page.Machines) != 300 ||
			!page.More ||
			page.Machines[299].GetMachineId() != order[299] {
			t.Fatalf("since %v: the first 300 are %d, more %t: %v", since, len(page.Machines), page.More, err)
		}
	}
}

// A page reads machines in the places where they were found, and may come after one has moved, or to a place that
// another has now.
func TestMachinesThatHaveMovedAreFound(t *testing.T) {
	s := storetest.New(t)
	q := dbsqlc.New(s.DB.Pool())
	for _, id := range []string{"m-1", "m-2", "m-3", "m-4"} {
		storetest.Register(t, s, id)
	}
	var found []dbsqlc.ChangedMachinesRow
	var err error
	// A page ends before the oldest transaction that is open, which may be another test's.
	storetest.Eventually(t, func() bool {
		found, err = q.ChangedMachines(t.Context(), dbsqlc.ChangedMachinesParams{AfterXid: "0", PageSize: 10})
		return err != nil || len(found) == 4
	}, "not all machines come")
	if err != nil || len(found) != 4 {
		t.Fatalf("%d machines: %v", len(found), err)
	}
	if _, err := s.DB.Pool().Exec(t.Context(),
		"UPDATE machines SET config_generation = 7 WHERE machine_id = 'm-2'"); err != nil {
		t.Fatal(err)
	}
	rows, err := q.MachinesOfPage(t.Context(), dbsqlc.MachinesOfPageParams{
		// As it was found, moved, in another's place, beyond the end of the table, and not there at all.
		MachineIds: []string{"m-4", "m-2", "m-1", "m-3", "m-5"},
		Places:     []string{found[3].Place, found[1].Place, found[3].Place, "(4000000000,1)", found[0].Place},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rows {
		got = append(got, r.MachineID)
	}
	if want := []string{"m-4", "m-2", "m-1", "m-3"}; !slices.Equal(got, want) || rows[1].ConfigGeneration != 7 {
		t.Fatalf("%q instead of %q, and m-2 is of generation %d", got, want, rows[1].ConfigGeneration)
	}
}
