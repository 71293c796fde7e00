package catalog

import (
	"context"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	catalogstore "github.com/ingot-metal/ingot/controller/store/catalog"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/ids"
)

// GetPlan implements PlanService.
func (s *Server) GetPlan(ctx context.Context, r *baremetalv1.GetPlanRequest) (*baremetalv1.Plan, error) {
	if err := validate.Key("plan_id", r.GetPlanId()); err != nil {
		return nil, err
	}
	return s.stores.Catalog.GetPlan(ctx, r.GetPlanId())
}

// ListPlans implements PlanService.
func (s *Server) ListPlans(
	ctx context.Context, r *baremetalv1.ListPlansRequest,
) (*baremetalv1.ListPlansResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Plan]{
		Name: "plans", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Plan, error) {
			return s.stores.Catalog.ListPlans(ctx, catalogstore.PlanPosition{BuiltIn: after.Part == builtInPart, ID: after.ID},
				limit)
		},
		Place: planPlace,
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListPlansResponse{Plans: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
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
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	return s.stores.Catalog.DeletePlan(ctx, r.GetPlanId(), service.Actor(ctx), s.Clock.Now(), opts...)
}

// CreatePlan implements PlanService.
func (s *Server) CreatePlan(ctx context.Context, r *baremetalv1.CreatePlanRequest) (*baremetalv1.Plan, error) {
	if err := validate.Plan(r.GetPlan()); err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	p := proto.Clone(r.GetPlan()).(*baremetalv1.Plan)
	if p.GetPlanId() == "" {
		p.PlanId = ids.New(ids.Plan)
	}
	for _, step := range p.GetSteps() {
		err := kind.MapSecretArgs(step.GetSsh(), func(arg string) (string, error) {
			return s.Config.Secrets.SealArgument(arg), nil
		})
		if err != nil {
			return nil, err
		}
	}
	return s.stores.Catalog.CreatePlan(ctx, p, service.Actor(ctx), s.Clock.Now(), opts...)
}
