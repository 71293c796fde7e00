package state

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/ingot-metal/ingot/internal/batch"
	"github.com/ingot-metal/ingot/internal/task"
)

// writer makes writes durable. Those that come while others are being made durable share one transaction and one flush
// of the disk.
type writer struct {
	db    *sql.DB
	group batch.Group[*durableWrite]
}

// durableWrite is one write and what became of it.
type durableWrite struct {
	fn  func(*sql.Tx) error
	err error
}

// writesAtOnce bounds the writes of one transaction.
const writesAtOnce = 256

// errNotTried is of a write whose transaction failed before its turn, or was rolled back for another's sake.
var errNotTried = errors.New("to be written in a transaction of its own")

func newWriter(db *sql.DB) *writer {
	w := &writer{db: db}
	w.group = batch.Group[*durableWrite]{Serve: w.serve, Most: writesAtOnce}
	return w
}

func (w *writer) do(fn func(*sql.Tx) error) error {
	d := &durableWrite{fn: fn}
	if err := w.group.Do(d); err != nil {
		return err
	}
	return d.err
}

func (w *writer) serve(list []*durableWrite) {
	if len(list) > 1 {
		w.together(list)
	}
	for _, d := range list {
		if len(list) == 1 || errors.Is(d.err, errNotTried) {
			d.err = w.alone(d.fn)
		}
	}
}

// together runs writes in one transaction. A write that fails is undone by itself. Where the transaction is lost, those
// that did not fail are left to be tried alone.
func (w *writer) together(list []*durableWrite) {
	err := inTx(w.db, func(tx *sql.Tx) error {
		for _, d := range list {
			d.err = errNotTried
		}
		for _, d := range list {
			if _, err := tx.Exec("SAVEPOINT one"); err != nil {
				return err
			}
			d.err = attempt(tx, d.fn)
			if d.err != nil {
				if _, err := tx.Exec("ROLLBACK TO one"); err != nil {
					return err
				}
			}
			if _, err := tx.Exec("RELEASE one"); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		return
	}
	for _, d := range list {
		if d.err == nil {
			d.err = errNotTried
		}
	}
}

func (w *writer) alone(fn func(*sql.Tx) error) error {
	return inTx(w.db, func(tx *sql.Tx) error { return attempt(tx, fn) })
}

// attempt returns a panic of fn as an error, so that other writes of the batch go on.
func attempt(tx *sql.Tx, fn func(*sql.Tx) error) error {
	return task.Run(context.Background(), "write state", func(context.Context) error { return fn(tx) })
}

func inTx(db *sql.DB, fn func(*sql.Tx) error) error {
	tx, err := db.BeginTx(context.Background(), nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		if rerr := tx.Rollback(); rerr != nil {
			return fmt.Errorf("%w (and roll back: %w)", err, rerr)
		}
		return err
	}
	return tx.Commit()
}
