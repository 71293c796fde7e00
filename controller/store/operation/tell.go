package operation

import (
	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
)

// OnCreated sets the function that is told of new operations once they have committed. It must not block. An operation
// of which nobody is told is looked at all the same, when its wake_at has come.
func (s *Store) OnCreated(tell func(operationID string)) { s.created = tell }

// Created is a new operation, as a transaction notes it.
type Created string

// OnApplied sets the function that tells agents and watchers of decisions that are part of something larger: an
// operation that is cancelled because its machine is blocked or retired, or that a report moves.
func (s *Store) OnApplied(tell func(*Applied)) { s.applied = tell }

// tell does what follows a commit.
func (s *Store) tell(notes []any) {
	var applied []*Applied
	var operations []string
	room := false
	for _, n := range notes {
		switch n := n.(type) {
		case nodestate.Moved:
			n.Log(s.db.Log)
		case budgetstore.SlotFreed:
			room = true
		case Created:
			operations = append(operations, string(n))
		case *Applied:
			applied = append(applied, n)
		}
	}
	if room {
		s.budgets.TellRoom()
	}
	for _, id := range operations {
		s.incarnations.NotePosition(id, 0, "", 0)
	}
	s.noteApplied(applied...)
	if s.created != nil {
		for _, id := range operations {
			s.created(id)
		}
	}
	if s.applied == nil {
		return
	}
	for _, d := range applied {
		s.applied(d)
	}
}

// noteApplied remembers what was committed with decisions.
func (s *Store) noteApplied(applied ...*Applied) {
	for _, a := range applied {
		switch {
		case a == nil || a.StaleVersion:
		case a.Command == nil:
			s.incarnations.NotePosition(a.OperationID, a.Version, "", 0)
		default:
			s.incarnations.NotePosition(a.OperationID, a.Version, a.Command.ID, int64(a.Command.GrantSeq))
		}
	}
}
