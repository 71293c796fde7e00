package schema

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// TestAMigrationSurvivesADeadlock: a controller of an older version holds the second table of a migration, and asks for
// the first one.
func TestAMigrationSurvivesADeadlock(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, testkit.EmptyDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	exec := func(do func(context.Context, string) error, sql string) {
		t.Helper()
		if err := do(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	onPool := func(ctx context.Context, sql string) error {
		_, err := pool.Exec(ctx, sql)
		return err
	}
	exec(onPool, `CREATE TABLE first (x int); CREATE TABLE second (x int);
		CREATE TABLE schema_version (version integer NOT NULL, needs integer NOT NULL DEFAULT 0)`)
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	inTx := func(ctx context.Context, sql string) error {
		_, err := tx.Exec(ctx, sql)
		return err
	}
	exec(inTx, "SET LOCAL deadlock_timeout = '1h'") // so that the migration is the one that is ended
	exec(inTx, "INSERT INTO second VALUES (1)")
	migrated := make(chan error, 1)
	task.Background("migrate", func() {
		conn, err := pool.Acquire(ctx)
		if err == nil {
			defer conn.Release()
			err = runMigration(ctx, conn, "ALTER TABLE first ADD y int; ALTER TABLE second ADD y int", 7, 3)
		}
		migrated <- err
	})
	testkit.Eventually(t, testkit.Patience, func() bool {
		var waits bool
		err := pool.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_locks WHERE relation = 'second'::regclass AND NOT granted)`).
			Scan(&waits)
		return err == nil && waits
	}, "the migration does not wait for the second table")
	exec(inTx, "INSERT INTO first VALUES (1)")
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Fatal(err)
	}
	rows, err := pool.Query(ctx, "SELECT version, needs FROM schema_version")
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ Version, Needs int }])
	if err != nil || len(got) != 1 || got[0].Version != 7 || got[0].Needs != 3 {
		t.Errorf("schema version %v, %v", got, err)
	}
}
