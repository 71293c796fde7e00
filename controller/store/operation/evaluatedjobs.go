package operation

import (
	"context"
	"sync"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// evaluatedJobs are the jobs of new operations that have been evaluated. The next change that is stored deletes them in
// its transaction.
type evaluatedJobs struct {
	mu  sync.Mutex
	ids []int64
}

func (e *evaluatedJobs) add(ids ...int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ids = append(e.ids, ids...)
}

func (e *evaluatedJobs) take() []int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	ids := e.ids
	e.ids = nil
	return ids
}

// with calls store with rows that delete the jobs. Jobs that are not known to be deleted are kept for the next call.
func (e *evaluatedJobs) with(store func(dbsqlc.Writes) error) error {
	ids := e.take()
	var rows dbsqlc.Writes
	if len(ids) > 0 {
		rows.EvaluatedJobs = []dbsqlc.DeleteEvaluatedJobsParams{{IDs: ids}}
	}
	err := store(rows)
	if err != nil {
		e.add(ids...)
	}
	return err
}

// Evaluated has the jobs of evaluated operations deleted with the next change, or by DeleteEvaluatedJobs.
func (s *Store) Evaluated(jobs ...int64) { s.evaluated.add(jobs...) }

// DeleteEvaluatedJobs deletes the jobs of evaluated operations that no change has deleted yet.
func (s *Store) DeleteEvaluatedJobs(ctx context.Context) error {
	return s.evaluated.with(func(rows dbsqlc.Writes) error { return s.db.Q.Send(ctx, rows) })
}
