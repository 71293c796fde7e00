package catalog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/catalog"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

// StepDefaults are the server's limits by step kind.
type StepDefaults = plan.Defaults

func orBuiltIn(d StepDefaults) StepDefaults { return plan.BuiltInDefaults().Merge(d) }

// SeedPlans stores the built-in plans. A built-in plan that a newer version changes is replaced only while no run has
// used it. A used one stays unchanged.
func (s *Store) SeedPlans(ctx context.Context, now time.Time) error {
	for _, p := range plan.BuiltIn() {
		if err := savePlan(ctx, s.db.Q, p, true, now); err != nil {
			return fmt.Errorf("store built-in plan %s: %w", p.GetPlanId(), err)
		}
	}
	return nil
}

func savePlan(ctx context.Context, q *dbsqlc.Queries, p *baremetalv1.Plan, builtIn bool, now time.Time) error {
	digest, err := plan.Digest(p)
	if err != nil {
		return err
	}
	body, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	if err != nil {
		return fmt.Errorf("serialize plan: %w", err)
	}
	_, err = q.UpsertPlan(ctx, dbsqlc.UpsertPlanParams{
		PlanID: p.GetPlanId(), DisplayName: p.GetDisplayName(), Body: body, Digest: digest, BuiltIn: builtIn, CreatedAt: now,
	})
	return err
}

// CreatePlan stores a plan. The same content again returns it; other content under a used or built-in id is refused.
func (s *Store) CreatePlan(
	ctx context.Context, p *baremetalv1.Plan, actor string, now time.Time, opts ...pgtx.WriteOption,
) (*baremetalv1.Plan, error) {
	p = proto.Clone(p).(*baremetalv1.Plan)
	p.BuiltIn, p.Used, p.CreatedAt, p.Version = false, false, nil, 0
	digest, err := plan.Digest(p)
	if err != nil {
		return nil, err
	}
	var row dbsqlc.Plan
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		have, err := q.LockPlan(ctx, p.GetPlanId())
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("lock plan: %w", err)
		}
		exists := err == nil
		if err := pgtx.ConditionsOf(opts).Check("plan "+p.GetPlanId(), "PLAN_EXISTS",
			pgtx.Stored{Exists: exists, Version: have.Version}); err != nil {
			return err
		}
		if err := savePlan(ctx, q, p, false, now); err != nil {
			return fmt.Errorf("store plan: %w", err)
		}
		if row, err = q.GetPlan(ctx, p.GetPlanId()); err != nil {
			return fmt.Errorf("read plan: %w", err)
		}
		switch {
		case !bytes.Equal(row.Digest, digest):
			return failure.AlreadyExists("PLAN_IMMUTABLE",
				"plan %s is built in or has been used by a run; store the change under a new plan_id", p.GetPlanId()).
				WithField("plan.plan_id", "taken by another plan")
		case exists && row.Version == have.Version:
			return nil
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "CREATE_PLAN", Target: p.GetPlanId(),
			Data: planData(row)}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("create plan: %w", err)
	}
	return planFromRow(row)
}

// planData is a plan as the audit log has it.
func planData(p dbsqlc.Plan) map[string]string {
	return map[string]string{"digest": fmt.Sprintf("%x", p.Digest), "version": fmt.Sprint(p.Version)}
}

// DeletePlan removes a plan that no run has used and nothing names.
func (s *Store) DeletePlan(
	ctx context.Context, id, actor string, now time.Time, opts ...pgtx.WriteOption,
) (*baremetalv1.Plan, error) {
	var row dbsqlc.Plan
	err := s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		var err error
		if row, err = q.LockPlan(ctx, id); errors.Is(err, pgx.ErrNoRows) {
			return planNotFound(id)
		}
		if err != nil {
			return fmt.Errorf("lock plan: %w", err)
		}
		if err := pgtx.ConditionsOf(opts).Check("plan "+id, "PLAN_EXISTS",
			pgtx.Stored{Exists: true, Version: row.Version}); err != nil {
			return err
		}
		use := catalog.PlanUse{BuiltIn: row.BuiltIn, Used: row.UsedAt != nil}
		if use.NamedBy, err = q.NeederOfPlan(ctx, id); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return fmt.Errorf("look for what names the plan: %w", err)
		}
		if err := catalog.MayDeletePlan(id, use); err != nil {
			return err
		}
		if err := q.DeletePlan(ctx, id); err != nil {
			return fmt.Errorf("delete plan: %w", err)
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "DELETE_PLAN", Target: id, Data: planData(row)},
			now)
	})
	if err != nil {
		return nil, fmt.Errorf("delete plan: %w", err)
	}
	return planFromRow(row)
}

// GetPlan reads a plan.
func (s *Store) GetPlan(ctx context.Context, id string) (*baremetalv1.Plan, error) {
	return GetPlan(ctx, s.db.Q, id)
}

// UsedPlan returns a plan, which cannot be deleted before the transaction of q ends. One that is known to have been
// used is not read again: it never changes. Callers must not change what it returns.
func (s *Store) UsedPlan(ctx context.Context, q *dbsqlc.Queries, id string) (*baremetalv1.Plan, error) {
	if p, ok := s.plans.Load(id); ok {
		return p.(*baremetalv1.Plan), nil
	}
	row, err := q.HoldPlan(ctx, id)
	p, err := foundPlan(row, id, err)
	if err == nil && p.GetUsed() {
		s.plans.Store(id, p)
	}
	return p, err
}

func GetPlan(ctx context.Context, q *dbsqlc.Queries, id string) (*baremetalv1.Plan, error) {
	row, err := q.GetPlan(ctx, id)
	return foundPlan(row, id, err)
}

func foundPlan(row dbsqlc.Plan, id string, err error) (*baremetalv1.Plan, error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, planNotFound(id)
	}
	if err != nil {
		return nil, fmt.Errorf("read plan: %w", err)
	}
	return planFromRow(row)
}

func planNotFound(id string) error {
	return failure.NotFound("PLAN_NOT_FOUND", "there is no plan %q; ingot plans lists them", id).WithField("plan_id",
		"unknown")
}

// PlanPosition is a place in the list of plans: behind the plan that it names.
type PlanPosition struct {
	BuiltIn bool
	ID      string
}

// ListPlans reads plans behind a place, built-in ones first, then by name. An empty place is the beginning.
func (s *Store) ListPlans(ctx context.Context, after PlanPosition, limit int32) ([]*baremetalv1.Plan, error) {
	rows, err := s.db.Lists(ctx).ListPlans(ctx, dbsqlc.ListPlansParams{
		HasPosition: after.ID != "", AfterBuiltIn: after.BuiltIn, AfterID: after.ID, PageSize: limit,
	})
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
	p.BuiltIn, p.Used, p.CreatedAt, p.Version = r.BuiltIn, r.UsedAt != nil, convert.Timestamp(r.CreatedAt), r.Version
	return p, nil
}

// SameSteps reports whether two plans have the same steps. Without a second plan they have not.
func SameSteps(ctx context.Context, q *dbsqlc.Queries, a, b string) (bool, error) {
	if a == b || b == "" {
		return a == b, nil
	}
	one, err := GetPlan(ctx, q, a)
	if err != nil {
		return false, err
	}
	other, err := GetPlan(ctx, q, b)
	if err != nil {
		return false, err
	}
	return slices.EqualFunc(one.GetSteps(), other.GetSteps(),
		func(x, y *baremetalv1.Step) bool { return proto.Equal(x, y) }), nil
}
