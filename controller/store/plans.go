package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/plan"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/internal/failure"
)

// StepDefaults are the server's limits by step kind.
type StepDefaults = plan.Defaults

func orBuiltIn(d StepDefaults) StepDefaults { return plan.BuiltInDefaults().Merge(d) }

// SeedPlans stores the built-in plans. A built-in plan that a newer version changes is replaced only while no run has
// used it; a used one stays as the runs knew it.
func (s *Store) SeedPlans(ctx context.Context, now time.Time) error {
	for _, p := range plan.BuiltIn() {
		if _, err := savePlan(ctx, s.q, p, true, now); err != nil {
			return fmt.Errorf("store built-in plan %s: %w", p.GetPlanId(), err)
		}
	}
	return nil
}

func savePlan(ctx context.Context, q *dbsqlc.Queries, p *baremetalv1.Plan, builtIn bool, now time.Time) (int64, error) {
	digest, err := plan.Digest(p)
	if err != nil {
		return 0, err
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	if err != nil {
		return 0, fmt.Errorf("serialize plan: %w", err)
	}
	return q.UpsertPlan(ctx, dbsqlc.UpsertPlanParams{
		PlanID: p.GetPlanId(), DisplayName: p.GetDisplayName(), Body: body, Digest: digest, BuiltIn: builtIn, CreatedAt: now,
	})
}

// CreatePlan stores a plan. The same content again returns it; other content under a used or built-in id is refused.
func (s *Store) CreatePlan(ctx context.Context, p *baremetalv1.Plan, actor string, now time.Time) (*baremetalv1.Plan, error) {
	p = proto.Clone(p).(*baremetalv1.Plan)
	p.BuiltIn, p.Used, p.CreatedAt = false, false, nil
	var changed int64
	err := s.inTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if changed, err = savePlan(ctx, q, p, false, now); err != nil || changed == 0 {
			return err
		}
		return audit(ctx, q, auditEntry{actor: actor, verb: "CREATE_PLAN", target: p.GetPlanId()}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("store plan: %w", err)
	}
	row, err := s.q.GetPlan(ctx, p.GetPlanId())
	if err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	digest, err := plan.Digest(p)
	if err != nil {
		return nil, err
	}
	if changed == 0 && !bytes.Equal(row.Digest, digest) {
		return nil, failure.AlreadyExists("PLAN_IMMUTABLE",
			"plan %s is built in or has been used by a run; store the change under a new plan_id", p.GetPlanId()).
			WithField("plan.plan_id", "taken by another plan")
	}
	return planFromRow(row)
}

// GetPlan reads a plan.
func (s *Store) GetPlan(ctx context.Context, id string) (*baremetalv1.Plan, error) {
	return getPlan(ctx, s.q, id)
}

// usedPlan is getPlan, but for what is known already: a plan that a run has used never changes. Nobody may change what it returns.
func (s *Store) usedPlan(ctx context.Context, q *dbsqlc.Queries, id string) (*baremetalv1.Plan, error) {
	if p, ok := s.plans.Load(id); ok {
		return p.(*baremetalv1.Plan), nil
	}
	p, err := getPlan(ctx, q, id)
	if err == nil && p.GetUsed() {
		s.plans.Store(id, p)
	}
	return p, err
}

func getPlan(ctx context.Context, q *dbsqlc.Queries, id string) (*baremetalv1.Plan, error) {
	row, err := q.GetPlan(ctx, id)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, failure.NotFound("PLAN_NOT_FOUND", "there is no plan %q", id).WithField("plan_id", "unknown")
	}
	if err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	return planFromRow(row)
}

// ListPlans reads all plans, built-in ones first.
func (s *Store) ListPlans(ctx context.Context) ([]*baremetalv1.Plan, error) {
	rows, err := s.q.ListPlans(ctx)
	if err != nil {
		return nil, fmt.Errorf("list plans: %w", err)
	}
	out := make([]*baremetalv1.Plan, 0, len(rows))
	for _, r := range rows {
		p, err := planFromRow(r)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func planFromRow(r dbsqlc.Plan) (*baremetalv1.Plan, error) {
	p := &baremetalv1.Plan{}
	if err := proto.Unmarshal(r.Body, p); err != nil {
		return nil, fmt.Errorf("parse stored plan %s: %w", r.PlanID, err)
	}
	p.BuiltIn, p.Used, p.CreatedAt = r.BuiltIn, r.UsedAt != nil, timestamppb.New(r.CreatedAt)
	return p, nil
}
