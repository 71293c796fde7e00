package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/internal/label"
)

// Order is an order of machines: by machine_id, site, rack or updated_at. Numbers in names count as numbers. Machines
// that are equal in it are in the order of machine_id.
type Order struct {
	By   string
	Desc bool
}

// Place is where a machine stands in an order, besides its machine_id.
type Place struct {
	// Name is the site or the rack.
	Name      string
	UpdatedAt time.Time
}

// WalkInOrder reads what follows one machine in an order among the machines of filters that do not overlap. The
// filters' own places and limits are not used.
func (s *Store) WalkInOrder(
	ctx context.Context, filters []MachineFilter, order Order, afterID string, after Place, limit int32,
) ([]*baremetalv1.Machine, error) {
	var found []dbsqlc.Machine
	for _, f := range filters {
		f.Order, f.AfterID, f.After, f.Limit = order, afterID, after, limit
		rows, err := s.WalkRows(ctx, f)
		if err != nil {
			return nil, err
		}
		found = append(found, rows...)
	}
	if len(filters) > 1 {
		var err error
		if found, err = s.firstInOrder(ctx, found, order, int(limit)); err != nil {
			return nil, err
		}
	}
	return s.present(ctx, found, false)
}

// firstInOrder returns the first machines in an order. The database compares them, which alone knows how.
func (s *Store) firstInOrder(
	ctx context.Context,
	all []dbsqlc.Machine,
	order Order,
	limit int,
) ([]dbsqlc.Machine, error) {
	p := dbsqlc.SortMachinesParams{Ids: []string{}, Names: []string{}, Times: []time.Time{}}
	for _, m := range all {
		name, at := "", time.Time{}
		switch order.By {
		case "site":
			name = m.Site
		case label.Rack:
			spec, err := convert.SpecFromJSON(m.Spec)
			if err != nil {
				return nil, err
			}
			name = label.RackOf(spec.GetRack(), convert.JSONToMap(m.Labels))
		case "updated_at":
			at = m.UpdatedAt
		}
		p.Ids, p.Names, p.Times = append(p.Ids, m.MachineID), append(p.Names, name), append(p.Times, at)
	}
	places, err := s.db.Q.SortMachines(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("sort machines: %w", err)
	}
	if order.Desc {
		slices.Reverse(places)
	}
	out := make([]dbsqlc.Machine, min(limit, len(places)))
	for i := range out {
		out[i] = all[places[i]-1]
	}
	return out, nil
}
