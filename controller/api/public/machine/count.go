package machine

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/controller/domain/machinesearch"
	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/internal/failure"
)

// mostAlike bounds the rows that groups are made of: of each group there is one for each set of facts.
const mostAlike = 50 * query.MaxGroups

// CountMachines implements MachineService.
func (s *Server) CountMachines(
	ctx context.Context, r *baremetalv1.CountMachinesRequest,
) (*baremetalv1.CountMachinesResponse, error) {
	terms, err := query.Machines.Parse(r.GetFilter())
	if err != nil {
		return nil, err
	}
	q, err := query.CountQuery(terms, r.GetGroupBy())
	if err != nil {
		return nil, err
	}
	at, err := s.momentOf(r.GetAsOf())
	if err != nil {
		return nil, err
	}
	if !at.IsZero() {
		return s.countThen(ctx, terms, q.Keys, at)
	}
	q.Counter.MaxRows = mostAlike + 1
	alike, asOf, err := s.stores.Machines.CountAlike(ctx, q.Counter)
	if err != nil {
		return nil, err
	}
	if len(alike) > mostAlike {
		return nil, tooManyGroups()
	}
	c := newCounting(q.Keys, asOf)
	matches := machinefilter.Of(q.Rest)
	for _, a := range alike {
		if !matches.Matches(a.Like) {
			continue
		}
		if err := c.add(groupValues(q.Keys, a), int32(a.Machines)); err != nil {
			return nil, err
		}
	}
	return c.answer(), nil
}

// counting is machines in groups.
type counting struct {
	keys   []string
	groups map[string]*baremetalv1.MachineGroup
	out    *baremetalv1.CountMachinesResponse
}

func newCounting(keys []string, asOf time.Time) *counting {
	return &counting{keys: keys, groups: map[string]*baremetalv1.MachineGroup{},
		out: &baremetalv1.CountMachinesResponse{AsOf: timestamppb.New(asOf)}}
}

// add counts machines that have these values of the keys.
func (c *counting) add(values []string, machines int32) error {
	c.out.Total += machines
	if len(c.keys) == 0 {
		return nil
	}
	key := strings.Join(values, "\x00") // which no value has
	if c.groups[key] == nil {
		c.groups[key] = &baremetalv1.MachineGroup{Values: values}
	}
	if len(c.groups) > query.MaxGroups {
		return tooManyGroups()
	}
	c.groups[key].Count += machines
	return nil
}

// answer returns the groups, the largest first.
func (c *counting) answer() *baremetalv1.CountMachinesResponse {
	for _, g := range c.groups {
		c.out.Groups = append(c.out.Groups, g)
	}
	slices.SortFunc(c.out.Groups, func(a, b *baremetalv1.MachineGroup) int {
		return cmp.Or(cmp.Compare(b.GetCount(), a.GetCount()), slices.Compare(a.GetValues(), b.GetValues()))
	})
	return c.out
}

// groupValues are the values of the keys, in their order: texts as counted, the others by what the facts mean.
func groupValues(keys []string, a machinestore.Counted) []string {
	out := make([]string, 0, len(keys))
	texts := a.Values
	for _, key := range keys {
		if query.IsText(key) {
			out, texts = append(out, texts[0]), texts[1:]
			continue
		}
		out = append(out, valueOf(a.Like, key))
	}
	return out
}

// valueOf is a machine's value of a key of a group.
func valueOf(m *baremetalv1.Machine, key string) string {
	value, _, _ := machinefilter.Value(m, key) // CountQuery has checked the key; no value is ""
	if value == baremetalv1.MachineStatus_MAINTENANCE_IDLE.String() && key == "effective_state" {
		return baremetalv1.MachineStatus_MAINTENANCE.String() // as people read it
	}
	return value
}

func tooManyGroups() error {
	return failure.Precondition("TOO_MANY_GROUPS", "more than %d groups; count by fewer keys, or narrow the filter",
		query.MaxGroups).WithField("group_by", "too many groups")
}

const (
	usualHits = 20
	mostHits  = 100
)

// SearchMachines implements MachineService.
func (s *Server) SearchMachines(
	ctx context.Context, r *baremetalv1.SearchMachinesRequest,
) (*baremetalv1.SearchMachinesResponse, error) {
	if r.GetLimit() < 0 || r.GetLimit() > mostHits {
		return nil, failure.Invalid("INVALID_FIELD", "limit is 0 to %d", mostHits).
			WithField("limit", "0 to 100")
	}
	texts, refusal := machinesearch.Texts(r.GetText())
	if refusal != nil {
		return nil, refusal
	}
	in, err := query.Within(ctx)
	if err != nil {
		return nil, err
	}
	var hits []machinesearch.Hit
	for _, text := range texts {
		if hits, err = s.stores.Machines.Search(ctx, in, text); err != nil {
			return nil, err
		}
		if len(hits) > 0 {
			break
		}
	}
	found, more := machinesearch.OneEach(hits, int(cmp.Or(r.GetLimit(), usualHits)))
	out := &baremetalv1.SearchMachinesResponse{More: more}
	for _, h := range found {
		out.Hits = append(out.Hits, &baremetalv1.SearchHit{MachineId: h.MachineID, Field: h.Field, Value: h.Value})
	}
	return out, nil
}
