package service

import (
	"context"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
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

// WalkInOrder is the list of machines in an order. It is counted as Walk.
func (s *Base) WalkInOrder(
	name, text string, terms []filter.Term, order machinestore.Order, start WalkStart,
) List[*baremetalv1.Machine] {
	parts, within := query.InParts(terms, order)
	keyOf := map[*baremetalv1.Machine]string{}
	l := s.Walk(name, text, terms, start, false)
	count := l.Read
	l.Read = func(ctx context.Context, after validate.Page, limit int32) (all []*baremetalv1.Machine, err error) {
		if limit == pgtx.AllRows {
			return count(ctx, after, limit)
		}
		passed := after.ID != ""
		for _, part := range parts {
			if passed && part.Key != "" && part.Key != after.Key {
				continue
			}
			place := machinestore.Place{Name: after.Key, UpdatedAt: after.Time}
			found, err := s.Store.WalkInOrder(ctx, part.Walks, within, after.ID, place, limit-int32(len(all)))
			if err != nil {
				return nil, err
			}
			for _, m := range found {
				keyOf[m] = part.Key
			}
			if all = append(all, found...); len(all) == int(limit) {
				return all, nil
			}
			passed, after = false, validate.Page{}
		}
		return all, nil
	}
	l.Place = func(m *baremetalv1.Machine) validate.Page {
		p := validate.Page{ID: m.GetMachineId(), Key: keyOf[m], Cursor: start.Cursor, Safe: start.Safe}
		switch order.By {
		case "site":
			p.Key = m.GetSpec().GetSite()
		case "rack":
			p.Key = m.GetSpec().GetRack()
		case "updated_at":
			p.Time = m.GetUpdatedAt().AsTime()
		}
		return p
	}
	return l
}
