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
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/filter"
)

// RegisterMachine implements MachineService.
func (s *Server) RegisterMachine(
	ctx context.Context, r *baremetalv1.RegisterMachineRequest,
) (*baremetalv1.Machine, error) {
	m, err := validate.NewMachine("machine", r.GetMachine())
	if err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	if id := r.GetRequestId(); id != "" {
		if m.GetMachineId() == "" {
			return nil, validate.Fault("machine.machine_id", "required beside request_id: a repeat finds the machine by it")
		}
		if err := validate.RequestID(id); err != nil {
			return nil, err
		}
		opts = append(opts, pgtx.RequestID(id))
	}
	return s.stores.Machines.Register(ctx, m, service.Actor(ctx), s.Clock.Now(), opts...)
}

// UpdateMachine implements MachineService.
func (s *Server) UpdateMachine(ctx context.Context, r *baremetalv1.UpdateMachineRequest) (*baremetalv1.Machine, error) {
	m, err := validate.Machine("machine", r.GetMachine())
	if err == nil {
		err = service.FirstError(validate.Key("machine.machine_id", m.GetMachineId()),
			validate.MachineMask("update_mask", r.GetUpdateMask().GetPaths()))
	}
	if err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	return s.stores.Machines.Update(
		ctx,
		m,
		service.Actor(ctx),
		s.Clock.Now(),
		append(opts, pgtx.Mask(r.GetUpdateMask().GetPaths()))...)
}

// DeleteMachine implements MachineService.
func (s *Server) DeleteMachine(ctx context.Context, r *baremetalv1.DeleteMachineRequest) (*baremetalv1.Machine, error) {
	if err := validate.Key("machine_id", r.GetMachineId()); err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	if err := service.MayPurge(ctx, r.GetPurge()); err != nil {
		return nil, err
	}
	return s.stores.Nodes.Delete(ctx, r.GetMachineId(), service.Actor(ctx), r.GetPurge(), s.Clock.Now(), opts...)
}

// GetMachine implements MachineService.
func (s *Server) GetMachine(ctx context.Context, r *baremetalv1.GetMachineRequest) (*baremetalv1.Machine, error) {
	mask, err := query.ParseReadMask(r.GetReadMask())
	if err != nil {
		return nil, err
	}
	m, err := s.getMachine(ctx, r)
	if err != nil {
		return nil, err
	}
	return m, mask.Prune(m)
}

func (s *Server) getMachine(ctx context.Context, r *baremetalv1.GetMachineRequest) (*baremetalv1.Machine, error) {
	at, err := s.momentOf(r.GetAsOf())
	if err != nil {
		return nil, err
	}
	if !at.IsZero() {
		return s.getThen(ctx, r, at)
	}
	if r.GetMachineId() != "" || r.GetExternalId() == "" {
		if err := validate.Key("machine_id", r.GetMachineId()); err != nil {
			return nil, err
		}
		return s.stores.Machines.GetMachine(ctx, r.GetMachineId(), "")
	}
	if err := validate.Key("external_id", r.GetExternalId()); err != nil {
		return nil, err
	}
	return s.stores.Machines.GetMachine(ctx, "", r.GetExternalId())
}

// GetInventory implements MachineService.
func (s *Server) GetInventory(ctx context.Context, r *baremetalv1.GetInventoryRequest) (*baremetalv1.Inventory, error) {
	if err := validate.Key("machine_id", r.GetMachineId()); err != nil {
		return nil, err
	}
	if r.GetHistory() < 0 || r.GetHistory() > 49 {
		return nil, failure.Invalid("INVALID_FIELD", "history: 0 to 49 inventories before the last one").
			WithField("history", "0 to 49")
	}
	return s.stores.Machines.GetInventory(ctx, r.GetMachineId(), max(1, r.GetHistory()))
}

// GetHardwareTests implements MachineService.
func (s *Server) GetHardwareTests(
	ctx context.Context, r *baremetalv1.GetHardwareTestsRequest,
) (*baremetalv1.HardwareTests, error) {
	if err := validate.Key("machine_id", r.GetMachineId()); err != nil {
		return nil, err
	}
	if r.GetHistory() < 0 || r.GetHistory() > 49 {
		return nil, failure.Invalid("INVALID_FIELD", "history: 0 to 49 tests before the last one").
			WithField("history", "0 to 49")
	}
	return s.stores.Machines.GetHardwareTests(ctx, r.GetMachineId(), 1+r.GetHistory())
}

// GetHardwareHealth implements MachineService.
func (s *Server) GetHardwareHealth(
	ctx context.Context, r *baremetalv1.GetHardwareHealthRequest,
) (*baremetalv1.HardwareHealth, error) {
	if err := validate.Key("machine_id", r.GetMachineId()); err != nil {
		return nil, err
	}
	return s.stores.Machines.GetHardwareHealth(ctx, r.GetMachineId())
}

// SetIdentifyLight implements MachineService.
func (s *Server) SetIdentifyLight(
	ctx context.Context, r *baremetalv1.SetIdentifyLightRequest,
) (*baremetalv1.HardwareHealth, error) {
	if err := validate.Key("machine_id", r.GetMachineId()); err != nil {
		return nil, err
	}
	return s.stores.Machines.SetIdentifyLight(ctx, r.GetMachineId(), r.GetLit(), service.Actor(ctx), s.Clock.Now())
}

// ListMachines implements MachineService: a walk, a reconcile when a cursor or a time is given, or a walk of the
// machines of a moment.
func (s *Server) ListMachines(
	ctx context.Context, r *baremetalv1.ListMachinesRequest,
) (*baremetalv1.ListMachinesResponse, error) {
	mask, err := query.ParseReadMask(r.GetReadMask())
	if err != nil {
		return nil, err
	}
	terms, err := query.Machines.Parse(r.GetFilter())
	if err != nil {
		return nil, err
	}
	at, err := s.momentOf(r.GetAsOf())
	if err != nil {
		return nil, err
	}
	var list *baremetalv1.ListMachinesResponse
	if at.IsZero() {
		list, err = s.listNow(ctx, r, terms)
	} else {
		list, err = s.listThen(ctx, r, terms, at)
	}
	if err != nil {
		return nil, err
	}
	return list, mask.Prune(list.GetMachines()...)
}

// listNow lists the machines as they are.
func (s *Server) listNow(
	ctx context.Context, r *baremetalv1.ListMachinesRequest, terms []filter.Term,
) (*baremetalv1.ListMachinesResponse, error) {
	order, err := query.ParseOrder(r.GetOrderBy())
	if err != nil {
		return nil, err
	}
	if r.GetCursor() != "" || r.GetUpdatedSince() != nil {
		return s.reconcile(ctx, r, terms)
	}
	list := "machines"
	if order.By != "" {
		list = fmt.Sprintf("machines by %s, descending %t", order.By, order.Desc)
	}
	at, err := validate.ParsePage(r.GetPageToken(), list, r.GetFilter())
	if err != nil {
		return nil, err
	}
	if r.GetPageToken() == "" {
		changes, err := s.changes(ctx)
		if err != nil {
			return nil, err
		}
		if at.Cursor, at.Safe, err = changes.HeadCursor(ctx); err != nil {
			return nil, err
		}
	}
	start := service.WalkStart{Cursor: at.Cursor, Safe: at.Safe}
	walk, err := s.Walk(ctx, list, r.GetFilter(), terms, start, true)
	if order.By != "" {
		walk, err = s.WalkInOrder(ctx, list, r.GetFilter(), terms, order, start)
	}
	if err != nil {
		return nil, err
	}
	p, err := service.Page(ctx, s.Base, walk, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListMachinesResponse{
		Machines: p.Rows, NextPageToken: p.Next, TotalSize: p.Total, NextCursor: at.Cursor,
		SafeUpdatedSince: timestamppb.New(at.Safe),
	}, nil
}

// reconcileRows is the largest page of a reconcile.
const reconcileRows = 1000

func (s *Server) reconcile(
	ctx context.Context, r *baremetalv1.ListMachinesRequest, terms []filter.Term,
) (*baremetalv1.ListMachinesResponse, error) {
	size, err := validate.PageSize(r.GetPageSize())
	if err != nil {
		return nil, err
	}
	if err := reconcileFilter(r, terms); err != nil {
		return nil, err
	}
	var since time.Time
	if r.GetUpdatedSince() != nil {
		since = r.GetUpdatedSince().AsTime()
	}
	changes, err := s.changes(ctx)
	if err != nil {
		return nil, err
	}
	c, err := changes.Reconcile(ctx, r.GetCursor(), since, min(size, reconcileRows))
	if err != nil {
		return nil, err
	}
	if fit := service.RowsThatFit(c.Machines); fit < len(c.Machines) {
		// The place behind a row is known of the last one alone, so that fewer are asked for.
		if c, err = changes.Reconcile(ctx, r.GetCursor(), since, int32(fit)); err != nil {
			return nil, err
		}
	}
	for _, t := range terms {
		c.Machines = slices.DeleteFunc(c.Machines,
			func(m *baremetalv1.Machine) bool { return !t.Holds(m.GetMachineId(), true) })
	}
	return &baremetalv1.ListMachinesResponse{
		Machines: c.Machines, NextCursor: c.Next, SafeUpdatedSince: service.StampIfSet(c.SafeSince), More: c.More,
	}, nil
}

// reconcileFilter refuses what a reconcile cannot answer truthfully. A machine's id is the one key that no change can
// leave.
func reconcileFilter(r *baremetalv1.ListMachinesRequest, terms []filter.Term) error {
	switch {
	case r.GetOrderBy() != "":
		return query.BadOrder("a reconcile is in the order of changes")
	case r.GetPageToken() != "":
		return failure.Invalid("INVALID_PAGE_TOKEN", "page_token belongs to a walk; a reconcile goes on by cursor").
			WithField("page_token", "not with cursor or updated_since")
	case r.GetCursor() != "" && r.GetUpdatedSince() != nil:
		return validate.Fault("updated_since", "not together with cursor")
	case r.GetUpdatedSince() != nil:
		if err := validate.Since("updated_since", r.GetUpdatedSince()); err != nil {
			return err
		}
	}
	for _, t := range terms {
		if t.Key != "machine_id" {
			return failure.Invalid("FILTER_NOT_ALLOWED_WITH_CURSOR",
				"a machine whose %s changes would vanish from a reconcile in silence; filter what it returns", t.Key).
				WithField("filter", "not with cursor or updated_since")
		}
	}
	return nil
}
