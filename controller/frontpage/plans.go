package frontpage

import (
	"context"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/ids"
)

// GetPlan implements PlanService.
func (s *Server) GetPlan(ctx context.Context, r *baremetalv1.GetPlanRequest) (*baremetalv1.Plan, error) {
	if err := validate.Key("plan_id", r.GetPlanId()); err != nil {
		return nil, err
	}
	return s.store.GetPlan(ctx, r.GetPlanId())
}

// ListPlans implements PlanService.
func (s *Server) ListPlans(ctx context.Context, _ *baremetalv1.ListPlansRequest) (*baremetalv1.ListPlansResponse, error) {
	all, err := s.store.ListPlans(ctx)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListPlansResponse{Plans: all}, nil
}

// CreatePlan implements PlanService.
func (s *Server) CreatePlan(ctx context.Context, r *baremetalv1.CreatePlanRequest) (*baremetalv1.Plan, error) {
	if err := validate.Plan(r.GetPlan()); err != nil {
		return nil, err
	}
	p := proto.Clone(r.GetPlan()).(*baremetalv1.Plan)
	if p.GetPlanId() == "" {
		p.PlanId = ids.New(ids.Plan)
	}
	return s.store.CreatePlan(ctx, p, actor(ctx), s.clock.Now())
}
