package schema

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/migrations"
)

// Settings are those of PostgreSQL on which what the controller promises depends, and its speed.
type Settings struct {
	// Version is such as 150018 for 15.18.
	Version int
	// Fsync, FullPageWrites and SynchronousCommit are as SHOW prints them. An acknowledged commit survives a loss of power
	// only while the first two are "on" and the third is not "off".
	Fsync, FullPageWrites, SynchronousCommit string
	// Checksums is set when damaged pages are noticed.
	Checksums bool
	// MaxConnections is what all clients together may open; Reserved of them are for superusers.
	MaxConnections, Reserved int
	// Time is the server's.
	Time time.Time
}

// Settings reads the server's settings.
func (s *Store) Settings(ctx context.Context) (Settings, error) {
	var v Settings
	err := s.db.Pool().QueryRow(ctx, `SELECT current_setting('server_version_num')::int, current_setting('fsync'),
		current_setting('full_page_writes'), current_setting('synchronous_commit'),
		current_setting('data_checksums') = 'on', current_setting('max_connections')::int,
		current_setting('superuser_reserved_connections')::int, clock_timestamp()`).
		Scan(&v.Version, &v.Fsync, &v.FullPageWrites, &v.SynchronousCommit, &v.Checksums, &v.MaxConnections, &v.Reserved,
			&v.Time)
	if err != nil {
		return Settings{}, fmt.Errorf("read the settings of PostgreSQL: %w", err)
	}
	return v, nil
}

// Newest is the number of the newest migration that this program knows.
func Newest() (int, error) {
	all, err := loadMigrations(migrations.Files)
	return len(all), err
}

// Relations returns the names of some relations in the database, whatever their maker; nothing for an empty one.
func (s *Store) Relations(ctx context.Context) ([]string, error) {
	rows, err := s.db.Pool().Query(ctx, `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname !~ '^pg_' AND n.nspname <> 'information_schema' AND c.relkind IN ('r', 'p', 'v', 'm', 'S', 'f')
		ORDER BY c.relname LIMIT 3`)
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	return names, nil
}
