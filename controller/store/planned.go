package store

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// planned has Postgres plan each query for its own parameters. That costs a fraction of a millisecond, and is for queries
// whose best plan depends on what is asked: filters that are empty or not, times that are long ago or not. A plan that
// fits all of them would read the whole fleet for each.
type planned struct{ db dbsqlc.DBTX }

// args has pgx use the unnamed statement, which Postgres plans at each use.
func (p planned) args(args []any) []any {
	return append([]any{pgx.QueryExecModeCacheDescribe}, args...)
}

// Exec implements dbsqlc.DBTX.
func (p planned) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return p.db.Exec(ctx, sql, p.args(args)...)
}

// Query implements dbsqlc.DBTX.
func (p planned) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return p.db.Query(ctx, sql, p.args(args)...)
}

// QueryRow implements dbsqlc.DBTX.
func (p planned) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return p.db.QueryRow(ctx, sql, p.args(args)...)
}

// planned gives queries that are planned for their parameters.
func (s *Store) planned() *dbsqlc.Queries { return dbsqlc.New(planned{s.pool}) }
