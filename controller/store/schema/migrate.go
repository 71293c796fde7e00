package schema

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/migrations"
)

// migrationLock serializes controllers that start together.
const migrationLock = 0x1a607

type migration struct {
	version int
	up      string
	down    string
	needs   int // by its first line; 0 where it only expands
}

// MigrateUp brings the schema, and River's, to the newest version. It is safe to run from several controllers.
func (s *Store) MigrateUp(ctx context.Context) error {
	return s.migrate(ctx, func(ctx context.Context, conn *pgxpool.Conn, all []migration) error {
		if err := refuseOlder(ctx, conn, len(all)); err != nil {
			return err
		}
		if err := refusePrepared(ctx, conn); err != nil {
			return err
		}
		if err := s.riverMigrate(ctx, rivermigrate.DirectionUp); err != nil {
			return err
		}
		have, err := schemaVersion(ctx, conn)
		if err != nil {
			return err
		}
		if have < len(all) {
			defer s.db.Pool().Reset() // what was prepared before may have another type of result
		}
		for _, m := range all {
			if m.version <= have {
				continue
			}
			if err := runMigration(ctx, conn, m.up, m.version, needsAt(all, m.version)); err != nil {
				return fmt.Errorf("migrate up to %d: %w", m.version, err)
			}
		}
		return nil
	})
}

// MigrateDown removes everything. It is for tests and for leaving.
func (s *Store) MigrateDown(ctx context.Context) error {
	return s.migrate(ctx, func(ctx context.Context, conn *pgxpool.Conn, all []migration) error {
		have, err := schemaVersion(ctx, conn)
		if err != nil {
			return err
		}
		for _, m := range slices.Backward(all) {
			if m.version > have {
				continue
			}
			if err := runMigration(ctx, conn, m.down, m.version-1, needsAt(all, m.version-1)); err != nil {
				return fmt.Errorf("migrate down from %d: %w", m.version, err)
			}
		}
		if err := s.riverMigrate(ctx, rivermigrate.DirectionDown); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "DROP TABLE schema_version"); err != nil {
			return fmt.Errorf("drop schema_version: %w", err)
		}
		return nil
	})
}

// SchemaVersion is the number of the last migration applied; 0 for none.
func (s *Store) SchemaVersion(ctx context.Context) (int, error) {
	conn, err := s.db.Pool().Acquire(ctx)
	if err != nil {
		return 0, fmt.Errorf("acquire connection: %w", err)
	}
	defer conn.Release()
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT to_regclass('schema_version') IS NOT NULL").Scan(&exists); err != nil || !exists {
		return 0, err
	}
	return schemaVersion(ctx, conn)
}

func (s *Store) migrate(ctx context.Context, fn func(context.Context, *pgxpool.Conn, []migration) error) error {
	all, err := loadMigrations(migrations.Files)
	if err != nil {
		return err
	}
	conn, err := s.db.Pool().Acquire(ctx)
	if err != nil {
		return fmt.Errorf("acquire connection: %w", err)
	}
	defer conn.Release()
	if err := refuseServer(ctx, conn); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", migrationLock); err != nil {
		return fmt.Errorf("lock migrations: %w", err)
	}
	defer func() {
		// A connection that cannot unlock is broken, and its lock ends with it.
		_, _ = conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", migrationLock)
	}()
	const table = "CREATE TABLE IF NOT EXISTS schema_version (version integer NOT NULL);" +
		"ALTER TABLE schema_version ADD COLUMN IF NOT EXISTS needs integer NOT NULL DEFAULT 0"
	if _, err := conn.Exec(ctx, table); err != nil {
		return fmt.Errorf("create schema_version: %w", err)
	}
	return fn(ctx, conn, all)
}

func schemaVersion(ctx context.Context, conn *pgxpool.Conn) (int, error) {
	var v int
	err := conn.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM schema_version").Scan(&v)
	if err != nil {
		return 0, fmt.Errorf("read schema version: %w", err)
	}
	return v, nil
}

// A migration has all tables to itself before its first statement, since controllers of an older version work on
// meanwhile. One may hold a row that the migration waits for, and wait for its table: a deadlock, again at every try.
// Where the tables are not free soon, the migration lets go of those that it has got, and tries again.
const (
	// lockTimeout is how long a try waits for each table.
	lockTimeout = "250ms"
	// politeTries are tries before the connections of controllers are ended, whose work is then taken up again.
	politeTries = 20
	// migrationTries bounds how often a migration is tried: someone else than a controller holds a table.
	migrationTries = 200
)

// lockTables locks the tables of the product; River's migrations are River's.
const lockTables = `SET LOCAL lock_timeout = '` + lockTimeout + `';
DO $$
DECLARE
    list text;
BEGIN
    SELECT string_agg(format('%I', c.relname), ', ' ORDER BY c.relname) INTO list FROM pg_class c
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      AND c.relname NOT LIKE 'river\_%';
    EXECUTE 'LOCK TABLE ' || list || ' IN ACCESS EXCLUSIVE MODE';
END
$$;
SET LOCAL lock_timeout = 0`

// endControllers ends the connections of controllers that are in the middle of something.
const endControllers = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND usename = current_user AND application_name LIKE 'ingot-controller%'
  AND pid <> pg_backend_pid() AND state <> 'idle' AND wait_event IS DISTINCT FROM 'advisory'`

// again runs a migration, which is a transaction. One that was ended by a deadlock, or did not get its locks, has
// changed nothing.
func again(ctx context.Context, migration func(try int) error) (err error) {
	for try := range migrationTries {
		if err = migration(try); !pgtx.Repeatable(err) && !lockedOut(err) {
			return err
		}
		pause := time.NewTimer(20*time.Millisecond + rand.N(200*time.Millisecond))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
	return err
}

// lockedOut reports whether a table was not free in time.
func lockedOut(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55P03" // lock_not_available
}

// runMigration runs a migration, and stores the version that it leads to in the same transaction.
func runMigration(ctx context.Context, conn *pgxpool.Conn, sql string, version, needs int) error {
	return again(ctx, func(try int) error { return tryMigration(ctx, conn, sql, version, needs, try >= politeTries) })
}

func tryMigration(ctx context.Context, conn *pgxpool.Conn, sql string, version, needs int, end bool) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// An index on a large table takes longer than any call may.
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
			return err
		}
		if end {
			if _, err := tx.Exec(ctx, endControllers); err != nil {
				return err
			}
		}
		for _, statements := range []string{lockTables, sql, "DELETE FROM schema_version"} {
			if _, err := tx.Exec(ctx, statements); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "INSERT INTO schema_version (version, needs) VALUES ($1, $2)", version, needs)
		return err
	})
}

// OldestServer is the first version, as server_version_num has it, with all that the migrations use: string_to_table
// and CREATE OR REPLACE TRIGGER came with PostgreSQL 14.
const OldestServer = 140000

// ErrServerTooOld is of a server that is older than OldestServer.
var ErrServerTooOld = errors.New("PostgreSQL is too old")

// refuseServer refuses a server before the first migration, which another one would end in the middle.
func refuseServer(ctx context.Context, conn *pgxpool.Conn) error {
	var version int
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&version); err != nil {
		return fmt.Errorf("read the version of PostgreSQL: %w", err)
	}
	if version < OldestServer {
		return fmt.Errorf("%w: the server is of version %d.%d; upgrade it to %d or later", ErrServerTooOld, version/10000,
			version%10000, OldestServer/10000)
	}
	return nil
}

// refusePrepared refuses a cluster in which prepared transactions could hold back the reconcile cursor for ever.
func refusePrepared(ctx context.Context, conn *pgxpool.Conn) error {
	var n int
	err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_prepared_xacts WHERE database = current_database()").Scan(&n)
	if err != nil {
		return fmt.Errorf("read prepared transactions: %w", err)
	}
	if n > 0 {
		return fmt.Errorf("the database has %d prepared transactions; commit or roll them back first", n)
	}
	return nil
}

// riverMigrate runs each of River's migrations in a transaction of its own: some use what the one before has committed.
func (s *Store) riverMigrate(ctx context.Context, d rivermigrate.Direction) error {
	m, err := rivermigrate.New(riverpgxv5.New(s.db.Pool()), nil)
	if err != nil {
		return fmt.Errorf("prepare River's migrations: %w", err)
	}
	opts := &rivermigrate.MigrateOpts{}
	if d == rivermigrate.DirectionDown {
		opts.TargetVersion = -1
	}
	err = again(ctx, func(int) error {
		_, err := m.Migrate(ctx, d, opts)
		return err
	})
	if err != nil {
		return fmt.Errorf("migrate River's tables: %w", err)
	}
	return nil
}

// loadMigrations pairs NNNN_name.up.sql with its down file, in order, without gaps.
func loadMigrations(files fs.FS) ([]migration, error) {
	ups, err := fs.Glob(files, "*.up.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	slices.Sort(ups)
	var out []migration
	for i, name := range ups {
		version, err := strconv.Atoi(name[:4])
		if err != nil || version != i+1 {
			return nil, fmt.Errorf("migration %s is not number %d", name, i+1)
		}
		up, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		down, err := fs.ReadFile(files, strings.Replace(name, ".up.", ".down.", 1))
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		needs, err := needsOf(string(up))
		if err != nil {
			return nil, fmt.Errorf("migration %s: %w", name, err)
		}
		out = append(out, migration{version: version, up: string(up), down: string(down), needs: needs})
	}
	return out, nil
}
