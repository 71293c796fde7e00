package rollout

import (
	"context"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/domain/machinefilter"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/filter"
)

// SetApprovalPolicy implements RolloutService.
func (s *Server) SetApprovalPolicy(
	ctx context.Context, r *baremetalv1.SetApprovalPolicyRequest,
) (*baremetalv1.ApprovalPolicy, error) {
	if err := validate.ApprovalPolicy(r.GetPolicy()); err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	p, ok := proto.Clone(r.GetPolicy()).(*baremetalv1.ApprovalPolicy)
	if !ok {
		return nil, validate.Fault("policy", "required")
	}
	if p.Selection, err = query.Selection("policy.selection", p.GetSelection()); err != nil {
		return nil, err
	}
	var in machinefilter.Selections
	if p.GetSelection() != "" {
		terms, err := query.Machines.Parse(p.GetSelection())
		if err != nil {
			return nil, err
		}
		in = machinefilter.SelectionsOf([][]filter.Term{terms})
	}
	return s.stores.Approvals.SetApprovalPolicy(ctx, p, in, service.Actor(ctx), s.Clock.Now(), opts...)
}

// ListApprovalPolicies implements RolloutService.
func (s *Server) ListApprovalPolicies(
	ctx context.Context, r *baremetalv1.ListApprovalPoliciesRequest,
) (*baremetalv1.ListApprovalPoliciesResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.ApprovalPolicy]{
		Name: "approval-policies", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.ApprovalPolicy, error) {
			return s.stores.Approvals.ListApprovalPolicies(ctx, after.ID, limit)
		},
		Place: service.ByID((*baremetalv1.ApprovalPolicy).GetName),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListApprovalPoliciesResponse{Policies: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// DeleteApprovalPolicy implements RolloutService.
func (s *Server) DeleteApprovalPolicy(
	ctx context.Context, r *baremetalv1.DeleteApprovalPolicyRequest,
) (*baremetalv1.ApprovalPolicy, error) {
	if err := validate.Key("name", r.GetName()); err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	return s.stores.Approvals.DeleteApprovalPolicy(ctx, r.GetName(), service.Actor(ctx), s.Clock.Now(), opts...)
}
