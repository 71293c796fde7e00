// Package machinemap reads whole fleets at once, machines that are alike together, for pictures of them.
package machinemap

import (
	"context"
	"fmt"
	"time"

	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
)

// Store reads maps of machines. It is safe for concurrent use.
type Store struct{ db *pgtx.DB }

// New returns a store over the database.
func New(db *pgtx.DB) *Store { return &Store{db: db} }

// MostKeys is in how many texts the parts of a map may differ.
const MostKeys = 4

// Part is machines that are alike.
type Part struct {
	machine.Counted

	IDs []string
}

// MapMachines reads machines by one statement, and no more than c.MaxRows of them. asOf is a time of the database:
// what was committed before is in it.
func (s *Store) MapMachines(ctx context.Context, c machine.Counter) (all []Part, asOf time.Time, err error) {
	f, keys := c.Filter, fourOf(c.Values)
	labels, err := pgtx.JSONMap(f.Labels)
	if err != nil {
		return nil, asOf, err
	}
	spec, err := pgtx.JSONMap(f.Spec)
	if err != nil {
		return nil, asOf, err
	}
	p := dbsqlc.MapMachinesParams{
		Key1:       keys[0],
		Key2:       keys[1],
		Key3:       keys[2],
		Key4:       keys[3],
		Conditions: pgtx.NonNil(c.Conditions),
		Among: pgtx.NonNil(
			f.MachineIDs,
		),
		Provider:    f.Provider,
		Site:        f.Site,
		Region:      f.Region,
		Rack:        f.Rack,
		Labels:      labels,
		Spec:        spec,
		MaxMachines: c.MaxRows,
	}
	p.Keys, p.Regexps = f.Regexps(false)
	p.NotKeys, p.NotRegexps = f.Regexps(true)
	rows, err := s.db.CustomPlan().MapMachines(ctx, p)
	if err != nil {
		return nil, asOf, fmt.Errorf("map machines: %w", err)
	}
	for i := range rows {
		r := dbsqlc.MapMachinesAtRow{
			Key1: rows[i].Key1, Key2: rows[i].Key2, Key3: rows[i].Key3, Key4: rows[i].Key4, Phase: rows[i].Phase,
			NodeState: rows[i].NodeState, Operating: rows[i].Operating, InWorkflow: rows[i].InWorkflow,
			Fenced: rows[i].Fenced, Agentless: rows[i].Agentless, Conditions: rows[i].Conditions, Why: rows[i].Why,
			MachineIds: rows[i].MachineIds,
		}
		if len(r.MachineIds) == 0 {
			asOf = rows[i].AsOf
			continue
		}
		all = append(all, partOf(r, c))
	}
	return all, asOf, nil
}

// MapMachinesAt reads the machines that there were at a moment. Of the filter it takes the patterns alone.
func (s *Store) MapMachinesAt(ctx context.Context, c machine.Counter, moment time.Time) (all []Part, err error) {
	keys := fourOf(c.Values)
	p := dbsqlc.MapMachinesAtParams{
		Key1: keys[0], Key2: keys[1], Key3: keys[2], Key4: keys[3], Conditions: pgtx.NonNil(c.Conditions), Moment: moment,
		MaxMachines: c.MaxRows,
	}
	p.Keys, p.Regexps = c.Filter.Regexps(false)
	p.NotKeys, p.NotRegexps = c.Filter.Regexps(true)
	rows, err := s.db.CustomPlan().MapMachinesAt(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("map machines of %v: %w", moment, err)
	}
	for _, r := range rows {
		all = append(all, partOf(r, c))
	}
	return all, nil
}

func fourOf(keys []string) (out [MostKeys]string) {
	copy(out[:], keys)
	return out
}

func partOf(r dbsqlc.MapMachinesAtRow, c machine.Counter) Part {
	like := machine.Facts{
		Phase: r.Phase, NodeState: r.NodeState, Operating: r.Operating, InWorkflow: r.InWorkflow, Fenced: r.Fenced,
		Agentless: r.Agentless, Conditions: r.Conditions, Why: r.Why,
	}.Like(c.Conditions)
	values := []string{r.Key1, r.Key2, r.Key3, r.Key4}[:len(c.Values)]
	return Part{Counted: machine.Counted{Values: values, Like: like, Machines: len(r.MachineIds)}, IDs: r.MachineIds}
}
