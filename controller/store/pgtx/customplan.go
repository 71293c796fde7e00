package pgtx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// customPlan has Postgres plan each query for its own parameters. That costs a fraction of a millisecond, and is for
// queries whose best plan depends on the parameters: filters that are empty or not, times that are long ago or not. A
// plan that fits all of them would read the whole fleet for each.
type customPlan struct{ db dbsqlc.DBTX }

// args has pgx use the unnamed statement, which Postgres plans at each use.
func (p customPlan) args(args []any) []any {
	return append([]any{pgx.QueryExecModeCacheDescribe}, args...)
}

// Exec implements dbsqlc.DBTX.
func (p customPlan) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return p.db.Exec(ctx, sql, p.args(args)...)
}

// Query implements dbsqlc.DBTX.
func (p customPlan) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return p.db.Query(ctx, sql, p.args(args)...)
}

// QueryRow implements dbsqlc.DBTX.
func (p customPlan) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return p.db.QueryRow(ctx, sql, p.args(args)...)
}

// CustomPlan returns queries that are planned for their parameters.
func (s *DB) CustomPlan() *dbsqlc.Queries { return dbsqlc.New(customPlan{s.pool}) }
