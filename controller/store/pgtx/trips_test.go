package pgtx_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// TestTheNumberOfATransactionCostsNothing: the number is asked for with a statement that is sent anyway. Only after
// statements that return rows does the question cost a round trip.
func TestTheNumberOfATransactionCostsNothing(t *testing.T) {
	c := &storetest.Trips{}
	db, err := pgtx.Open(t.Context(), pgtx.Config{URL: testkit.Database(t), Logger: testkit.Logger(t), Tracer: c,
		PoolSize: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	db.Connected = func(context.Context, *pgx.Conn) error { return nil }
	db.Committed = func([]any) {}
	if _, err := db.Pool().Exec(t.Context(), "CREATE TABLE numbers (n int)"); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	exec := func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO numbers VALUES ($1)", 1)
		return err
	}
	batch := func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue("INSERT INTO numbers VALUES ($1)", 1)
		b.Queue("INSERT INTO numbers VALUES ($1)", 2)
		return tx.SendBatch(ctx, b).Close()
	}
	reads := func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		b.Queue("SELECT count(*) FROM numbers")
		return tx.SendBatch(ctx, b).Close()
	}
	read := func(tx pgx.Tx) error { return tx.QueryRow(ctx, "SELECT count(*) FROM numbers").Scan(new(int)) }
	rows := func(tx pgx.Tx) error {
		r, err := tx.Query(ctx, "INSERT INTO numbers VALUES ($1) RETURNING n", 1)
		if err != nil {
			return err
		}
		r.Close()
		return r.Err()
	}
	nested := func(tx pgx.Tx) error {
		inner, err := tx.Begin(ctx)
		if err != nil {
			return err
		}
		if err := exec(inner); err != nil {
			return err
		}
		return inner.Commit(ctx)
	}
	for _, one := range []struct {
		name string
		do   []func(pgx.Tx) error
		// want are the round trips beside BEGIN and COMMIT.
		want int64
	}{
		{"nothing", nil, 1},
		{"a write", []func(pgx.Tx) error{exec}, 1},
		{"a batch", []func(pgx.Tx) error{batch}, 1},
		{"a batch of reads", []func(pgx.Tx) error{reads}, 1},
		{"a read", []func(pgx.Tx) error{read}, 2},
		{"a write with rows", []func(pgx.Tx) error{rows}, 2},
		{"a read after a write", []func(pgx.Tx) error{exec, read}, 2},
		{"a write after a read", []func(pgx.Tx) error{read, exec}, 2},
		{"two writes", []func(pgx.Tx) error{exec, exec}, 2},
		{"a write with rows after an empty write", []func(pgx.Tx) error{
			func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "DELETE FROM numbers WHERE n = $1", -1)
				return err
			}, rows}, 3},
		{"a transaction within it", []func(pgx.Tx) error{nested}, 4},
	} {
		run := func() {
			t.Helper()
			if err := db.InTx(ctx, func(tx pgx.Tx, _ *dbsqlc.Queries) error {
				for _, do := range one.do {
					if err := do(tx); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatalf("%s: %v", one.name, err)
			}
		}
		run() // prepares the statements
		before := c.RoundTrips.Load()
		run()
		if got := c.RoundTrips.Load() - before - 2; got != one.want {
			t.Errorf("%s: %d round trips beside BEGIN and COMMIT, want %d", one.name, got, one.want)
		}
	}
}

// TestCountCountsWithoutReading: what a list would return is counted, over all lists that are asked for, and read
// otherwise.
func TestCountCountsWithoutReading(t *testing.T) {
	db := opened(t, "")
	if _, err := db.Pool().Exec(t.Context(), "INSERT INTO numbers SELECT generate_series(1, 7)"); err != nil {
		t.Fatal(err)
	}
	const list = "SELECT n FROM numbers WHERE n > $1"
	read := func(ctx context.Context, lists func(context.Context) *dbsqlc.Queries, above int) (n int, err error) {
		rows, err := lists(ctx).Handle().Query(ctx, list, above)
		if err != nil {
			return 0, err
		}
		defer rows.Close()
		for rows.Next() {
			n++
		}
		return n, rows.Err()
	}
	for name, lists := range map[string]func(context.Context) *dbsqlc.Queries{
		"planned once": db.Lists, "planned for its parameters": db.CustomPlanLists,
	} {
		if n, err := read(t.Context(), lists, 2); err != nil || n != 5 {
			t.Errorf("%s: read %d rows, %v", name, n, err)
		}
		counted, known, err := db.Count(t.Context(), func(ctx context.Context) error {
			for _, above := range []int{2, 5} {
				if n, err := read(ctx, lists, above); err != nil || n != 0 {
					t.Errorf("%s: read %d rows while counting, %v", name, n, err)
				}
			}
			return nil
		})
		if counted != 7 || !known || err != nil {
			t.Errorf("%s: counted %d, known %t, %v; want 7", name, counted, known, err)
		}
	}
	counted, known, err := db.Count(t.Context(), func(ctx context.Context) error {
		_, err := db.Lists(ctx).Handle().Query(ctx, "SELECT pg_sleep(10)")
		return err
	})
	if known || err != nil {
		t.Errorf("a list that takes long: counted %d, known %t, %v", counted, known, err)
	}
	_, known, err = db.Count(t.Context(), func(ctx context.Context) error {
		_, err := db.Lists(ctx).Handle().Query(ctx, "SELECT n FROM no_such_table")
		return err
	})
	if known || err == nil {
		t.Errorf("a list of no table: known %t, %v", known, err)
	}
	if _, _, err = db.Count(t.Context(), func(ctx context.Context) error {
		_, err := db.Lists(ctx).Handle().Exec(ctx, "DELETE FROM numbers")
		return err
	}); err == nil || numbers(t, db) != 7 {
		t.Errorf("a count that writes: %v, %d rows", err, numbers(t, db))
	}
}
