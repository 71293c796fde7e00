package rollout

import (
	"context"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/rollout"
)

// ValidateRollout asks what CreateRollout asks, and stores nothing. Machines are judged as in maintenance. It returns
// the rollout that would begin, without an id; one that the same request has begun before is returned as it is.
func (s *Store) ValidateRollout(
	ctx context.Context, r RolloutRequest, now time.Time,
) (*baremetalv1.Rollout, error) {
	p, err := s.validated(ctx, r, now)
	if err != nil {
		return nil, fmt.Errorf("validate rollout: %w", err)
	}
	return p, nil
}

func (s *Store) validated(ctx context.Context, r RolloutRequest, now time.Time) (*baremetalv1.Rollout, error) {
	if r.Digest != "" {
		if known, err := s.sameRollout(ctx, s.db.Q, r); known != nil || err != nil {
			return known, err
		}
		current, err := s.foresee(ctx, r, now)
		if err != nil {
			return nil, err
		}
		if err := rollout.Previewed(current.GetDigest(), r.Digest); err != nil {
			return nil, err
		}
	}
	r.validates = true
	p, err := s.foresee(ctx, r, now)
	if err != nil {
		return nil, err
	}
	if err := rollout.NotEmpty(len(p.GetWaves()), len(p.GetMachines())); err != nil {
		return nil, err
	}
	all := len(p.GetMachines())
	pending := 0
	for _, w := range p.GetWaves() {
		pending += int(w.GetTally().GetMachines())
	}
	state := baremetalv1.Rollout_RUNNING
	if p.GetSpec().GetRequireApproval() || len(p.GetApprovalPolicies()) > 0 {
		state = baremetalv1.Rollout_AWAITING_APPROVAL
	}
	return &baremetalv1.Rollout{
		State: state, ApprovalPolicies: p.GetApprovalPolicies(),
		RequestId: r.RequestID, Spec: p.GetSpec(), Digest: r.Digest, Waves: p.GetWaves(), Destructive: p.GetDestructive(),
		Tally: tallyMessage(rollout.Tally{Machines: all, Pending: pending, Skipped: all - pending}),
	}, nil
}
