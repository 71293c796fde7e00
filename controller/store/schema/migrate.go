package schema

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
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

// migrationTries bounds how often a migration is run whose locks end in a deadlock with the work of controllers of an
// older version. Each waits for the server's deadlock_timeout, 1 s by default.
const migrationTries = 20

// again runs migrations, each of which is a transaction. One that a deadlock has ended has changed nothing.
func again(migrations func() error) (err error) {
	for range migrationTries {
		if err = migrations(); !pgtx.Repeatable(err) {
			return err
		}
	}
	return err
}

// runMigration runs a migration, and stores the version that it leads to in the same transaction.
func runMigration(ctx context.Context, conn *pgxpool.Conn, sql string, version, needs int) error {
	return again(func() error { return tryMigration(ctx, conn, sql, version, needs) })
}

func tryMigration(ctx context.Context, conn *pgxpool.Conn, sql string, version, needs int) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// An index on a large table takes longer than any call may.
		if _, err := tx.Exec(ctx, "SET LOCAL statement_timeout = 0"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM schema_version"); err != nil {
			return err
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
	err = again(func() error {
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
