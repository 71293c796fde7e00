package frontpage

import (
	"context"
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/controller/workflow"
	"github.com/ingot-metal/ingot/internal/failure"
)

// SetSite implements AdminService.
func (s *Server) SetSite(ctx context.Context, r *baremetalv1.SetSiteRequest) (*baremetalv1.Site, error) {
	if r.GetSite() == "" {
		return nil, validate.Fault("site", "required")
	}
	if err := validate.Name("site", r.GetSite()); err != nil {
		return nil, err
	}
	segments, err := validate.Segments("segments", r.GetSegments())
	if err != nil {
		return nil, err
	}
	if t := workflow.Threshold(r.GetDriftThreshold()); t != "" && !slices.Contains(workflow.Thresholds(), t) {
		return nil, validate.Fault("drift_threshold", "any, major or none")
	}
	return s.store.SetSite(ctx, r.GetSite(), segments, r.GetDriftThreshold(), actor(ctx), s.clock.Now())
}

// GetSite implements AdminService.
func (s *Server) GetSite(ctx context.Context, r *baremetalv1.GetSiteRequest) (*baremetalv1.Site, error) {
	if err := validate.Key("site", r.GetSite()); err != nil {
		return nil, err
	}
	return s.store.GetSite(ctx, r.GetSite())
}

// ListSites implements AdminService.
func (s *Server) ListSites(ctx context.Context, _ *baremetalv1.ListSitesRequest) (*baremetalv1.ListSitesResponse, error) {
	all, err := s.store.ListSites(ctx)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListSitesResponse{Sites: all}, nil
}

// ListSiteLeases implements AdminService.
func (s *Server) ListSiteLeases(ctx context.Context, r *baremetalv1.ListSiteLeasesRequest) (*baremetalv1.ListSiteLeasesResponse, error) {
	if err := validate.Key("site", r.GetSite()); err != nil {
		return nil, err
	}
	size, err := validate.PageSize(r.GetPageSize())
	if err != nil {
		return nil, err
	}
	page, err := validate.ParsePage(r.GetPageToken(), "leases", r.GetSite())
	if err != nil {
		return nil, err
	}
	f := store.LeaseFilter{Site: r.GetSite(), Limit: size + 1}
	if f.AfterSegment, f.AfterMAC, err = leasePosition(page.ID); err != nil {
		return nil, err
	}
	all, err := s.store.ListSiteLeases(ctx, f)
	if err != nil {
		return nil, err
	}
	out := &baremetalv1.ListSiteLeasesResponse{Leases: all}
	if len(all) > int(size) {
		out.Leases = all[:size]
		last := all[size-1]
		out.NextPageToken = validate.Page{ID: last.GetSegment() + " " + last.GetMacAddress()}.Token("leases", r.GetSite())
	}
	return out, nil
}

// leasePosition reads "segment mac"; empty at the start.
func leasePosition(id string) (segment, mac string, err error) {
	if id == "" {
		return "", "", nil
	}
	segment, mac, _ = strings.Cut(id, " ")
	mac, ok := validate.MAC(mac)
	if !ok {
		return "", "", failure.Invalid("INVALID_PAGE_TOKEN", "page_token: malformed").WithField("page_token", "malformed")
	}
	return segment, mac, nil
}

// ListDiscovered implements AdminService.
func (s *Server) ListDiscovered(ctx context.Context, r *baremetalv1.ListDiscoveredRequest) (*baremetalv1.ListDiscoveredResponse, error) {
	if err := validate.OptionalKey("site", r.GetSite()); err != nil {
		return nil, err
	}
	all, err := s.store.ListDiscovered(ctx, r.GetSite())
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListDiscoveredResponse{Machines: all}, nil
}
