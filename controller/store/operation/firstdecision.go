package operation

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// DecideCreated has new operations evaluated in the transactions that create them, while ready reports true: one
// transaction instead of two until a command is sent. An operation whose evaluation needs more than what the start has
// read is left to its job, and so is one whose evaluation fails: no start is lost for it.
func (s *Store) DecideCreated(ready func() bool) { s.decidesCreated = ready }

// decideCreated evaluates a new operation and gathers what the decision writes.
func (s *Store) decideCreated(
	ctx context.Context, q *dbsqlc.Queries, w *writes, m dbsqlc.Machine, n *newOperation, loaded *preloaded, now time.Time,
) {
	if loaded == nil || s.decidesCreated == nil || !s.decidesCreated() {
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
	a := s.decideMember(ctx, change{now: now, asked: s.db.Now(), decide: decide}, dbsqlc.New(notes), loaded, decided)
	if a.err != nil {
		return
	}
	w.Append(decided.Writes)
	n.job.Decided = true
	told := pgtx.NotesOf(q)
	told.Add(notes.Notes)
	told.Note(a.applied)
}
