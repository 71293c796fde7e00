package timeline

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/timeline"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// Present reads what the database has of the histories of heads that were kept elsewhere, in their order and all in one
// moment.
func (s *Store) Present(ctx context.Context, heads []timeline.Head) ([]timeline.Present, error) {
	out := make([]timeline.Present, len(heads))
	err := s.atOneMoment(ctx, func(q *dbsqlc.Queries) error {
		fleet, err := restoresOf(ctx, q, "")
		if err != nil {
			return err
		}
		for i, h := range heads {
			out[i].FleetRestores = fleet
			if err := present(ctx, q, h, &out[i]); err != nil {
				return fmt.Errorf("history of %q: %w", h.MachineID, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read heads: %w", err)
	}
	return out, nil
}

// present reads restores, which takes a look at each entry, only where the head is not there.
func present(ctx context.Context, q *dbsqlc.Queries, h timeline.Head, p *timeline.Present) error {
	e, err := q.EntryAt(ctx, dbsqlc.EntryAtParams{MachineID: h.MachineID, Seq: h.Entries})
	if err == nil {
		p.Hash = e.Hash
	} else if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	first, err := q.EntryAt(ctx, dbsqlc.EntryAtParams{MachineID: h.MachineID, Seq: 1})
	if err == nil {
		p.Began = first.Ts
	} else if !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	if string(p.Hash) != string(h.Hash) {
		p.Restores, err = restoresOf(ctx, q, h.MachineID)
		return err
	}
	return nil
}

func restoresOf(ctx context.Context, q *dbsqlc.Queries, machineID string) ([]timeline.Restore, error) {
	rows, err := q.RestoresOf(ctx, machineID)
	if err != nil {
		return nil, fmt.Errorf("read restores: %w", err)
	}
	state := timeline.NewState()
	for _, r := range rows {
		if err := state.Apply(timelineEntry(dbsqlc.TimelineEntriesRow(r))); err != nil {
			return nil, err
		}
	}
	return state.Restores, nil
}
