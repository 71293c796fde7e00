package frontpage

import (
	"context"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/secret"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/validate"
)

// MAASRegions are the MAAS installations that drive machines.
type MAASRegions interface {
	SetMAASRegion(ctx context.Context, m store.MAASRegion, actor string, now time.Time) (store.MAASRegion, error)
	ListMAASRegions(ctx context.Context, afterRef string, limit int32) ([]store.MAASRegion, error)
	DeleteMAASRegion(ctx context.Context, ref, actor string, now time.Time) (store.MAASRegion, error)
}

// SetMAASRegion implements MAASService.
func (s *Server) SetMAASRegion(ctx context.Context, r *baremetalv1.SetMAASRegionRequest) (*baremetalv1.MAASRegion, error) {
	if err := validate.MAASRegion(r); err != nil {
		return nil, err
	}
	stored, err := s.store.SetMAASRegion(ctx, store.MAASRegion{
		Ref: r.GetRegionRef(), Endpoint: strings.TrimSuffix(r.GetEndpoint(), "/"),
		Sealed: s.cfg.Secrets.SealMAAS(r.GetRegionRef(), secret.MAAS(r.GetApiKey())), CA: r.GetCaPem(), UserData: r.GetUserData(),
		RetainMachines: r.GetRetainMachines(),
	}, actor(ctx), s.clock.Now())
	if err != nil {
		return nil, err
	}
	return s.maasRegion(stored), nil
}

// ListMAASRegions implements MAASService.
func (s *Server) ListMAASRegions(ctx context.Context, r *baremetalv1.ListMAASRegionsRequest) (*baremetalv1.ListMAASRegionsResponse, error) {
	size, err := validate.PageSize(r.GetPageSize())
	if err != nil {
		return nil, err
	}
	page, err := validate.ParsePage(r.GetPageToken(), "maas-regions", "")
	if err != nil {
		return nil, err
	}
	all, err := s.store.ListMAASRegions(ctx, page.ID, size+1)
	if err != nil {
		return nil, err
	}
	out := &baremetalv1.ListMAASRegionsResponse{}
	for i, m := range all {
		if i == int(size) {
			out.NextPageToken = validate.Page{ID: all[i-1].Ref}.Token("maas-regions", "")
			break
		}
		out.Regions = append(out.Regions, s.maasRegion(m))
	}
	return out, nil
}

// DeleteMAASRegion implements MAASService.
func (s *Server) DeleteMAASRegion(ctx context.Context, r *baremetalv1.DeleteMAASRegionRequest) (*baremetalv1.MAASRegion, error) {
	if err := validate.Key("region_ref", r.GetRegionRef()); err != nil {
		return nil, err
	}
	gone, err := s.store.DeleteMAASRegion(ctx, r.GetRegionRef(), actor(ctx), s.clock.Now())
	if err != nil {
		return nil, err
	}
	return s.maasRegion(gone), nil
}

// maasRegion shows all but the secret parts of the key. Where our own key is lost none of it can be shown.
func (s *Server) maasRegion(m store.MAASRegion) *baremetalv1.MAASRegion {
	out := &baremetalv1.MAASRegion{
		RegionRef: m.Ref, Endpoint: m.Endpoint, Version: m.Version, UpdatedAt: stamp(m.UpdatedAt), CaPem: m.CA, UserData: m.UserData,
		RetainMachines: m.RetainMachines,
	}
	if key, err := s.cfg.Secrets.OpenMAAS(m.Ref, m.Sealed); err == nil {
		out.ConsumerKey, _, _ = strings.Cut(string(key), ":")
	}
	return out
}
