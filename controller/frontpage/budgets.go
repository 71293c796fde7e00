package frontpage

import (
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/validate"
)

// SetBudget implements BudgetService.
func (s *Server) SetBudget(ctx context.Context, r *baremetalv1.SetBudgetRequest) (*baremetalv1.Budget, error) {
	if err := validate.Budget(r.GetBudget()); err != nil {
		return nil, err
	}
	return s.store.SetBudget(ctx, r.GetBudget(), actor(ctx), s.clock.Now())
}

// ListBudgets implements BudgetService.
func (s *Server) ListBudgets(ctx context.Context, _ *baremetalv1.ListBudgetsRequest) (*baremetalv1.ListBudgetsResponse, error) {
	all, err := s.store.ListBudgets(ctx)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListBudgetsResponse{Budgets: all}, nil
}

// DeleteBudget implements BudgetService.
func (s *Server) DeleteBudget(ctx context.Context, r *baremetalv1.DeleteBudgetRequest) (*baremetalv1.Budget, error) {
	if err := validate.Key("name", r.GetName()); err != nil {
		return nil, err
	}
	return s.store.DeleteBudget(ctx, r.GetName(), actor(ctx), s.clock.Now())
}

// ListBudgetSlots implements BudgetService.
func (s *Server) ListBudgetSlots(ctx context.Context, r *baremetalv1.ListBudgetSlotsRequest) (*baremetalv1.ListBudgetSlotsResponse, error) {
	size, err := validate.PageSize(r.GetPageSize())
	if err != nil {
		return nil, err
	}
	page, err := validate.ParsePage(r.GetPageToken(), "budget-slots", "")
	if err != nil {
		return nil, err
	}
	all, err := s.store.HeldSlots(ctx, page.Time, page.ID, size+1)
	if err != nil {
		return nil, err
	}
	out := &baremetalv1.ListBudgetSlotsResponse{Slots: all}
	if len(all) > int(size) {
		out.Slots = all[:size]
		last := all[size-1]
		out.NextPageToken = validate.Page{ID: last.GetOperationId(), Time: last.GetTakenAt().AsTime()}.Token("budget-slots", "")
	}
	return out, nil
}

// ReleaseBudgetSlot implements BudgetService.
func (s *Server) ReleaseBudgetSlot(ctx context.Context, r *baremetalv1.ReleaseBudgetSlotRequest) (*baremetalv1.BudgetSlot, error) {
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
	return s.GetServerInfo(ctx, &baremetalv1.GetServerInfoRequest{})
}
