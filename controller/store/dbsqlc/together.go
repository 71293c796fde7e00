// Package dbsqlc is the SQL of the store. sqlc writes all of it but Together and Writes.
package dbsqlc

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// batcher is a connection, pool or transaction that sends several statements in one round trip.
type batcher interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// ErrAlone is returned for statements that need a transaction of their own.
var ErrAlone = errors.New("to be stored in a transaction of its own")

func (q *Queries) batcher() (batcher, error) {
	db, ok := q.db.(batcher)
	if !ok {
		return nil, fmt.Errorf("a %T takes no batches: %w", q.db, ErrAlone)
	}
	return db, nil
}

// Together runs queries in one round trip, in their order. Each function makes exactly one query: it is suspended
// there until all functions have made theirs, and goes on with its answer. So no query depends on the answer of
// another one. Outside of a transaction the queries are a transaction.
func (q *Queries) Together(ctx context.Context, queries ...func(*Queries) error) error {
	if len(queries) == 0 {
		return nil
	}
	db, err := q.batcher()
	if err != nil {
		return err
	}
	batch := &pgx.Batch{}
	members := make([]*member, len(queries))
	for i, query := range queries {
		m := &member{batch: batch}
		m.next, m.stop = iter.Pull(func(suspend func(struct{}) bool) {
			m.suspend = suspend
			m.err = query(New(m))
		})
		defer m.stop()
		if _, made := m.next(); !made {
			return fmt.Errorf("query %d of %d was not made: %w", i+1, len(queries), m.err)
		}
		members[i] = m
	}
	results := db.SendBatch(ctx, batch)
	for _, m := range members {
		m.results = results
		if _, more := m.next(); more {
			m.err = errSecondQuery
		}
		if m.err != nil {
			return errors.Join(m.err, results.Close())
		}
	}
	return results.Close()
}

var (
	errSecondQuery = errors.New("a function of a batch made a second query")
	errUnanswered  = errors.New("the batch ended before the query was sent")
)

// member is the connection of one function of a batch. It suspends the function at its query.
type member struct {
	batch   *pgx.Batch
	results pgx.BatchResults
	suspend func(struct{}) bool
	next    func() (struct{}, bool)
	stop    func()
	err     error
}

// queue adds a query to the batch, and returns once its answer is the next one of the results.
func (m *member) queue(sql string, args []any) error {
	m.batch.Queue(sql, args...)
	if !m.suspend(struct{}{}) {
		return errUnanswered
	}
	return nil
}

// Exec implements DBTX.
func (m *member) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := m.queue(sql, args); err != nil {
		return pgconn.CommandTag{}, err
	}
	return m.results.Exec()
}

// Query implements DBTX.
func (m *member) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := m.queue(sql, args); err != nil {
		return nil, err
	}
	return m.results.Query()
}

// QueryRow implements DBTX.
func (m *member) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	if err := m.queue(sql, args); err != nil {
		return unanswered{err}
	}
	return m.results.QueryRow()
}

type unanswered struct{ err error }

// Scan implements pgx.Row.
func (u unanswered) Scan(...any) error { return u.err }
