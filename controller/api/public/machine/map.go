package machine

import (
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/rows"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/controller/store/machinemap"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/filter"
)

// MapMachines implements MachineService.
func (s *Server) MapMachines(
	ctx context.Context, r *baremetalv1.MapMachinesRequest,
) (*baremetalv1.MapMachinesResponse, error) {
	terms, err := query.Machines.Parse(r.GetFilter())
	if err != nil {
		return nil, err
	}
	at, err := s.momentOf(r.GetAsOf())
	if err != nil {
		return nil, err
	}
	q, err := query.MapQuery(terms, r.GetGroupBy(), r.GetValueOf(), !at.IsZero())
	if err != nil {
		return nil, err
	}
	if !at.IsZero() {
		return s.mapThen(ctx, q, at)
	}
	// What changes while the machines are read comes after this cursor.
	cursor, _, err := s.stores.MachineFeed.HeadCursor(ctx)
	if err != nil {
		return nil, err
	}
	m := newMapping(q, int(s.Config.MostMapped))
	for _, within := range selectionsOf(ctx) {
		if err := s.mapWithin(ctx, m, r, within, terms); err != nil {
			return nil, err
		}
	}
	out := m.answer()
	out.NextCursor = cursor
	return out, nil
}

// selectionsOf are those that a caller is held to; one that selects everything where there are none.
func selectionsOf(ctx context.Context) []string {
	caller, _ := call.Caller(ctx) // behind the guard; the zero Caller of a test is not restricted
	if selections, restricted := caller.Within(); restricted {
		return selections
	}
	return []string{""}
}

// mapWithin adds the machines of a selection that match. Those that are there already are left out.
func (s *Server) mapWithin(
	ctx context.Context, m *mapping, r *baremetalv1.MapMachinesRequest, selection string, terms []filter.Term,
) error {
	var within []filter.Term
	if selection != "" {
		var err error
		if within, err = query.Machines.Parse(selection); err != nil {
			return err
		}
		m.once = true
	}
	q, err := query.MapQuery(slices.Concat(within, terms), r.GetGroupBy(), r.GetValueOf(), false)
	if err != nil {
		return err
	}
	q.Counter.MaxRows = s.Config.MostMapped + 1
	parts, asOf, err := s.stores.Maps.MapMachines(ctx, q.Counter)
	if err != nil {
		return err
	}
	if m.asOf.IsZero() {
		m.asOf = asOf
	}
	return m.addAll(parts, q)
}

// mapThen maps the machines as they were at a moment.
func (s *Server) mapThen(
	ctx context.Context, q query.Map, at time.Time,
) (*baremetalv1.MapMachinesResponse, error) {
	m := newMapping(q, int(s.Config.MostMapped))
	m.asOf = at
	q.Counter.MaxRows = s.Config.MostMapped + 1
	parts, err := s.stores.Maps.MapMachinesAt(ctx, q.Counter, at)
	if err != nil {
		return nil, err
	}
	if err := s.kept(ctx, at); err != nil {
		return nil, err
	}
	if parts, err = s.partsVisible(ctx, parts); err != nil {
		return nil, err
	}
	if err := m.addAll(parts, q); err != nil {
		return nil, err
	}
	return m.answer(), nil
}

// partsVisible leaves out the machines that the caller may not see now.
func (s *Server) partsVisible(ctx context.Context, parts []machinemap.Part) ([]machinemap.Part, error) {
	if slices.Contains(selectionsOf(ctx), "") {
		return parts, nil
	}
	now, err := s.MapMachines(ctx, &baremetalv1.MapMachinesRequest{})
	if err != nil {
		return nil, err
	}
	may := map[string]bool{}
	for _, g := range now.GetGroups() {
		for _, id := range g.GetMachineIds() {
			may[id] = true
		}
	}
	for i := range parts {
		parts[i].IDs = slices.DeleteFunc(parts[i].IDs, func(id string) bool { return !may[id] })
	}
	return parts, nil
}

// mapping has machines in groups, with the fields of each.
type mapping struct {
	q      query.Map
	most   int
	asOf   time.Time
	groups map[string]*group
	total  int
	// values are numbered as they come; answer puts them into order.
	values map[string]int32
	// once keeps a machine from being there twice: those that are there are in seen.
	once bool
	seen map[string]bool

	states, reasons map[string]int32
	out             *baremetalv1.MapMachinesResponse
}

// group is the machines of one group.
type group struct {
	values []string
	all    []mapped
}

// mapped is a machine, and the numbers of its fields.
type mapped struct {
	id                   string
	state, reason, value int32
}

func newMapping(q query.Map, most int) *mapping {
	m := &mapping{
		q:       q,
		most:    most,
		groups:  map[string]*group{},
		values:  map[string]int32{},
		seen:    map[string]bool{},
		states:  map[string]int32{},
		reasons: map[string]int32{"": 0},
		out:     &baremetalv1.MapMachinesResponse{Reasons: []string{""}},
	}
	for i, state := range fleet.EffectiveStates() {
		name := string(state)
		m.states[name] = int32(i)
		if state == fleet.StateMaintenanceIdle {
			name = string(fleet.Maintenance) // as people read it
		}
		m.out.States = append(m.out.States, name)
	}
	return m
}

// addAll adds the machines that match what the store has not narrowed by.
func (m *mapping) addAll(parts []machinemap.Part, q query.Map) error {
	read := 0
	matches := machinefilter.Of(q.Rest)
	for _, p := range parts {
		if read += len(p.IDs); read > m.most || m.total > m.most {
			return failure.Precondition("TOO_MANY_GROUPS",
				"more than %d machines; narrow the filter by a text, such as site=NAME, or count them", m.most).
				WithField("filter", "too many machines")
		}
		if len(p.IDs) > 0 && matches.Matches(p.Like) {
			m.add(p)
		}
	}
	return nil
}

func (m *mapping) add(p machinemap.Part) {
	values := groupValues(m.q.Keys, p.Counted)
	one := mapped{state: m.states[p.Like.GetStatus().GetEffectiveState().String()]}
	one.reason = number(m.reasons, p.Like.GetStatus().GetAttentionReason())
	if m.q.Value >= 0 {
		one.value = number(m.values, values[m.q.Value])
	}
	key := strings.Join(values[:m.q.Groups], "\x00") // which no value has
	g := m.groups[key]
	if g == nil {
		g = &group{values: values[:m.q.Groups]}
		m.groups[key] = g
	}
	for _, id := range p.IDs {
		if m.once {
			if m.seen[id] {
				continue
			}
			m.seen[id] = true
		}
		one.id = id
		g.all = append(g.all, one)
		m.total++
	}
}

// number returns a text's number, or the next one for a new text.
func number(all map[string]int32, text string) int32 {
	n, known := all[text]
	if !known {
		n = int32(len(all))
		all[text] = n
	}
	return n
}

// answer puts everything into its order.
func (m *mapping) answer() *baremetalv1.MapMachinesResponse {
	out := m.out
	out.Total, out.AsOf = int32(m.total), timestamppb.New(m.asOf)
	out.Reasons = make([]string, len(m.reasons))
	for text, n := range m.reasons {
		out.Reasons[n] = text
	}
	places := m.inOrder()
	for _, g := range m.groups {
		if len(g.all) > 0 {
			out.Groups = append(out.Groups, m.columns(g, places))
		}
	}
	slices.SortFunc(out.Groups, func(a, b *baremetalv1.MachineMapGroup) int {
		return slices.CompareFunc(a.GetValues(), b.GetValues(), rows.Natural)
	})
	return out
}

// inOrder sorts the values, and returns the new place of each number.
func (m *mapping) inOrder() []int32 {
	for text := range m.values {
		m.out.Values = append(m.out.Values, text)
	}
	slices.SortFunc(m.out.Values, rows.Natural)
	places := make([]int32, len(m.values))
	for i, text := range m.out.Values {
		places[m.values[text]] = int32(i)
	}
	return places
}

// columns is a group as it is answered.
func (m *mapping) columns(g *group, places []int32) *baremetalv1.MachineMapGroup {
	slices.SortFunc(g.all, func(a, b mapped) int { return rows.Natural(a.id, b.id) })
	n := len(g.all)
	out := &baremetalv1.MachineMapGroup{Values: g.values, MachineIds: make([]string, n), MachineStates: make([]int32, n)}
	if slices.ContainsFunc(g.all, func(one mapped) bool { return one.reason != 0 }) {
		out.MachineReasons = make([]int32, n)
	}
	if m.q.Value >= 0 {
		out.MachineValues = make([]int32, n)
	}
	for i, one := range g.all {
		out.MachineIds[i], out.MachineStates[i] = one.id, one.state
		if out.MachineReasons != nil {
			out.MachineReasons[i] = one.reason
		}
		if out.MachineValues != nil {
			out.MachineValues[i] = places[one.value]
		}
	}
	return out
}
