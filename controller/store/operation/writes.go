package operation

import (
	"context"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// writes are the statements of a change that need no answers. They go to the database together, with those of other
// changes where the change is one of a set.
type writes struct {
	list   []func(*dbsqlc.Queries) error
	grants []grant
}

// memory is an agent's memory, in which it numbers its requests for grants.
type memory struct{ agentID, stateID string }

// grant is an ask for a grant under a number of its memory, the highest so far.
type grant struct {
	memory
	seq       int64
	commandID string
	nonce     []byte
}

func (g grant) write(ctx context.Context) func(*dbsqlc.Queries) error {
	return func(q *dbsqlc.Queries) error {
		n, err := q.AdvanceGrantSeq(ctx, dbsqlc.AdvanceGrantSeqParams{AgentID: g.agentID, StateID: g.stateID, Seq: g.seq,
			CommandID: g.commandID, Nonce: pgtx.NotNil(g.nonce)})
		if err == nil && n != 1 {
			err = pgtx.ErrLostVersion
		}
		return pgtx.Wrap(err, "count grant")
	}
}

func (w *writes) add(write func(*dbsqlc.Queries) error) { w.list = append(w.list, write) }

func (w *writes) flush(ctx context.Context, q *dbsqlc.Queries) error {
	list := w.list
	for _, g := range w.grants {
		list = append(list, g.write(ctx))
	}
	w.list, w.grants = nil, nil
	return q.Together(ctx, list...)
}

// special does what needs answers, and sees what was written so far.
func (w *writes) special(ctx context.Context, q *dbsqlc.Queries, due bool, do func() error) error {
	if !due {
		return nil
	}
	if err := w.flush(ctx, q); err != nil {
		return err
	}
	return do()
}
