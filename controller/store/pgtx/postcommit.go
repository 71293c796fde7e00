package pgtx

import (
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// Notes are messages to listeners, which are sent once a transaction has committed, and never before.
type Notes struct {
	// list is in the order in which they are sent. The packages above know what each of them means.
	list []any
}

// Postcommit is a transaction with its notes.
type Postcommit struct {
	pgx.Tx
	Notes
	// asked is the time at which its caller began to wait for it, by DB.Now.
	asked time.Time
}

// NotesOf returns the notes of the queries' transaction; nil where they run in none of ours.
func NotesOf(q *dbsqlc.Queries) *Notes {
	if h, ok := q.Handle().(interface{ notes() *Notes }); ok {
		return h.notes()
	}
	return nil
}

func (n *Notes) notes() *Notes { return n }

// Add adds the messages of others.
func (n *Notes) Add(others Notes) {
	if n != nil {
		n.list = append(n.list, others.list...)
	}
}

// Note adds a message that is sent once the transaction has committed.
func (n *Notes) Note(message any) {
	if n != nil {
		n.list = append(n.list, message)
	}
}
