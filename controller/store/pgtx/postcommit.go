package pgtx

import (
	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// Postcommit is a transaction with its messages to listeners, which are sent once it has committed, and never before.
type Postcommit struct {
	pgx.Tx
	// notes are sent in their order. The packages above know what each of them means.
	notes []any
}

// PostcommitOf returns the notes of the queries' transaction; nil where they run in none of ours.
func PostcommitOf(q *dbsqlc.Queries) *Postcommit {
	a, _ := q.Handle().(*Postcommit)
	return a
}

// Note adds a message that is sent once the transaction has committed.
func (a *Postcommit) Note(n any) {
	if a != nil {
		a.notes = append(a.notes, n)
	}
}
