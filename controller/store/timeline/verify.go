package timeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/timeline"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// VerifyTimeline recomputes a history and, if it is unbroken, compares it with the tables, all in one moment.
func (s *Store) VerifyTimeline(ctx context.Context, machineID string) (*baremetalv1.TimelineVerdict, error) {
	var out *baremetalv1.TimelineVerdict
	err := s.atOneMoment(ctx, func(q *dbsqlc.Queries) (err error) {
		out, err = verifyTimeline(ctx, q, machineID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("verify history of %q: %w", machineID, err)
	}
	return out, nil
}

// atOneMoment runs fn in a transaction that only reads, and sees one state of the database.
func (s *Store) atOneMoment(ctx context.Context, fn func(*dbsqlc.Queries) error) error {
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return pgx.BeginTxFunc(ctx, s.db.Pool(), opts, func(tx pgx.Tx) error { return fn(s.db.Q.WithTx(tx)) })
}

func verifyTimeline(ctx context.Context, q *dbsqlc.Queries, machineID string) (*baremetalv1.TimelineVerdict, error) {
	chain, state := timeline.Chain{MachineID: machineID}, timeline.NewState()
	err := walkHistory(ctx, q, machineID, time.Time{}, func(e timeline.Entry) error {
		if b := chain.Next(e); b != nil {
			return b
		}
		return state.Apply(e)
	})
	out := &baremetalv1.TimelineVerdict{MachineId: machineID, Entries: chain.Seq, HeadHash: chain.Hash}
	if chain.Seq > 0 {
		out.HeadAt = convert.Timestamp(chain.Time)
	}
	var broken *timeline.Break
	if errors.As(err, &broken) {
		out.BrokenSeq, out.BrokenWhy = broken.Seq, broken.Why
		return out, nil
	}
	if err != nil {
		return nil, err
	}
	tables, err := tablesOf(ctx, q, machineID, state)
	switch {
	case errors.Is(err, errNoMachine) && chain.Seq == 0:
		return nil, convert.MachineNotFound(machineID)
	case errors.Is(err, errNoMachine):
		out.Differences = []string{"machine: it is gone, and its history is here"}
		return out, nil
	case err != nil:
		return nil, err
	}
	if err := elsewhere(ctx, q, machineID, state, &tables); err != nil {
		return nil, err
	}
	out.Differences = timeline.Diff(state, tables)
	out.Ok = len(out.GetDifferences()) == 0
	return out, nil
}

// elsewhere looks into other histories where this one lacks an audit row, or the announcement of one that is emptied:
// the target of a row may have become a machine since. It walks other histories for such rows alone.
func elsewhere(
	ctx context.Context, q *dbsqlc.Queries, machineID string, state *timeline.State, t *timeline.Tables,
) error {
	rows, targets := state.Elsewhere(*t)
	if machineID != "" && len(rows) > 0 {
		fleet, err := historyOf(ctx, q, "")
		if err != nil {
			return err
		}
		t.Elsewhere = map[string]bool{}
		for _, id := range rows {
			_, t.Elsewhere[id] = fleet.Audits[id]
		}
	}
	t.Scrubs = map[string][]timeline.Scrub{}
	for _, target := range targets {
		for _, other := range []string{"", target} {
			if other == machineID {
				continue
			}
			history, err := historyOf(ctx, q, other)
			if err != nil {
				return err
			}
			t.Scrubs[target] = append(t.Scrubs[target], history.ScrubsOf(target)...)
		}
	}
	return nil
}

func historyOf(ctx context.Context, q *dbsqlc.Queries, machineID string) (*timeline.State, error) {
	state := timeline.NewState()
	return state, walkHistory(ctx, q, machineID, time.Time{}, state.Apply)
}
