package catalog

import (
	"context"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
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
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	stored, err := s.stores.Credentials.SetMAASRegion(ctx, credentialstore.MAASRegion{
		Ref: r.GetRegionRef(), Endpoint: strings.TrimSuffix(r.GetEndpoint(), "/"),
		Sealed: s.Config.Secrets.SealMAAS(r.GetRegionRef(), secret.MAAS(r.GetApiKey())), CA: r.GetCaPem(),
		UserData:       r.GetUserData(),
		RetainMachines: r.GetRetainMachines(),
	}, service.Actor(ctx), s.Clock.Now(), opts...)
	if err != nil {
		return nil, err
	}
	return s.maasRegion(stored), nil
}

// ListMAASRegions implements MAASService.
func (s *Server) ListMAASRegions(
	ctx context.Context, r *baremetalv1.ListMAASRegionsRequest,
) (*baremetalv1.ListMAASRegionsResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.MAASRegion]{
		Name: "maas-regions", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.MAASRegion, error) {
			all, err := s.stores.Credentials.ListMAASRegions(ctx, after.ID, limit)
			return service.Each(all, err, s.maasRegion)
		},
		Place: service.ByID((*baremetalv1.MAASRegion).GetRegionRef),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListMAASRegionsResponse{Regions: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// DeleteMAASRegion implements MAASService.
func (s *Server) DeleteMAASRegion(
	ctx context.Context, r *baremetalv1.DeleteMAASRegionRequest,
) (*baremetalv1.MAASRegion, error) {
	if err := validate.Key("region_ref", r.GetRegionRef()); err != nil {
		return nil, err
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	gone, err := s.stores.Credentials.DeleteMAASRegion(ctx, r.GetRegionRef(), service.Actor(ctx), s.Clock.Now(), opts...)
	if err != nil {
		return nil, err
	}
	return s.maasRegion(gone), nil
}

// maasRegion shows all but the secret parts of the key. Where our own key is lost none of it can be shown.
func (s *Server) maasRegion(m credentialstore.MAASRegion) *baremetalv1.MAASRegion {
	out := &baremetalv1.MAASRegion{
		RegionRef: m.Ref, Endpoint: m.Endpoint, Version: m.Version, UpdatedAt: service.Stamp(m.UpdatedAt), CaPem: m.CA,
		UserData:       m.UserData,
		RetainMachines: m.RetainMachines,
	}
	if key, err := s.Config.Secrets.OpenMAAS(m.Ref, m.Sealed); err == nil {
		out.ConsumerKey, _, _ = strings.Cut(string(key), ":")
	}
	return out
}
