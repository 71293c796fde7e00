package pgtx

import (
	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// Postcommit is a transaction together with what listeners are told once it has committed, and never before.
type Postcommit struct {
	pgx.Tx
	// notes are told in their order. The packages above know what each of them means.
	notes []any
	// preloaded were read for the change that the transaction is about, together with those of others.
	preloaded any
	key       LockKey
}

// PostcommitOf returns the notes of the queries' transaction; nil where they run in none of ours.
func PostcommitOf(q *dbsqlc.Queries) *Postcommit {
	a, _ := q.Handle().(*Postcommit)
	return a
}

// Note adds to what is told once the transaction has committed.
func (a *Postcommit) Note(n any) {
	if a != nil {
		a.notes = append(a.notes, n)
	}
}

// TakePreloaded returns what was read for a change that begins with this key, once: whatever the change does makes it
// old.
func (a *Postcommit) TakePreloaded(key LockKey) any {
	if a == nil || a.preloaded == nil || a.key != key {
		return nil
	}
	f := a.preloaded
	a.preloaded = nil
	return f
}
