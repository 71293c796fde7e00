package pgtx

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// AllRows is the limit of a list that is only counted.
const AllRows = math.MaxInt32

// countTime bounds the counting of one list in the database.
const countTime = 250 * time.Millisecond

// counter replaces a list's statement by one that counts its rows. It is a dbsqlc.DBTX whose lists are empty.
type counter struct {
	db   *DB
	rows int64
}

type counterKey struct{}

// Count returns how many rows the lists have that read asks for. read gets a context with which lists of this store
// return nothing and are counted instead; it asks for AllRows. known is false where counting took longer than
// countTime.
func (s *DB) Count(ctx context.Context, read func(context.Context) error) (rows int64, known bool, err error) {
	c := &counter{db: s}
	err = read(context.WithValue(ctx, counterKey{}, c))
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "57014" { // query_canceled
		return 0, false, nil
	}
	return c.rows, err == nil, err
}

func Counting(ctx context.Context) *counter {
	c, _ := ctx.Value(counterKey{}).(*counter)
	return c
}

// Lists are the queries of lists: they read, or count where the context asks for that.
func (s *DB) Lists(ctx context.Context) *dbsqlc.Queries {
	if c := Counting(ctx); c != nil {
		return dbsqlc.New(c)
	}
	return s.Q
}

// CustomPlanLists is Lists with statements that are planned for their parameters.
func (s *DB) CustomPlanLists(ctx context.Context) *dbsqlc.Queries {
	if c := Counting(ctx); c != nil {
		return dbsqlc.New(c)
	}
	return s.CustomPlan()
}

// Query implements dbsqlc.DBTX.
func (c *counter) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	err := pgx.BeginTxFunc(ctx, c.db.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL statement_timeout = %d", countTime.Milliseconds())); err != nil {
			return err
		}
		var n int64
		// A plan for these parameters, as in customPlan.
		args = append([]any{pgx.QueryExecModeCacheDescribe}, args...)
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM ("+sql+"\n) counted", args...).Scan(&n); err != nil {
			return err
		}
		c.rows += n
		return nil
	})
	return noRows{}, err
}

// Exec implements dbsqlc.DBTX.
func (c *counter) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errors.New("a list that is counted writes nothing")
}

// QueryRow implements dbsqlc.DBTX.
func (c *counter) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return c.db.pool.QueryRow(ctx, sql, args...)
}

// noRows is an empty result.
type noRows struct{}

func (noRows) Close()                                       {}
func (noRows) Err() error                                   { return nil }
func (noRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (noRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (noRows) Next() bool                                   { return false }
func (noRows) Scan(...any) error                            { return pgx.ErrNoRows }
func (noRows) Values() ([]any, error)                       { return nil, pgx.ErrNoRows }
func (noRows) RawValues() [][]byte                          { return nil }
func (noRows) Conn() *pgx.Conn                              { return nil }
func (noRows) TypeMap() *pgtype.Map                         { return nil }
