package store

import (
	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// after is a transaction together with what listeners are told once it has committed, and never before.
type after struct {
	pgx.Tx
	// notes are told in their order. The packages above know what each of them means.
	notes []any
	// facts were read for the change that the transaction is about, together with those of others.
	facts any
	about about
}

// afterCommit returns the notes of the queries' transaction; nil where they run in none of ours.
func afterCommit(q *dbsqlc.Queries) *after {
	a, _ := q.Handle().(*after)
	return a
}

// note adds to what is told once the transaction has committed.
func (a *after) note(n any) {
	if a != nil {
		a.notes = append(a.notes, n)
	}
}

// takeFacts returns what was read for a change that begins with this key, once: whatever the change does makes it old.
func (a *after) takeFacts(key about) any {
	if a == nil || a.facts == nil || a.about != key {
		return nil
	}
	f := a.facts
	a.facts = nil
	return f
}
