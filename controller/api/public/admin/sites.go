package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/controller/validate"
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
	if i := slices.IndexFunc(segments, func(g *baremetalv1.Segment) bool { return len(g.GetRelays()) > 0 }); i >= 0 {
		return nil, failure.Unimplemented("DHCP_RELAYS_NOT_WIRED",
			"segment %s lists DHCP relays: its machines would be lent addresses of the site agent's own network",
			segments[i].GetName()).WithField(fmt.Sprintf("segments[%d].relays", i), "not built")
	}
	if t := workflow.Threshold(r.GetDriftThreshold()); t != "" && !slices.Contains(workflow.Thresholds(), t) {
		return nil, validate.Fault("drift_threshold", "any, major or none")
	}
	opts, err := service.WriteOptions(r)
	if err != nil {
		return nil, err
	}
	return s.stores.Sites.SetSite(
		ctx,
		r.GetSite(),
		segments,
		r.GetDriftThreshold(),
		service.Actor(ctx),
		s.Clock.Now(),
		opts...)
}

// GetSite implements AdminService.
func (s *Server) GetSite(ctx context.Context, r *baremetalv1.GetSiteRequest) (*baremetalv1.Site, error) {
	if err := validate.Key("site", r.GetSite()); err != nil {
		return nil, err
	}
	return s.stores.Sites.GetSite(ctx, r.GetSite())
}

// ListSites implements AdminService.
func (s *Server) ListSites(
	ctx context.Context, r *baremetalv1.ListSitesRequest,
) (*baremetalv1.ListSitesResponse, error) {
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.Site]{
		Name: "sites", Short: true,
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.Site, error) {
			return s.stores.Sites.ListSites(ctx, after.ID, limit)
		},
		Place: service.ByID((*baremetalv1.Site).GetSite),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListSitesResponse{Sites: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// ListSiteLeases implements AdminService.
func (s *Server) ListSiteLeases(
	ctx context.Context, r *baremetalv1.ListSiteLeasesRequest,
) (*baremetalv1.ListSiteLeasesResponse, error) {
	if err := validate.Key("site", r.GetSite()); err != nil {
		return nil, err
	}
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.SiteLease]{
		Name: "leases", Short: true, Filter: r.GetSite(),
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.SiteLease, error) {
			segment, mac, err := macPosition(after.ID)
			if err != nil {
				return nil, err
			}
			return s.stores.Sites.ListSiteLeases(ctx, sitestore.LeaseFilter{Site: r.GetSite(), AfterSegment: segment,
				AfterMAC: mac, Limit: limit})
		},
		Place: service.ByID(func(l *baremetalv1.SiteLease) string { return l.GetSegment() + " " + l.GetMacAddress() }),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListSiteLeasesResponse{Leases: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}

// macPosition reads "segment mac" or "site mac"; empty at the start.
func macPosition(id string) (within, mac string, err error) {
	if id == "" {
		return "", "", nil
	}
	within, mac, _ = strings.Cut(id, " ")
	mac, ok := validate.MAC(mac)
	if !ok {
		return "", "", failure.Invalid("INVALID_PAGE_TOKEN", "page_token: malformed").WithField("page_token", "malformed")
	}
	return within, mac, nil
}

// ListDiscovered implements AdminService.
func (s *Server) ListDiscovered(
	ctx context.Context, r *baremetalv1.ListDiscoveredRequest,
) (*baremetalv1.ListDiscoveredResponse, error) {
	if err := validate.OptionalKey("site", r.GetSite()); err != nil {
		return nil, err
	}
	p, err := service.Page(ctx, s.Base, service.List[*baremetalv1.DiscoveredMachine]{
		Name: "discovered", Short: true, Filter: r.GetSite(),
		Read: func(ctx context.Context, after validate.Page, limit int32) ([]*baremetalv1.DiscoveredMachine, error) {
			site, mac, err := macPosition(after.ID)
			if err != nil {
				return nil, err
			}
			return s.stores.Sites.ListDiscovered(ctx, sitestore.DiscoveredFilter{Site: r.GetSite(), AfterSite: site,
				AfterMAC: mac, Limit: limit})
		},
		Place: service.ByID(func(m *baremetalv1.DiscoveredMachine) string { return m.GetSite() + " " + m.GetMacAddress() }),
	}, r)
	if err != nil {
		return nil, err
	}
	return &baremetalv1.ListDiscoveredResponse{Machines: p.Rows, NextPageToken: p.Next, TotalSize: p.Total}, nil
}
