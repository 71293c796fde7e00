package store

import (
	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/node"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// after is a transaction together with what must be told once it has committed, and never before.
type after struct {
	pgx.Tx
	moves   []moved
	applied []*Applied
	// room: a slot of a budget may have become free, or is asked for.
	room bool
	// created are new operations.
	created []string
	// facts were read for the change that the transaction is about, together with those of others.
	facts *facts
	about about
}

// moved is a change of a node's state.
type moved struct {
	machineID, from string
	move
}

// afterCommit gives what the queries' transaction has to tell; nil where they run in none of ours.
func afterCommit(q *dbsqlc.Queries) *after {
	a, _ := q.Handle().(*after)
	return a
}

func (a *after) noteMove(m moved) {
	if a != nil {
		a.moves = append(a.moves, m)
	}
}

func (a *after) noteApplied(d *Applied) {
	if a != nil {
		a.applied = append(a.applied, d)
	}
}

func (a *after) noteRoom() {
	if a != nil {
		a.room = true
	}
}

func (a *after) noteCreated(operationID string) {
	if a != nil {
		a.created = append(a.created, operationID)
	}
}

// OnApplied sets the function that tells agents and watchers of decisions that are part of something larger: an operation that
// is cancelled because its machine is blocked or retired, or that a report moves.
func (s *Store) OnApplied(tell func(*Applied)) { s.applied = tell }

// tell does what follows a commit.
func (s *Store) tell(a *after) {
	for _, m := range a.moves {
		s.log.Info("node moved", "machine_id", m.machineID, "from", m.from, "to", node.Name(m.to), "triggered_by", string(m.by),
			"user_id", m.user, "operation_id", m.metadata["operation_id"], "reason", m.metadata["reason"])
	}
	if a.room && s.room != nil {
		s.room()
	}
	s.noteCreatedPosition(a.created)
	s.notePosition(a.applied...)
	if s.created != nil {
		for _, id := range a.created {
			s.created(id)
		}
	}
	if s.applied == nil {
		return
	}
	for _, d := range a.applied {
		s.applied(d)
	}
}
