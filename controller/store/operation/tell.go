package operation

import (
	"context"

	"github.com/jackc/pgx/v5"

	budgetstore "github.com/ingot-metal/ingot/controller/store/budget"
	"github.com/ingot-metal/ingot/controller/store/nodestate"
	"github.com/ingot-metal/ingot/controller/store/operationquery"
)

// JobKey names the River job of an operation. A transaction that creates an operation notes its key.
type JobKey = operationquery.JobKey

// OnCreated sets the function that inserts the jobs of new operations in the transaction that creates them.
func (s *Store) OnCreated(enqueue func(context.Context, pgx.Tx, []JobKey) error) { s.enqueue = enqueue }

// committing inserts the jobs of the operations that a transaction has created.
func (s *Store) committing(ctx context.Context, tx pgx.Tx, notes []any) error {
	var keys []JobKey
	for _, n := range notes {
		if k, ok := n.(JobKey); ok {
			keys = append(keys, k)
		}
	}
	if len(keys) == 0 || s.enqueue == nil {
		return nil
	}
	return s.enqueue(ctx, tx, keys)
}

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
		case JobKey:
			operations = append(operations, n.OperationID)
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
		case a == nil:
		case a.Command == nil:
			s.incarnations.NotePosition(a.OperationID, a.Version, "", 0)
		default:
			s.incarnations.NotePosition(a.OperationID, a.Version, a.Command.ID, int64(a.Command.GrantSeq))
		}
	}
}
