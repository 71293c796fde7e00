package schema

import (
	"context"
	"fmt"
	"sync/atomic"
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

// TestAMigrationLetsWritersFinish: writers lock a row and then write it, as every decision on a machine does. A migration
// that changes the table and then reads its rows under a lock is in no deadlock with them.
func TestAMigrationLetsWritersFinish(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, testkit.EmptyDatabase(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(ctx, `CREATE TABLE machines (id int PRIMARY KEY, x int NOT NULL DEFAULT 0);
		INSERT INTO machines (id) SELECT generate_series(1, 4);
		CREATE TABLE schema_version (version integer NOT NULL, needs integer NOT NULL DEFAULT 0)`); err != nil {
		t.Fatal(err)
	}
	writing, stop := context.WithCancel(ctx)
	group, _ := task.New(writing)
	var began [4]atomic.Int32
	for i := range began {
		group.Go("write a row", func(context.Context) error {
			for writing.Err() == nil {
				err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, "SELECT FROM machines WHERE id = $1 FOR UPDATE", i+1); err != nil {
						return err
					}
					began[i].Add(1)
					_, err := tx.Exec(ctx, "UPDATE machines SET x = x + (SELECT 1 FROM pg_sleep(0.05)) WHERE id = $1", i+1)
					return err
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	testkit.Eventually(t, testkit.Patience, func() bool {
		return began[0].Load() > 0 && began[1].Load() > 0 && began[2].Load() > 0 && began[3].Load() > 0
	}, "a row is not written")
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	for version := range 5 {
		migration := fmt.Sprintf(`CREATE TABLE names_%[1]d (id int REFERENCES machines);
			CREATE TRIGGER changed_%[1]d BEFORE UPDATE ON machines FOR EACH ROW
			EXECUTE FUNCTION suppress_redundant_updates_trigger();
			INSERT INTO names_%[1]d SELECT id FROM machines`, version)
		if err := runMigration(ctx, conn, migration, version, 0); err != nil {
			t.Fatalf("migration %d: %v", version, err)
		}
	}
	stop()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
	var deadlocks int
	if err := conn.QueryRow(ctx, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").
		Scan(&deadlocks); err != nil || deadlocks > 0 {
		t.Errorf("%d deadlocks, %v", deadlocks, err)
	}
}
