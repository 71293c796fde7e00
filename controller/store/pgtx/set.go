package pgtx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// setTx begins the transaction of a set. Its statements look rows up by keys, in lists of any length, which would have
// each planned again every time. They are planned once for each connection, maybe while the tables are empty and
// nothing is known of them: reading all of a table must not seem cheaper then.
var setTx = pgx.TxOptions{BeginQuery: "BEGIN; SET LOCAL plan_cache_mode = force_generic_plan; " +
	"SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"}

// InSet runs fn in the transaction of a set and commits, once. fn returns what to tell after the commit. The error is
// as that of InTx.
func (s *DB) InSet(ctx context.Context, fn func(tx pgx.Tx) ([]*Notes, error)) error {
	var told []*Notes
	err := s.transact(ctx, setTx, func(tx pgx.Tx) (err error) {
		if told, err = fn(tx); err != nil {
			return err
		}
		return s.committing(ctx, tx, told...)
	})
	if err != nil {
		return err
	}
	for _, a := range told {
		s.Committed(a.list)
	}
	return nil
}

// ErrAlone is returned when a change cannot be made as one of a set, and must have a transaction of its own.
var ErrAlone = dbsqlc.ErrAlone

// Member is a member of a set. It has notes and no transaction, and refuses every statement: what a member needs was
// read for all of them before, and what it writes is written for all of them after.
type Member struct{ Notes }

// Exec implements dbsqlc.DBTX.
func (*Member) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, ErrAlone
}

// Query implements dbsqlc.DBTX.
func (*Member) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, ErrAlone }

// QueryRow implements dbsqlc.DBTX.
func (*Member) QueryRow(context.Context, string, ...any) pgx.Row { return noRow{} }

type noRow struct{}

// Scan implements pgx.Row.
func (noRow) Scan(...any) error { return ErrAlone }
