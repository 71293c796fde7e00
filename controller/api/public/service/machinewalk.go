package service

import (
	"context"
	"slices"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/call"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/filter"
	"github.com/ingot-metal/ingot/internal/label"
)

// WalkStart is the cursor of before the first page of a walk. It is carried through the others, so that what changes
// during the walk comes after it.
type WalkStart struct {
	Cursor string
	Safe   time.Time
}

// Walk is the list of machines by machine_id: several lists, one after the other, where a filter needs parts that do
// not overlap. Sealed machines are for answers that are not read on this side: see store.MachineFilter. A caller whose
// roles are for some machines gets those alone.
func (s *Base) Walk(
	ctx context.Context, name, text string, terms []filter.Term, start WalkStart, sealed bool,
) (List[*baremetalv1.Machine], error) {
	walks, err := walksOf(ctx, terms)
	if err != nil {
		return List[*baremetalv1.Machine]{}, err
	}
	partOf := map[*baremetalv1.Machine]int{}
	read := func(ctx context.Context, after validate.Page, limit int32) (all []*baremetalv1.Machine, err error) {
		for part := after.Part; part < len(walks) && len(all) < int(limit); part, after.ID = part+1, "" {
			f := walks[part].MachineFilter
			f.AfterID, f.Sealed = after.ID, sealed
			for int32(len(all)) < limit {
				f.Limit = limit - int32(len(all))
				found, err := s.stores.Machines.WalkMachines(ctx, f)
				if err != nil {
					return nil, err
				}
				last := int32(len(found)) < f.Limit
				if !last {
					f.AfterID = found[len(found)-1].GetMachineId()
				}
				if found, err = s.newIn(ctx, walks[part], found); err != nil {
					return nil, err
				}
				for _, m := range found {
					partOf[m] = part
				}
				if all = append(all, found...); last {
					break
				}
			}
		}
		return all, nil
	}
	place := func(m *baremetalv1.Machine) validate.Page {
		return validate.Page{ID: m.GetMachineId(), Part: partOf[m], Cursor: start.Cursor, Safe: start.Safe}
	}
	overlap := len(walks) > 0 && len(walks[len(walks)-1].before) > 0
	return List[*baremetalv1.Machine]{Name: name, Filter: text, Read: read, Place: place, Uncounted: overlap}, nil
}

// walkPart is one of the walks of a list. What the selections before it hold, other parts have given already.
type walkPart struct {
	machinestore.MachineFilter

	before [][]filter.Term
}

// walksOf are the walks that give the machines of the terms which the caller may see.
func walksOf(ctx context.Context, terms []filter.Term) (out []walkPart, err error) {
	caller, _ := call.Caller(ctx) // behind the guard; the zero Caller of a test is not restricted
	selections, restricted := caller.Within()
	if !restricted {
		for _, f := range query.MachineQuery(terms) {
			out = append(out, walkPart{MachineFilter: f})
		}
		return out, nil
	}
	var before [][]filter.Term
	for _, s := range selections {
		within, err := query.Machines.Parse(s)
		if err != nil {
			return nil, err
		}
		for _, f := range query.MachineQuery(slices.Concat(within, terms)) {
			out = append(out, walkPart{MachineFilter: f, before: slices.Clone(before)})
		}
		before = append(before, within)
	}
	return out, nil
}

// Walks returns walks that together give the machines of the terms which the caller may see, some more than once.
func Walks(ctx context.Context, terms []filter.Term) ([]machinestore.MachineFilter, error) {
	parts, err := walksOf(ctx, terms)
	out := make([]machinestore.MachineFilter, 0, len(parts))
	for _, p := range parts {
		out = append(out, p.MachineFilter)
	}
	return out, err
}

// AllInside refuses a call about machines of which some are not the caller's. One that does not exist is refused too.
func (s *Base) AllInside(ctx context.Context, machineIDs []string) error {
	within, err := query.Within(ctx)
	if err != nil || !within.Narrow() {
		return err
	}
	inside, err := s.stores.Machines.InSelections(ctx, within, machineIDs)
	if err != nil {
		return err
	}
	for _, id := range machineIDs {
		if !inside[id] {
			return call.Outside(ctx)
		}
	}
	return nil
}

// newIn leaves out what parts before have given.
func (s *Base) newIn(ctx context.Context, p walkPart, found []*baremetalv1.Machine) ([]*baremetalv1.Machine, error) {
	if len(p.before) == 0 || len(found) == 0 {
		return found, nil
	}
	these := filter.Term{Key: "machine_id"}
	for _, m := range found {
		these.Values = append(these.Values, filter.Value{Text: m.GetMachineId()})
	}
	given := map[string]bool{}
	for _, terms := range p.before {
		for _, f := range query.MachineQuery(slices.Concat([]filter.Term{these}, terms)) {
			f.Limit, f.Sealed = int32(len(found)), true
			old, err := s.stores.Machines.WalkMachines(ctx, f)
			if err != nil {
				return nil, err
			}
			for _, m := range old {
				given[m.GetMachineId()] = true
			}
		}
	}
	return slices.DeleteFunc(found, func(m *baremetalv1.Machine) bool { return given[m.GetMachineId()] }), nil
}

// WalkInOrder is the list of machines in an order. It is counted as Walk. It has every machine that matches: callers
// whose roles are for some machines are refused before.
func (s *Base) WalkInOrder(
	ctx context.Context, name, text string, terms []filter.Term, order machinestore.Order, start WalkStart,
) (List[*baremetalv1.Machine], error) {
	parts, within := query.InParts(terms, order)
	keyOf := map[*baremetalv1.Machine]string{}
	l, err := s.Walk(ctx, name, text, terms, start, false)
	if err != nil {
		return l, err
	}
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
			found, err := s.stores.Machines.WalkInOrder(ctx, part.Walks, within, after.ID, place, limit-int32(len(all)))
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
		case label.Rack:
			p.Key = label.RackOf(m.GetSpec().GetRack(), m.GetLabels())
		case "updated_at":
			p.Time = m.GetUpdatedAt().AsTime()
		}
		return p
	}
	return l, nil
}

// StillInside refuses to go on about a machine that has left the caller's selections since a stream began.
func (s *Base) StillInside(ctx context.Context, machineID string) error {
	within, err := query.Within(ctx)
	if err != nil {
		return err
	}
	inside, err := s.stores.Machines.InSelections(ctx, within, []string{machineID})
	if err == nil && !inside[machineID] {
		err = failure.Denied("OUTSIDE_SELECTION", "the machine has left the selections that the caller's roles are for")
	}
	return err
}
