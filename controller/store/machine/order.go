package machine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
)

// Order is an order of machines: by machine_id, site, rack or updated_at. Machines that are equal in it are in the order
// of machine_id.
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

// WalkInOrder reads what follows one machine in an order among the machines of filters that do not overlap. The filters'
// own places and limits are not used.
func (s *Store) WalkInOrder(
	ctx context.Context, filters []MachineFilter, order Order, afterID string, after Place, limit int32,
) ([]*baremetalv1.Machine, error) {
	var found []sorted
	for _, f := range filters {
		f.Order, f.AfterID, f.After, f.Limit = order, afterID, after, limit
		rows, err := s.WalkRows(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			key, err := order.of(r)
			if err != nil {
				return nil, err
			}
			found = append(found, key)
		}
	}
	slices.SortFunc(found, order.compare)
	if len(found) > int(limit) {
		found = found[:limit]
	}
	rows := make([]dbsqlc.Machine, len(found))
	for i := range found {
		rows[i] = found[i].row
	}
	return s.present(ctx, rows, false)
}

// sorted is a machine with what an order compares.
type sorted struct {
	row            dbsqlc.Machine
	nameKey, idKey string
}

func (o Order) of(r dbsqlc.Machine) (sorted, error) {
	out := sorted{row: r, idKey: naturalKey(r.MachineID)}
	switch o.By {
	case "site":
		out.nameKey = naturalKey(r.Site)
	case "rack":
		spec, err := convert.SpecFromJSON(r.Spec)
		if err != nil {
			return out, err
		}
		out.nameKey = naturalKey(spec.GetRack())
	}
	return out, nil
}

// compare is the order of the statement WalkMachines.
func (o Order) compare(a, b sorted) int {
	c := strings.Compare(a.nameKey, b.nameKey)
	if o.By == "updated_at" {
		c = a.row.UpdatedAt.Compare(b.row.UpdatedAt)
	} else {
		c = cmp.Or(c, strings.Compare(a.idKey, b.idKey))
	}
	c = cmp.Or(c, strings.Compare(a.row.MachineID, b.row.MachineID))
	if o.Desc {
		return -c
	}
	return c
}

// naturalDigits is how long numbers are made in natural keys.
const naturalDigits = 20

// naturalKey writes each number of a name with twenty digits, so that r2 comes before r10.
func naturalKey(name string) string {
	var b strings.Builder
	for name != "" {
		end := strings.IndexFunc(name, isDigit)
		if end < 0 {
			end = len(name)
		}
		b.WriteString(name[:end])
		name = name[end:]
		rest := strings.TrimLeftFunc(name, isDigit)
		if number := strings.TrimLeft(name[:len(name)-len(rest)], "0"); rest != name {
			b.WriteString(strings.Repeat("0", max(0, naturalDigits-len(number))) + number)
		}
		name = rest
	}
	return b.String()
}

func isDigit(r rune) bool { return r >= '0' && r <= '9' }
