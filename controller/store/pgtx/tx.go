package pgtx

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// MaxTries bounds the tries of a transaction that conflicts with others, or whose COMMIT is lost.
const MaxTries = 5

// InTx runs fn in a transaction and commits. It returns nil once that is done, and an OutcomeUnknown error where that
// is not known. A transaction that conflicts with another one, or whose COMMIT never arrived, is run again.
func (s *DB) InTx(ctx context.Context, fn func(tx pgx.Tx, q *dbsqlc.Queries) error) error {
	var err error
	asked := s.Now()
	for range MaxTries {
		var a *Postcommit
		err = s.transact(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
			a = &Postcommit{Tx: tx, asked: asked}
			if err := fn(tx, s.Q.WithTx(a)); err != nil {
				return err
			}
			return s.committing(ctx, tx, &a.Notes)
		})
		if err == nil {
			s.Committed(a.list)
		}
		if !Repeatable(err) {
			return err
		}
	}
	return err
}

// committing does what the notes of a transaction, or of the members of a set, ask for before the commit.
func (s *DB) committing(ctx context.Context, tx pgx.Tx, all ...*Notes) error {
	var notes []any
	for _, a := range all {
		if a != nil {
			notes = append(notes, a.list...)
		}
	}
	if len(notes) == 0 || s.Committing == nil {
		return nil
	}
	return s.Committing(ctx, tx, notes)
}

// ErrLostVersion reports that a row is not stored any more as it was read. Its transaction is tried again.
var ErrLostVersion = dbsqlc.ErrRowChanged

// Repeatable reports whether a transaction that ended with err changed nothing and may succeed when it is run again:
// after a deadlock, a conflict of serialization, or a row that has changed meanwhile.
func Repeatable(err error) bool {
	if OutcomeUnknown(err) {
		return false
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == "40001" || pg.Code == "40P01") {
		return true
	}
	return errors.Is(err, ErrLostVersion) || errors.Is(err, errNotCommitted)
}

// Unstorable reports whether the database refuses the data itself, such as a zero byte in a text or a number that is
// too large. Source: PostgreSQL, appendix A, classes 22 and 54.
func Unstorable(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (strings.HasPrefix(pg.Code, "22") || strings.HasPrefix(pg.Code, "54"))
}

// UniqueViolation reports whether err broke the named constraint.
func UniqueViolation(err error, constraint string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "23505" && pg.ConstraintName == constraint
}
