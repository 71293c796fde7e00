package operation

import (
	"context"
	"sync"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// FirstEvaluations are those of new operations: in the transaction that creates one, or soon after it. The jobs of
// evaluated operations are deleted in the transaction of the next change that is stored.
type FirstEvaluations struct {
	db    *pgtx.DB
	ready func() bool

	mu   sync.Mutex
	jobs []int64
}

// While has new operations evaluated in the transactions that create them, while ready reports true: one transaction
// instead of two until a command is sent. An operation whose evaluation needs more than what the start has read is left
// to its job, and so is one whose evaluation fails: no start is lost for it.
func (f *FirstEvaluations) While(ready func() bool) { f.ready = ready }

// Done has the jobs of evaluated operations deleted with the next change, or by DeleteJobs.
func (f *FirstEvaluations) Done(jobs ...int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.jobs = append(f.jobs, jobs...)
}

func (f *FirstEvaluations) take() []int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	jobs := f.jobs
	f.jobs = nil
	return jobs
}

// with calls store with rows that delete the jobs. Jobs that are not known to be deleted are kept for the next call.
func (f *FirstEvaluations) with(store func(dbsqlc.Writes) error) error {
	jobs := f.take()
	var rows dbsqlc.Writes
	if len(jobs) > 0 {
		rows.EvaluatedJobs = []dbsqlc.DeleteEvaluatedJobsParams{{IDs: jobs}}
	}
	err := store(rows)
	if err != nil {
		f.Done(jobs...)
	}
	return err
}

// DeleteJobs deletes the jobs of evaluated operations that no change has deleted yet.
func (f *FirstEvaluations) DeleteJobs(ctx context.Context) error {
	return f.with(func(rows dbsqlc.Writes) error { return f.db.Q.Send(ctx, rows) })
}

// evaluate evaluates the new operation and gathers what the decision writes.
func (n *newOperation) evaluate(
	ctx context.Context, s *Store, q *dbsqlc.Queries, w *writes, m dbsqlc.Machine, loaded *preloaded, now time.Time,
) {
	if loaded == nil || s.First.ready == nil || !s.First.ready() {
		return
	}
	m.CurrentOperationID = &n.Op.ID
	l := &OperationContext{Machine: m, Row: n.Row, steps: n.steps}
	notes, decided := &pgtx.Member{}, &writes{}
	decide := func(q *dbsqlc.Queries, f *preloaded, w *writes, now time.Time) (a answer, err error) {
		if err = l.complete(ctx, q, f, now); err != nil {
			return a, err
		}
		a.applied, err = s.decideOn(ctx, q, w, l, operation.Due{}, now)
		return a, err
	}
	a := change{now: now, asked: s.db.Now(), decide: decide}.asMember(ctx, s.db, dbsqlc.New(notes), loaded, decided)
	if a.err != nil {
		return
	}
	w.Append(decided.Writes)
	n.job.Decided = true
	told := pgtx.NotesOf(q)
	told.Add(notes.Notes)
	told.Note(a.applied)
}
