// Package overview counts the rows of the database, for a support bundle.
package overview

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// limit bounds a count over a large table.
const limit = 10 * time.Second

// Store counts. It is safe for concurrent use.
type Store struct{ db *pgtx.DB }

// New returns a store over the database.
func New(db *pgtx.DB) *Store { return &Store{db: db} }

// Tally is a number of rows that are alike.
type Tally struct {
	What   string `json:"what"`
	State  string `json:"state"`
	Number int64  `json:"number"`
	Oldest string `json:"oldest,omitempty"`
}

// TallyOperations counts the operations that were created in the last seven days, by type and phase.
func (s *Store) TallyOperations(ctx context.Context) ([]Tally, error) {
	return s.tally(ctx, `SELECT type, phase, count(*), min(created_at)::text FROM operations
		WHERE created_at > now() - interval '7 days' GROUP BY 1, 2 ORDER BY 1, 2`)
}

// TallyCommands counts their commands, by kind and state.
func (s *Store) TallyCommands(ctx context.Context) ([]Tally, error) {
	return s.tally(ctx, `SELECT kind, state, count(*), min(created_at)::text FROM commands
		WHERE created_at > now() - interval '7 days' GROUP BY 1, 2 ORDER BY 1, 2`)
}

// TallyTables returns the size of the largest tables, and about how many rows each has.
func (s *Store) TallyTables(ctx context.Context) ([]Tally, error) {
	return s.tally(ctx, `SELECT relname::text, pg_size_pretty(pg_total_relation_size(oid)),
		greatest(reltuples, 0)::bigint, '' FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
		ORDER BY pg_total_relation_size(oid) DESC LIMIT 40`)
}

// TallyJobs counts River's jobs, by queue and kind, and state.
func (s *Store) TallyJobs(ctx context.Context) ([]Tally, error) {
	return s.tally(ctx, `SELECT queue || ' ' || kind, state::text, count(*), min(scheduled_at)::text
		FROM river_job GROUP BY 1, 2 ORDER BY 1, 2`)
}

func (s *Store) tally(ctx context.Context, sql string) ([]Tally, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	rows, err := s.db.Pool().Query(ctx, sql)
	if err != nil {
		return nil, fmt.Errorf("count rows: %w", err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Tally])
	if err != nil {
		return nil, fmt.Errorf("count rows: %w", err)
	}
	return out, nil
}

// RiverMigrations are the numbers of River's migrations that have been applied.
func (s *Store) RiverMigrations(ctx context.Context) ([]int32, error) {
	rows, err := s.db.Pool().Query(ctx, `SELECT version::int FROM river_migration ORDER BY 1`)
	if err != nil {
		return nil, fmt.Errorf("read River's migrations: %w", err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	if err != nil {
		return nil, fmt.Errorf("read River's migrations: %w", err)
	}
	return out, nil
}
