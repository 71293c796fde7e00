package machine

import (
	"context"

	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/controller/domain/machinesearch"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// searched bounds the rows of one search: a machine has at most three that match.
const searched = 500

// Search returns the machines with a name that contains a text in small letters: exact names first, then beginnings. A
// machine may come up to three times, once for each source of names.
func (s *Store) Search(
	ctx context.Context, in machinefilter.Selections, text string,
) ([]machinesearch.Hit, error) {
	rows, err := s.db.Q.SearchMachines(ctx, dbsqlc.SearchMachinesParams{Words: text, Narrow: in.Narrow(),
		Selections: in.SQL(), AtMost: searched})
	if err != nil {
		return nil, pgtx.Wrap(err, "search machines")
	}
	hits := make([]machinesearch.Hit, 0, len(rows))
	for _, r := range rows {
		if h, found := machinesearch.HitOf(r.MachineID, r.Words, text); found {
			hits = append(hits, h)
		}
	}
	return hits, nil
}
