package machine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/filter"
)

// machinesAtOnce is how many machines of a moment are read together where few of them may be asked for.
const machinesAtOnce = 1000

// momentOf is the moment of a request, the zero time where it asks for none.
func (s *Server) momentOf(asOf *timestamppb.Timestamp) (time.Time, error) {
	at, err := timeOf("as_of", asOf)
	if err == nil && at.After(s.Clock.Now()) {
		err = validate.Fault("as_of", "still to come; leave it out for the machines as they are")
	}
	return at, err
}

// kept refuses a moment that cannot be answered. It is asked after the states were read: retention first records what
// it is about to remove.
func (s *Server) kept(ctx context.Context, at time.Time) error {
	since, err := s.stores.Past.StatesSince(ctx)
	if err != nil || !at.Before(since) {
		return err
	}
	first := since.UTC().Format(time.RFC3339Nano)
	return failure.Precondition("MOMENT_NOT_KEPT",
		"the states of machines are kept since %s; ask for that time or a later one", first).
		WithField("as_of", "before "+first).WithMeta("since", first)
}

// listThen lists the machines as they were at a moment.
func (s *Server) listThen(
	ctx context.Context, r *baremetalv1.ListMachinesRequest, terms []filter.Term, at time.Time,
) (*baremetalv1.ListMachinesResponse, error) {
	switch {
	case r.GetOrderBy() != "":
		return nil, query.BadOrder("machines of a moment are in the order of machine_id; leave it out, and sort what you get")
	case r.GetCursor() != "":
		return nil, validate.Fault("cursor", "not with as_of; a moment has no changes to follow")
	case r.GetUpdatedSince() != nil:
		return nil, validate.Fault("updated_since", "not with as_of; filter by what the machines were, or list two moments")
	}
	caller, _ := call.Caller(ctx) // behind the guard; the zero Caller of a test is not restricted
	_, restricted := caller.Within()
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Machine]{
		Name: fmt.Sprint("machines of ", at.UnixNano()), Filter: r.GetFilter(), Uncounted: len(terms) > 0 || restricted,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Machine, error) {
			return s.readThen(ctx, terms, at, after.ID, limit)
		},
		Place: service.ByID((*baremetalv1.Machine).GetMachineId),
	}, r)
	if err != nil {
		return nil, err
	}
	if err := s.kept(ctx, at); err != nil {
		return nil, err
	}
	return &baremetalv1.ListMachinesResponse{Machines: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// readThen reads machines of a moment that match and that the caller may see now.
func (s *Server) readThen(
	ctx context.Context, terms []filter.Term, at time.Time, afterID string, limit int32,
) (all []*baremetalv1.Machine, err error) {
	wanted := machinefilter.Of(terms)
	for int32(len(all)) < limit {
		size := limit - int32(len(all))
		if !wanted.MatchesAll() && limit != pgtx.AllRows {
			size = max(size, machinesAtOnce)
		}
		found, err := s.stores.Past.MachinesAt(ctx, at, afterID, size)
		if err != nil {
			return nil, err
		}
		last := len(found) < int(size)
		if !last {
			afterID = found[len(found)-1].GetMachineId()
		}
		found = slices.DeleteFunc(found, func(m *baremetalv1.Machine) bool { return !wanted.Matches(m) })
		if found, err = s.visible(ctx, found); err != nil {
			return nil, err
		}
		if all = append(all, found...); last {
			break
		}
	}
	return all[:min(len(all), int(limit))], nil
}

// visible leaves out the machines that the caller may not see now.
func (s *Server) visible(ctx context.Context, all []*baremetalv1.Machine) ([]*baremetalv1.Machine, error) {
	caller, _ := call.Caller(ctx) // behind the guard, as above
	if _, restricted := caller.Within(); !restricted || len(all) == 0 {
		return all, nil
	}
	these := filter.Term{Key: "machine_id"}
	for _, m := range all {
		these.Values = append(these.Values, filter.Value{Text: m.GetMachineId()})
	}
	walk, err := s.Walk(ctx, "", "", []filter.Term{these}, service.WalkStart{}, true)
	if err != nil {
		return nil, err
	}
	now, err := walk.Read(ctx, validate.Page{}, int32(len(all))+1)
	if err != nil {
		return nil, err
	}
	may := map[string]bool{}
	for _, m := range now {
		may[m.GetMachineId()] = true
	}
	return slices.DeleteFunc(all, func(m *baremetalv1.Machine) bool { return !may[m.GetMachineId()] }), nil
}

// getThen finds a machine as it was at a moment.
func (s *Server) getThen(
	ctx context.Context, r *baremetalv1.GetMachineRequest, at time.Time,
) (*baremetalv1.Machine, error) {
	id := r.GetMachineId()
	if id == "" && r.GetExternalId() != "" {
		return nil, validate.Fault("external_id", "not with as_of; name the machine by its machine_id")
	}
	if err := validate.Key("machine_id", id); err != nil {
		return nil, err
	}
	m, err := s.stores.Past.MachineAt(ctx, id, at)
	if err != nil {
		return nil, err
	}
	known, err := s.stores.Machines.KnownMachine(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := s.kept(ctx, at); err != nil {
		return nil, err
	}
	gone := func(format string, args ...any) error {
		return failure.NotFound("MACHINE_NOT_FOUND", format, args...).WithField("machine_id", "not there at that moment")
	}
	switch {
	case m == nil:
		return nil, gone("machine %s is there since %s; ask for that time or a later one", id, stampOf(known.GetCreatedAt()))
	case m.GetDeletedAt() != nil:
		return nil, gone("machine %s was deleted at %s; ask for an earlier time", id, stampOf(m.GetDeletedAt()))
	}
	return m, nil
}

func stampOf(t *timestamppb.Timestamp) string { return t.AsTime().Format(time.RFC3339Nano) }

// countThen counts machines as they were at a moment.
func (s *Server) countThen(
	ctx context.Context, terms []filter.Term, keys []string, at time.Time,
) (*baremetalv1.CountMachinesResponse, error) {
	c := newCounting(keys, at)
	matches := machinefilter.Of(terms)
	for after, more := "", true; more; {
		found, err := s.stores.Past.MachinesAt(ctx, at, after, machinesAtOnce)
		if err != nil {
			return nil, err
		}
		if more = len(found) == machinesAtOnce; more {
			after = found[len(found)-1].GetMachineId()
		}
		for _, m := range found {
			if !matches.Matches(m) {
				continue
			}
			values := make([]string, 0, len(keys))
			for _, key := range keys {
				values = append(values, valueOf(m, key))
			}
			if err := c.add(values, 1); err != nil {
				return nil, err
			}
		}
	}
	if err := s.kept(ctx, at); err != nil {
		return nil, err
	}
	return c.answer(), nil
}
