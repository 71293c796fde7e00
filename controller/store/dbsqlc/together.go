// Package dbsqlc is the SQL of the store. sqlc writes all of it but Together.
package dbsqlc

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Together runs queries in one round trip, in their order. Each function makes exactly one query, and it is called
// twice: its query is noted first, and given its answer afterwards. So it has no effect before the query, and uses no
// answer of another's. Outside of a transaction the queries are a transaction.
func (q *Queries) Together(ctx context.Context, queries ...func(*Queries) error) error {
	if len(queries) == 0 {
		return nil
	}
	db, ok := q.db.(interface {
		SendBatch(context.Context, *pgx.Batch) pgx.BatchResults
	})
	if !ok {
		return fmt.Errorf("a %T takes no batches", q.db)
	}
	batch, err := Noted(queries...)
	if err != nil {
		return err
	}
	return Answered(db.SendBatch(ctx, batch), queries...)
}

// Noted returns the queries that functions make, without making them.
func Noted(queries ...func(*Queries) error) (*pgx.Batch, error) {
	note := &noting{}
	for i, query := range queries {
		if err := query(New(note)); !errors.Is(err, errNoted) {
			return nil, fmt.Errorf("query %d of %d was not noted: %w", i+1, len(queries), err)
		}
		if note.batch.Len() != i+1 {
			return nil, fmt.Errorf("query %d of %d is %d queries", i+1, len(queries), note.batch.Len()-i)
		}
	}
	return &note.batch, nil
}

// Answered calls the functions with the results of their queries, and closes the results.
func Answered(results pgx.BatchResults, queries ...func(*Queries) error) error {
	for _, query := range queries {
		if err := query(New(answering{results})); err != nil {
			return errors.Join(err, results.Close())
		}
	}
	return results.Close()
}

var errNoted = errors.New("the query was noted")

// noting keeps queries for later.
type noting struct{ batch pgx.Batch }

func (n *noting) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	n.batch.Queue(sql, args...)
	return pgconn.CommandTag{}, errNoted
}

func (n *noting) Query(_ context.Context, sql string, args ...any) (pgx.Rows, error) {
	n.batch.Queue(sql, args...)
	return nil, errNoted
}

func (n *noting) QueryRow(_ context.Context, sql string, args ...any) pgx.Row {
	n.batch.Queue(sql, args...)
	return noted{}
}

type noted struct{}

func (noted) Scan(...any) error { return errNoted }

// answering returns the answers in the order in which the queries were noted.
type answering struct{ results pgx.BatchResults }

func (a answering) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return a.results.Exec()
}

func (a answering) Query(context.Context, string, ...any) (pgx.Rows, error) { return a.results.Query() }

func (a answering) QueryRow(context.Context, string, ...any) pgx.Row { return a.results.QueryRow() }
