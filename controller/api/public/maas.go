package public

import (
	"context"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/secret"
	credentialstore "github.com/ingot-metal/ingot/controller/store/credential"
	"github.com/ingot-metal/ingot/controller/validate"
)

// SetMAASRegion implements MAASService.
func (s *Server) SetMAASRegion(
	ctx context.Context, r *baremetalv1.SetMAASRegionRequest,
) (*baremetalv1.MAASRegion, error) {
	if err := validate.MAASRegion(r); err != nil {
		return nil, err
	}
	opts, err := writeOptions(r)
	if err != nil {
		return nil, err
	}
	stored, err := s.store.SetMAASRegion(ctx, credentialstore.MAASRegion{
		Ref: r.GetRegionRef(), Endpoint: strings.TrimSuffix(r.GetEndpoint(), "/"),
		Sealed: s.cfg.Secrets.SealMAAS(r.GetRegionRef(), secret.MAAS(r.GetApiKey())), CA: r.GetCaPem(),
		UserData:       r.GetUserData(),
		RetainMachines: r.GetRetainMachines(),
	}, actor(ctx), s.clock.Now(), opts...)
	if err != nil {
		return nil, err
	}
	return s.maasRegion(stored), nil
}

// ListMAASRegions implements MAASService.
func (s *Server) ListMAASRegions(
	ctx context.Context, r *baremetalv1.ListMAASRegionsRequest,
) (*baremetalv1.ListMAASRegionsResponse, error) {
	p, err := page(ctx, s, list[*baremetalv1.MAASRegion]{
		name: "maas-regions", filter: "",
		read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.MAASRegion, error) {
			all, err := s.store.ListMAASRegions(ctx, after.ID, limit)
			return each(all, err, s.maasRegion)
		},
		place: byID((*baremetalv1.MAASRegion).GetRegionRef),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListMAASRegionsResponse{Regions: p.rows, NextPageToken: p.next, TotalSize: p.total}, nil
}

// DeleteMAASRegion implements MAASService.
func (s *Server) DeleteMAASRegion(
	ctx context.Context, r *baremetalv1.DeleteMAASRegionRequest,
) (*baremetalv1.MAASRegion, error) {
	if err := validate.Key("region_ref", r.GetRegionRef()); err != nil {
		return nil, err
	}
	opts, err := writeOptions(r)
	if err != nil {
		return nil, err
	}
	gone, err := s.store.DeleteMAASRegion(ctx, r.GetRegionRef(), actor(ctx), s.clock.Now(), opts...)
	if err != nil {
		return nil, err
	}
	return s.maasRegion(gone), nil
}

// maasRegion shows all but the secret parts of the key. Where our own key is lost none of it can be shown.
func (s *Server) maasRegion(m credentialstore.MAASRegion) *baremetalv1.MAASRegion {
	out := &baremetalv1.MAASRegion{
		RegionRef: m.Ref, Endpoint: m.Endpoint, Version: m.Version, UpdatedAt: stamp(m.UpdatedAt), CaPem: m.CA,
		UserData:       m.UserData,
		RetainMachines: m.RetainMachines,
	}
	if key, err := s.cfg.Secrets.OpenMAAS(m.Ref, m.Sealed); err == nil {
		out.ConsumerKey, _, _ = strings.Cut(string(key), ":")
	}
	return out
}
