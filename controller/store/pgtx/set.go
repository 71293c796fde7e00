package pgtx

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// setTx begins the transaction of a set. Its statements look rows up by keys, in lists of any length, which would have
// each planned again every time. They are planned once for each connection, maybe while the tables are empty and
// nothing is known of them: reading all of a table must not seem cheaper then.
var setTx = pgx.TxOptions{BeginQuery: "BEGIN; SET LOCAL plan_cache_mode = force_generic_plan; " +
	"SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off"}

// InSet runs fn in the transaction of a set and commits, once. fn returns what to tell after the commit. The error is
// as that of InTx.
func (s *DB) InSet(ctx context.Context, fn func(tx pgx.Tx) ([]*Postcommit, error)) error {
	var told []*Postcommit
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
		s.Committed(a.notes)
	}
	return nil
}

// ErrAlone is returned when a change cannot be made as one of a set, and must have a transaction of its own.
var ErrAlone = errors.New("to be stored in a transaction of its own")

// SetMember returns the notes of a member of a set. It takes the place of the member's transaction, and refuses every
// statement: what a member needs was read for all of them before, and what it writes is written for all of them after.
func SetMember() *Postcommit { return &Postcommit{Tx: noStatements{}} }

// noStatements is a transaction that has read everything.
type noStatements struct{ pgx.Tx }

// Exec implements pgx.Tx.
func (noStatements) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, ErrAlone
}

// Query implements pgx.Tx.
func (noStatements) Query(context.Context, string, ...any) (pgx.Rows, error) { return nil, ErrAlone }

// QueryRow implements pgx.Tx.
func (noStatements) QueryRow(context.Context, string, ...any) pgx.Row { return noRow{ErrAlone} }

// SendBatch implements pgx.Tx.
func (noStatements) SendBatch(context.Context, *pgx.Batch) pgx.BatchResults { return noResults{} }

// noResults are those of statements that were refused.
type noResults struct{}

type noRow struct{ why error }

// Scan implements pgx.Row.
func (r noRow) Scan(...any) error { return r.why }

// Exec implements pgx.BatchResults.
func (noResults) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, ErrAlone }

// Query implements pgx.BatchResults.
func (noResults) Query() (pgx.Rows, error) { return nil, ErrAlone }

// QueryRow implements pgx.BatchResults.
func (noResults) QueryRow() pgx.Row { return noRow{ErrAlone} }

// Close implements pgx.BatchResults.
func (noResults) Close() error { return ErrAlone }

// Tx implements pgx.BatchResults.
func (noResults) Tx() pgx.Tx { return nil }
