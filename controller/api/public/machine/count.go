package machine

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
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
	c, err := query.CountQuery(terms, r.GetGroupBy())
	if err != nil {
		return nil, err
	}
	c.Counter.MaxRows = mostAlike + 1
	alike, asOf, err := s.Store.CountAlike(ctx, c.Counter)
	if err != nil {
		return nil, err
	}
	if len(alike) > mostAlike {
		return nil, tooManyGroups()
	}
	out := &baremetalv1.CountMachinesResponse{AsOf: timestamppb.New(asOf)}
	groups := map[string]*baremetalv1.MachineGroup{}
	matches := machinefilter.Of(c.Rest)
	for _, a := range alike {
		if !matches.Matches(a.Like) {
			continue
		}
		out.Total += int32(a.Machines)
		if len(c.Keys) == 0 {
			continue
		}
		values := groupValues(c.Keys, a)
		key := strings.Join(values, "\x00") // which no value has
		if groups[key] == nil {
			groups[key] = &baremetalv1.MachineGroup{Values: values}
		}
		if len(groups) > query.MaxGroups {
			return nil, tooManyGroups()
		}
		groups[key].Count += int32(a.Machines)
	}
	for _, g := range groups {
		out.Groups = append(out.Groups, g)
	}
	slices.SortFunc(out.Groups, func(a, b *baremetalv1.MachineGroup) int {
		return cmp.Or(cmp.Compare(b.GetCount(), a.GetCount()), slices.Compare(a.GetValues(), b.GetValues()))
	})
	return out, nil
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
		value, _, _ := machinefilter.Value(a.Like, key) // CountQuery has checked the key; no value is ""
		if value == baremetalv1.MachineStatus_MAINTENANCE_IDLE.String() {
			value = baremetalv1.MachineStatus_MAINTENANCE.String() // as people read it
		}
		out = append(out, value)
	}
	return out
}

func tooManyGroups() error {
	return failure.Precondition("TOO_MANY_GROUPS", "more than %d groups; count by fewer keys, or narrow the filter",
		query.MaxGroups).WithField("group_by", "too many groups")
}
