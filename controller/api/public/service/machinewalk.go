package service

import (
	"context"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/filter"
)

// WalkStart is the cursor of before the first page of a walk. It is carried through the others, so that what changes
// during the walk comes after it.
type WalkStart struct {
	Cursor string
	Safe   time.Time
}

// Walk is the list of machines by machine_id: several lists, one after the other, where a filter needs parts that do
// not overlap. Sealed machines are for answers that nobody reads on this side: see store.MachineFilter.
func (s *Base) Walk(
	name, text string, terms []filter.Term, start WalkStart, sealed bool,
) List[*baremetalv1.Machine] {
	walks := query.MachineQuery(terms)
	partOf := map[*baremetalv1.Machine]int{}
	read := func(ctx context.Context, after validate.Page, limit int32) (all []*baremetalv1.Machine, err error) {
		for part := after.Part; part < len(walks) && len(all) < int(limit); part, after.ID = part+1, "" {
			f := walks[part]
			f.AfterID, f.Limit, f.Sealed = after.ID, limit-int32(len(all)), sealed
			found, err := s.Store.WalkMachines(ctx, f)
			if err != nil {
				return nil, err
			}
			for _, m := range found {
				partOf[m] = part
			}
			all = append(all, found...)
		}
		return all, nil
	}
	place := func(m *baremetalv1.Machine) validate.Page {
		return validate.Page{ID: m.GetMachineId(), Part: partOf[m], Cursor: start.Cursor, Safe: start.Safe}
	}
	return List[*baremetalv1.Machine]{Name: name, Filter: text, Read: read, Place: place}
}
