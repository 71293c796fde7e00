package public

import (
	"context"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/validate"
)

// SetBudget implements BudgetService.
func (s *Server) SetBudget(ctx context.Context, r *baremetalv1.SetBudgetRequest) (*baremetalv1.Budget, error) {
	if err := validate.Budget(r.GetBudget()); err != nil {
		return nil, err
	}
	opts, err := writeOptions(r)
	if err != nil {
		return nil, err
	}
	return s.store.SetBudget(ctx, r.GetBudget(), actor(ctx), s.clock.Now(), opts...)
}

// ListBudgets implements BudgetService.
func (s *Server) ListBudgets(
	ctx context.Context, r *baremetalv1.ListBudgetsRequest,
) (*baremetalv1.ListBudgetsResponse, error) {
	p, err := page(ctx, s, list[*baremetalv1.Budget]{
		name: "budgets", filter: "",
		read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Budget, error) {
			return s.store.ListBudgets(ctx, after.ID, limit)
		},
		place: byID((*baremetalv1.Budget).GetName),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListBudgetsResponse{Budgets: p.rows, NextPageToken: p.next, TotalSize: p.total}, nil
}

// DeleteBudget implements BudgetService.
func (s *Server) DeleteBudget(ctx context.Context, r *baremetalv1.DeleteBudgetRequest) (*baremetalv1.Budget, error) {
	if err := validate.Key("name", r.GetName()); err != nil {
		return nil, err
	}
	opts, err := writeOptions(r)
	if err != nil {
		return nil, err
	}
	return s.store.DeleteBudget(ctx, r.GetName(), actor(ctx), s.clock.Now(), opts...)
}

// ListBudgetSlots implements BudgetService.
func (s *Server) ListBudgetSlots(
	ctx context.Context, r *baremetalv1.ListBudgetSlotsRequest,
) (*baremetalv1.ListBudgetSlotsResponse, error) {
	p, err := page(ctx, s, list[*baremetalv1.BudgetSlot]{
		name: "budget-slots", filter: "",
		read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.BudgetSlot, error) {
			return s.store.HeldSlots(ctx, after.Time, after.ID, limit)
		},
		place: byTime((*baremetalv1.BudgetSlot).GetOperationId,
			func(b *baremetalv1.BudgetSlot) time.Time { return b.GetTakenAt().AsTime() }),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListBudgetSlotsResponse{Slots: p.rows, NextPageToken: p.next, TotalSize: p.total}, nil
}

// ReleaseBudgetSlot implements BudgetService.
func (s *Server) ReleaseBudgetSlot(
	ctx context.Context, r *baremetalv1.ReleaseBudgetSlotRequest,
) (*baremetalv1.BudgetSlot, error) {
	if err := validate.Key("machine_id", r.GetMachineId()); err != nil {
		return nil, err
	}
	return s.store.ReleaseSlot(ctx, r.GetMachineId(), actor(ctx), r.GetComment(), s.clock.Now())
}

// FreezeFleet implements BudgetService.
func (s *Server) FreezeFleet(ctx context.Context, r *baremetalv1.FreezeFleetRequest) (*baremetalv1.ServerInfo, error) {
	if err := s.store.Freeze(ctx, actor(ctx), r.GetComment(), s.clock.Now()); err != nil {
		return nil, err
	}
	return s.serverInfo(ctx)
}
