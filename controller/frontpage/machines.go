package frontpage

import (
	"context"
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
)

// RegisterMachine implements MachineService.
func (s *Server) RegisterMachine(ctx context.Context, r *baremetalv1.RegisterMachineRequest) (*baremetalv1.Machine, error) {
	m, err := validate.Machine("machine", r.GetMachine())
	if err != nil {
		return nil, err
	}
	return s.store.Register(ctx, m, actor(ctx), s.clock.Now())
}

// UpdateMachine implements MachineService.
func (s *Server) UpdateMachine(ctx context.Context, r *baremetalv1.UpdateMachineRequest) (*baremetalv1.Machine, error) {
	m, err := validate.Machine("machine", r.GetMachine())
	if err == nil {
		err = validate.Key("machine.machine_id", m.GetMachineId())
	}
	if err != nil {
		return nil, err
	}
	return s.store.Update(ctx, m, actor(ctx), s.clock.Now())
}

// DeleteMachine implements MachineService.
func (s *Server) DeleteMachine(ctx context.Context, r *baremetalv1.DeleteMachineRequest) (*baremetalv1.Machine, error) {
	if err := validate.Key("machine_id", r.GetMachineId()); err != nil {
		return nil, err
	}
	if err := mayPurge(ctx, r.GetPurge()); err != nil {
		return nil, err
	}
	return s.store.Delete(ctx, r.GetMachineId(), actor(ctx), r.GetPurge(), s.clock.Now())
}

// mayPurge refuses to leave out a decommission to callers who are no admins.
func mayPurge(ctx context.Context, purge bool) error {
	if c, ok := auth.CallerFrom(ctx); purge && ok && c.Scope < auth.ScopeAdmin {
		return failure.Denied(auth.ReasonScopeTooSmall, "purge needs a token of scope admin; decommission the machine instead").
			WithField("purge", "of an admin alone")
	}
	return nil
}

// GetMachine implements MachineService.
func (s *Server) GetMachine(ctx context.Context, r *baremetalv1.GetMachineRequest) (*baremetalv1.Machine, error) {
	if r.GetMachineId() != "" || r.GetExternalId() == "" {
		if err := validate.Key("machine_id", r.GetMachineId()); err != nil {
			return nil, err
		}
		return s.store.GetMachine(ctx, r.GetMachineId(), "")
	}
	if err := validate.Key("external_id", r.GetExternalId()); err != nil {
		return nil, err
	}
	return s.store.GetMachine(ctx, "", r.GetExternalId())
}

// GetInventory implements MachineService.
func (s *Server) GetInventory(ctx context.Context, r *baremetalv1.GetInventoryRequest) (*baremetalv1.Inventory, error) {
	if err := validate.Key("machine_id", r.GetMachineId()); err != nil {
		return nil, err
	}
	return s.store.GetInventory(ctx, r.GetMachineId())
}

// ListMachines implements MachineService: a walk, or a reconcile when a cursor or a time is given.
func (s *Server) ListMachines(ctx context.Context, r *baremetalv1.ListMachinesRequest) (*baremetalv1.ListMachinesResponse, error) {
	size, err := validate.PageSize(r.GetPageSize())
	if err != nil {
		return nil, err
	}
	terms, err := validate.Filter(r.GetFilter(), machineKeys)
	if err != nil {
		return nil, err
	}
	if r.GetCursor() != "" || r.GetUpdatedSince() != nil {
		return s.reconcile(ctx, r, terms, size)
	}
	all, page, next, err := s.walk(ctx, walkOf{list: "machines", filter: r.GetFilter(), token: r.GetPageToken(), sealed: true}, terms, size)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListMachinesResponse{
		Machines: all, NextPageToken: next, NextCursor: page.Cursor, SafeUpdatedSince: timestamppb.New(page.Safe),
	}, nil
}

// walkOf says which page of which list is asked for, and whether its machines may be sealed: see store.MachineFilter.
type walkOf struct {
	list, filter, token string
	sealed              bool
}

// walk reads one page by machine_id, one after the other where a filter needs several walks that do not overlap. The cursor is taken before the first page and carried through the others, so that
// what changes during the walk comes after it.
func (s *Server) walk(ctx context.Context, w walkOf, terms []validate.Term, size int32) ([]*baremetalv1.Machine, validate.Page, string, error) {
	page, err := validate.ParsePage(w.token, w.list, w.filter)
	if err != nil {
		return nil, page, "", err
	}
	if w.token == "" {
		if page.Cursor, page.Safe, err = s.store.HeadCursor(ctx); err != nil {
			return nil, page, "", err
		}
	}
	walks := machineQuery(terms)
	var all []*baremetalv1.Machine
	for ; page.Part < len(walks); page.Part, page.ID = page.Part+1, "" {
		f := walks[page.Part]
		f.AfterID, f.Limit, f.Sealed = page.ID, size+1-int32(len(all)), w.sealed
		part, err := s.store.WalkMachines(ctx, f)
		if err != nil {
			return nil, page, "", err
		}
		if len(part) == int(f.Limit) {
			return cutPage(w.list, w.filter, append(all, part...), len(part), page)
		}
		all = append(all, part...)
	}
	return all, page, "", nil
}

// cutPage takes off the row that only shows that there is more. got is how many rows came from the last walk.
func cutPage(list, filter string, all []*baremetalv1.Machine, got int, page validate.Page) ([]*baremetalv1.Machine, validate.Page, string, error) {
	all = all[:len(all)-1]
	if got > 1 {
		page.ID = all[len(all)-1].GetMachineId()
	}
	return all, page, page.Token(list, filter), nil
}

func (s *Server) reconcile(ctx context.Context, r *baremetalv1.ListMachinesRequest, terms []validate.Term, size int32) (*baremetalv1.ListMachinesResponse, error) {
	only, err := reconcileFilter(r, terms)
	if err != nil {
		return nil, err
	}
	var since time.Time
	if r.GetUpdatedSince() != nil {
		since = r.GetUpdatedSince().AsTime()
	}
	c, err := s.store.ReconcileSealed(ctx, r.GetCursor(), since, size)
	if err != nil {
		return nil, err
	}
	if only != "" {
		c.Machines = slices.DeleteFunc(c.Machines, func(m *baremetalv1.Machine) bool { return m.GetMachineId() != only })
	}
	return &baremetalv1.ListMachinesResponse{
		Machines: c.Machines, NextCursor: c.Next, SafeUpdatedSince: stampIfSet(c.SafeSince), More: c.More,
	}, nil
}

// reconcileFilter refuses what a reconcile cannot answer truthfully. A machine's id is the one key that no change can
// leave.
func reconcileFilter(r *baremetalv1.ListMachinesRequest, terms []validate.Term) (machineID string, err error) {
	switch {
	case r.GetPageToken() != "":
		return "", failure.Invalid("INVALID_PAGE_TOKEN", "page_token belongs to a walk; a reconcile goes on by cursor").
			WithField("page_token", "not with cursor or updated_since")
	case r.GetCursor() != "" && r.GetUpdatedSince() != nil:
		return "", validate.Fault("updated_since", "not together with cursor")
	case r.GetUpdatedSince() != nil:
		if err := validate.Since("updated_since", r.GetUpdatedSince()); err != nil {
			return "", err
		}
	}
	for _, t := range terms {
		if t.Key != "machine_id" {
			return "", failure.Invalid("FILTER_NOT_ALLOWED_WITH_CURSOR",
				"a machine whose %s changes would vanish from a reconcile in silence; filter what it returns", t.Key).
				WithField("filter", "not with cursor or updated_since")
		}
		machineID = t.Value
	}
	return machineID, nil
}
