package rollout

import (
	"context"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/query"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/call"
	rolloutstore "github.com/ingot-metal/ingot/controller/store/rollout"
	"github.com/ingot-metal/ingot/controller/validate"
)

// How long a selection is kept.
const (
	defaultTTL = time.Hour
	maxTTL     = 7 * 24 * time.Hour
)

// CreateSelection implements RolloutService.
func (s *Server) CreateSelection(
	ctx context.Context, r *baremetalv1.CreateSelectionRequest,
) (*baremetalv1.Selection, error) {
	if err := validate.RequestID(r.GetRequestId()); err != nil {
		return nil, err
	}
	out := rolloutstore.SelectionRequest{
		RequestID: r.GetRequestId(), Filter: r.GetFilter(), MachineIDs: r.GetMachineIds(), TTL: defaultTTL,
		Actor: service.Actor(ctx),
	}
	if r.GetTtl() != nil {
		out.TTL = r.GetTtl().AsDuration()
	}
	switch {
	case out.TTL < time.Second || out.TTL > maxTTL || r.GetTtl() != nil && !r.GetTtl().IsValid():
		return nil, validate.Fault("ttl", "1 second to 7 days")
	case r.GetFilter() == "" && len(r.GetMachineIds()) == 0:
		return nil, validate.Fault("filter", "required without machine_ids; a filter that matches all is machine_id=*")
	case r.GetFilter() != "" && len(r.GetMachineIds()) > 0:
		return nil, validate.Fault("machine_ids", "not together with filter")
	}
	for _, id := range r.GetMachineIds() {
		if err := validate.Key("machine_ids", id); err != nil {
			return nil, err
		}
	}
	terms, err := query.Machines.Parse(r.GetFilter())
	if err != nil {
		return nil, err
	}
	working := call.Working(ctx)
	if out.Walks, err = service.Walks(working, terms); err != nil {
		return nil, err
	}
	if err := s.AllInside(working, out.MachineIDs); err != nil {
		return nil, err
	}
	kept, err := s.stores.Rollouts.CreateSelection(ctx, out, s.Clock.Now())
	if err != nil {
		return nil, err
	}
	return kept, s.mayUseSelection(working, kept.GetSelectionId()) // a repeat may name another caller's
}

// GetSelection implements RolloutService.
func (s *Server) GetSelection(
	ctx context.Context, r *baremetalv1.GetSelectionRequest,
) (*baremetalv1.Selection, error) {
	if err := validate.Key("selection_id", r.GetSelectionId()); err != nil {
		return nil, err
	}
	kept, err := s.stores.Rollouts.GetSelection(ctx, r.GetSelectionId(), s.Clock.Now())
	if err := s.insideIfKnown(ctx, kept.GetMachineIds(), err); err != nil {
		return nil, err
	}
	return kept, nil
}
