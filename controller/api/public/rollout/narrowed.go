package rollout

import (
	"context"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/call"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	"github.com/ingot-metal/ingot/internal/failure"
)

// A caller whose roles are for some machines works on several of these, and on no others. It sees the rollouts of which
// it may see each machine, and lists those among them that its own identity has created. A token's identity is its
// maker's. Rollouts that it may not see are refused as missing.

// mayUseSelection refuses a kept selection in which a machine is not the caller's. Without an id there is none.
func (s *Server) mayUseSelection(ctx context.Context, id string) error {
	within, err := query.Within(ctx)
	if err != nil || id == "" || !within.Narrow() {
		return err
	}
	kept, err := s.stores.Rollouts.GetSelection(ctx, id, s.Clock.Now())
	return s.insideIfKnown(ctx, kept.GetMachineIds(), err)
}

// hasUsed reports whether the caller's own rollout of the request has the selection: a repeat may come when the
// selection has expired.
func (s *Server) hasUsed(ctx context.Context, selectionID, requestID string) (bool, error) {
	if selectionID == "" || requestID == "" {
		return false, nil
	}
	own, err := s.stores.Rollouts.ListRollouts(ctx,
		rolloutstore.RolloutFilter{RequestID: requestID, Identity: call.Identity(ctx), Limit: 1})
	return len(own) == 1 && own[0].GetSpec().GetSelectionId() == selectionID, err
}

// insideIfKnown refuses machines outside, and what was not found, alike.
func (s *Server) insideIfKnown(ctx context.Context, machineIDs []string, err error) error {
	within, none := query.Within(ctx)
	if none != nil {
		return none
	}
	if err != nil && failure.From(err).Kind == failure.KindNotFound && within.Narrow() {
		return call.Outside(ctx)
	}
	if err != nil {
		return err
	}
	return s.AllInside(ctx, machineIDs)
}

// maySee refuses the rollouts that a caller may not see.
func (s *Server) maySee(ctx context.Context, id string) error {
	within, err := query.Within(ctx)
	if err != nil || !within.Narrow() {
		return err
	}
	identity, all, _, err := s.stores.Rollouts.WhoseRollout(ctx, id)
	if err == nil && len(all) == 0 { // all were deleted, such as by the rollout itself
		if identity == call.Identity(ctx) {
			return nil
		}
		return call.Outside(ctx)
	}
	return s.insideIfKnown(ctx, all, err)
}

// mayActOn refuses to act on rollouts that a caller may not see, or that will work on a machine outside.
func (s *Server) mayActOn(ctx context.Context, id string) error {
	if err := s.maySee(ctx, id); err != nil {
		return err
	}
	within, err := query.Within(ctx)
	if err != nil || !within.Narrow() {
		return err
	}
	_, _, left, err := s.stores.Rollouts.WhoseRollout(ctx, id)
	return s.insideIfKnown(ctx, left, err)
}

// ofCaller withholds a rollout that the caller may not see: the same request may be another's.
func (s *Server) ofCaller(ctx context.Context) func(*baremetalv1.Rollout, error) (*baremetalv1.Rollout, error) {
	return func(r *baremetalv1.Rollout, err error) (*baremetalv1.Rollout, error) {
		if err == nil && r.GetRolloutId() != "" {
			err = s.maySee(ctx, r.GetRolloutId())
		}
		if err != nil {
			return nil, err
		}
		return r, nil
	}
}

// visible returns a page of the rollouts that the caller may see.
func (s *Server) visible(
	ctx context.Context, f rolloutstore.RolloutFilter, narrow bool,
) (out []*baremetalv1.Rollout, err error) {
	for {
		page, err := s.stores.Rollouts.ListRollouts(ctx, f)
		if err != nil || !narrow {
			return page, err
		}
		for _, r := range page {
			f.BeforeID, f.BeforeTime = r.GetRolloutId(), r.GetCreatedAt().AsTime()
			switch err := s.maySee(ctx, r.GetRolloutId()); {
			case err == nil:
				out = append(out, r)
			case failure.From(err).Kind != failure.KindDenied:
				return nil, err
			}
			if len(out) == int(f.Limit) {
				return out, nil
			}
		}
		if len(page) < int(f.Limit) {
			return out, nil
		}
	}
}
