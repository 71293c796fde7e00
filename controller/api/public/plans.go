package public

import (
	"context"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
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
func (s *Server) ListPlans(
	ctx context.Context, r *baremetalv1.ListPlansRequest,
) (*baremetalv1.ListPlansResponse, error) {
	p, err := page(ctx, s, list[*baremetalv1.Plan]{
		name: "plans", filter: "",
		read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Plan, error) {
			return s.store.ListPlans(ctx, catalogstore.PlanPosition{BuiltIn: after.Part == builtInPart, ID: after.ID}, limit)
		},
		place: planPlace,
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListPlansResponse{Plans: p.rows, NextPageToken: p.next, TotalSize: p.total}, nil
}

// builtInPart is the part of the list of plans that has the built-in ones.
const builtInPart = 1

func planPlace(p *baremetalv1.Plan) validate.Page {
	at := validate.Page{ID: p.GetPlanId()}
	if p.GetBuiltIn() {
		at.Part = builtInPart
	}
	return at
}

// DeletePlan implements PlanService.
func (s *Server) DeletePlan(ctx context.Context, r *baremetalv1.DeletePlanRequest) (*baremetalv1.Plan, error) {
	if err := validate.Key("plan_id", r.GetPlanId()); err != nil {
		return nil, err
	}
	opts, err := writeOptions(r)
	if err != nil {
		return nil, err
	}
	return s.store.DeletePlan(ctx, r.GetPlanId(), actor(ctx), s.clock.Now(), opts...)
}

// CreatePlan implements PlanService.
func (s *Server) CreatePlan(ctx context.Context, r *baremetalv1.CreatePlanRequest) (*baremetalv1.Plan, error) {
	if err := validate.Plan(r.GetPlan()); err != nil {
		return nil, err
	}
	opts, err := writeOptions(r)
	if err != nil {
		return nil, err
	}
	p := proto.Clone(r.GetPlan()).(*baremetalv1.Plan)
	if p.GetPlanId() == "" {
		p.PlanId = ids.New(ids.Plan)
	}
	return s.store.CreatePlan(ctx, p, actor(ctx), s.clock.Now(), opts...)
}
