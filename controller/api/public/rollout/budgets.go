package rollout

import (
	"context"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/validate"
)

// SetBudget implements BudgetService.
func (s *Server) SetBudget(ctx context.Context, r *baremetalv1.SetBudgetRequest) (*baremetalv1.Budget, error) {
	if err := validate.Budget(r.GetBudget()); err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	return s.stores.Budgets.SetBudget(ctx, r.GetBudget(), service.Actor(ctx), s.Clock.Now(), opts...)
}

// ListBudgets implements BudgetService.
func (s *Server) ListBudgets(
	ctx context.Context, r *baremetalv1.ListBudgetsRequest,
) (*baremetalv1.ListBudgetsResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Budget]{
		Name: "budgets", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Budget, error) {
			return s.stores.Budgets.ListBudgets(ctx, after.ID, limit)
		},
		Place: service.ByID((*baremetalv1.Budget).GetName),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListBudgetsResponse{Budgets: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// DeleteBudget implements BudgetService.
func (s *Server) DeleteBudget(ctx context.Context, r *baremetalv1.DeleteBudgetRequest) (*baremetalv1.Budget, error) {
	if err := validate.Key("name", r.GetName()); err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	return s.stores.Budgets.DeleteBudget(ctx, r.GetName(), service.Actor(ctx), s.Clock.Now(), opts...)
}

// ListBudgetSlots implements BudgetService.
func (s *Server) ListBudgetSlots(
	ctx context.Context, r *baremetalv1.ListBudgetSlotsRequest,
) (*baremetalv1.ListBudgetSlotsResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.BudgetSlot]{
		Name: "budget-slots", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.BudgetSlot, error) {
			return s.stores.Budgets.HeldSlots(ctx, after.Time, after.ID, limit)
		},
		Place: service.ByTime((*baremetalv1.BudgetSlot).GetOperationId,
			func(b *baremetalv1.BudgetSlot) time.Time { return b.GetTakenAt().AsTime() }),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListBudgetSlotsResponse{Slots: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// ReleaseBudgetSlot implements BudgetService.
func (s *Server) ReleaseBudgetSlot(
	ctx context.Context, r *baremetalv1.ReleaseBudgetSlotRequest,
) (*baremetalv1.BudgetSlot, error) {
	if err := validate.Key("machine_id", r.GetMachineId()); err != nil {
		return nil, err
	}
	return s.stores.Budgets.ReleaseSlot(ctx, r.GetMachineId(), service.Actor(ctx), r.GetComment(), s.Clock.Now())
}

// FreezeFleet implements BudgetService.
func (s *Server) FreezeFleet(ctx context.Context, r *baremetalv1.FreezeFleetRequest) (*baremetalv1.ServerInfo, error) {
	if err := s.stores.Incarnations.Freeze(ctx, service.Actor(ctx), r.GetComment(), s.Clock.Now()); err != nil {
		return nil, err
	}
	return s.ServerInfo(ctx)
}
