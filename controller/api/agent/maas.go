package agent

import (
	"context"
	"errors"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/auth"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/internal/failure"
)

// GetMAASRegion gives a site agent the address and the key of the MAAS region of a machine of its site.
func (s *Server) GetMAASRegion(
	ctx context.Context, r *fleetv1.GetMAASRegionRequest,
) (*fleetv1.GetMAASRegionResponse, error) {
	who, ok := auth.AgentFrom(ctx)
	if !ok {
		return nil, failure.Unauthenticated("CERTIFICATE_REQUIRED", "a client certificate is required")
	}
	m, err := s.cfg.Store.MAASRegionFor(ctx, who.ID, r.GetMachineId(), r.GetRegionRef(), s.cfg.Clock.Now())
	if err != nil {
		return nil, err
	}
	key, err := s.cfg.Secrets.OpenMAAS(m.Ref, m.Sealed)
	if errors.Is(err, secret.ErrSealed) {
		s.cfg.Logger.Error("the key of a MAAS region cannot be opened: set it again, or bring back the key file",
			"region_ref", m.Ref)
		return nil, failure.NotFound("CREDENTIALS_NOT_FOUND", "this controller does not have the key of the MAAS region %q",
			m.Ref)
	}
	if err != nil {
		return nil, err
	}
	return &fleetv1.GetMAASRegionResponse{
		Endpoint: m.Endpoint, ApiKey: string(key), CaPem: m.CA, Version: m.Version, UserData: m.UserData,
		RetainMachines: m.RetainMachines,
	}, nil
}
