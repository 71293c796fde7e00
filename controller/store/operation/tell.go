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

// NewJob is the River job of an operation that a transaction creates. ID is River's id of the job, which the function
// that inserts the job sets; it is 0 where the key had a job already.
type NewJob struct {
	JobKey
	ID int64
	// Decided reports that the transaction has evaluated the operation, too: see FirstEvaluations.
	Decided bool
}

// OnCreated sets the function that inserts the jobs of new operations in the transaction that creates them, and the one
// that is called with the same jobs after the commit. Both may be nil.
func (s *Store) OnCreated(enqueue func(context.Context, pgx.Tx, []*NewJob) error, committed func([]*NewJob)) {
	s.enqueue, s.created = enqueue, committed
}

// committing inserts the jobs of the operations that a transaction has created.
func (s *Store) committing(ctx context.Context, tx pgx.Tx, notes []any) error {
	jobs := newJobs(notes)
	if len(jobs) == 0 || s.enqueue == nil {
		return nil
	}
	return s.enqueue(ctx, tx, jobs)
}

func newJobs(notes []any) (jobs []*NewJob) {
	for _, n := range notes {
		if j, ok := n.(*NewJob); ok {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

// OnApplied sets the function that tells agents and watchers of decisions that are part of something larger: an
// operation that is cancelled because its machine is blocked or retired, or that a report moves.
func (s *Store) OnApplied(tell func(*Applied)) { s.applied = tell }

// tell does what follows a commit.
func (s *Store) tell(notes []any) {
	var applied []*Applied
	room := false
	for _, n := range notes {
		switch n := n.(type) {
		case nodestate.Moved:
			n.Log(s.db.Log)
		case budgetstore.SlotFreed:
			room = true
		case *NewJob:
			s.incarnations.NotePosition(n.OperationID, 0, "", 0)
		case *Applied:
			applied = append(applied, n)
		}
	}
	if room {
		s.budgets.TellRoom()
	}
	s.noteApplied(applied...)
	if jobs := newJobs(notes); len(jobs) > 0 && s.created != nil {
		s.created(jobs)
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
		case a == nil:
		case a.Command == nil:
			s.incarnations.NotePosition(a.OperationID, a.Version, "", 0)
		default:
			s.incarnations.NotePosition(a.OperationID, a.Version, a.Command.ID, int64(a.Command.GrantSeq))
		}
	}
}
