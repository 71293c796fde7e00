package site

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/store/convert"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	"github.com/ingot-metal/ingot/controller/store/history"
	"github.com/ingot-metal/ingot/controller/store/pgtx"
	"github.com/ingot-metal/ingot/internal/failure"
)

// SetSite replaces the segments of a site, and makes the site where there is none. The same segments again change
// nothing; others make a new revision.
//
// A threshold of drift that is empty stays as it is.
func (s *Store) SetSite(
	ctx context.Context, site string, segments []*baremetalv1.Segment, threshold, actor string, now time.Time,
	opts ...pgtx.WriteOption,
) (*baremetalv1.Site, error) {
	raw, err := convert.ToJSONList(segments)
	if err != nil {
		return nil, err
	}
	err = s.db.InTx(ctx, func(_ pgx.Tx, q *dbsqlc.Queries) error {
		if err := q.InsertSite(ctx, site); err != nil {
			return fmt.Errorf("insert site: %w", err)
		}
		row, err := q.LockSite(ctx, site)
		if err != nil {
			return fmt.Errorf("lock site: %w", err)
		}
		if err := pgtx.ConditionsOf(opts).Check("site "+site, pgtx.ResourceExists,
			pgtx.Stored{Exists: true, Version: row.Version}); err != nil {
			return err
		}
		if threshold != "" && threshold != row.DriftThreshold {
			if err := q.SetDriftThreshold(ctx, dbsqlc.SetDriftThresholdParams{Site: site,
				DriftThreshold: threshold}); err != nil {
				return fmt.Errorf("set threshold: %w", err)
			}
			entry := history.AuditEntry{Actor: actor, Verb: "SET_SITE", Target: site,
				Data: map[string]string{"drift_threshold": threshold}}
			if err := history.Audit(ctx, q, entry, now); err != nil {
				return err
			}
		}
		have, err := convert.FromJSONList[baremetalv1.Segment](row.Segments)
		if err != nil {
			return err
		}
		if slices.EqualFunc(have, segments, func(a, b *baremetalv1.Segment) bool { return proto.Equal(a, b) }) {
			return nil
		}
		if err := q.SetSegments(ctx, dbsqlc.SetSegmentsParams{Site: site, Segments: raw}); err != nil {
			return fmt.Errorf("set segments: %w", err)
		}
		return history.Audit(ctx, q, history.AuditEntry{Actor: actor, Verb: "SET_SITE", Target: site,
			Data: map[string]string{"segments": string(raw)}}, now)
	})
	if err != nil {
		return nil, fmt.Errorf("set site: %w", err)
	}
	return s.GetSite(ctx, site)
}

// GetSite reads one site with what its agent has noticed.
func (s *Store) GetSite(ctx context.Context, site string) (*baremetalv1.Site, error) {
	row, err := s.db.Q.GetSite(ctx, site)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, failure.NotFound("SITE_NOT_FOUND", "there is no site %q", site).WithField("site", "unknown")
	}
	if err != nil {
		return nil, fmt.Errorf("read site: %w", err)
	}
	return Message(row)
}

// ListSites reads sites by name, from a name on.
func (s *Store) ListSites(ctx context.Context, after string, limit int32) ([]*baremetalv1.Site, error) {
	rows, err := s.db.Lists(ctx).ListSites(ctx, dbsqlc.ListSitesParams{AfterSite: after, PageSize: limit})
	if err != nil {
		return nil, fmt.Errorf("list sites: %w", err)
	}
	out := make([]*baremetalv1.Site, 0, len(rows))
	for _, r := range rows {
		m, err := Message(r)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// Message is a site as clients see it: it lays what the site's agent has noticed over the segments.
func Message(r dbsqlc.Site) (*baremetalv1.Site, error) {
	segments, err := convert.FromJSONList[baremetalv1.Segment](r.Segments)
	if err != nil {
		return nil, err
	}
	seen, err := convert.FromJSONList[fleetv1.SegmentObservation](r.Observations)
	if err != nil {
		return nil, err
	}
	for _, o := range seen {
		i := slices.IndexFunc(segments, func(g *baremetalv1.Segment) bool { return g.GetName() == o.GetSegment() })
		if i >= 0 {
			g := segments[i]
			g.State, g.ForeignDhcpServer, g.PoolSize, g.PoolUsed = o.GetState(), o.GetForeignDhcpServer(), o.GetPoolSize(),
				o.GetPoolUsed()
		}
	}
	return &baremetalv1.Site{
		Site: r.Site, Segments: segments, Revision: r.Revision, AppliedRevision: r.AppliedRevision,
		AppliedAt: convert.TimestampPtr(r.AppliedAt), SilentSince: convert.TimestampPtr(r.SilentSince),
		AgentId: pgtx.StrVal(r.AgentID), IdentityLevel: r.IdentityLevel, DriftThreshold: r.DriftThreshold,
		Version: r.Version,
	}, nil
}

// LeaseFilter is the beginning of a page of leases.
type LeaseFilter struct {
	Site string
	// AfterSegment and AfterMAC are those of the last lease of the page before; empty at the start.
	AfterSegment, AfterMAC string
	Limit                  int32
}

// ListSiteLeases reads the leases of a site by segment and MAC address, as its agent has reported them.
func (s *Store) ListSiteLeases(ctx context.Context, f LeaseFilter) ([]*baremetalv1.SiteLease, error) {
	if _, err := s.GetSite(ctx, f.Site); err != nil {
		return nil, err
	}
	rows, err := s.db.Lists(ctx).ListSiteLeases(ctx, dbsqlc.ListSiteLeasesParams{
		Site: f.Site, AfterSegment: f.AfterSegment, AfterMac: f.AfterMAC, PageSize: f.Limit,
	})
	if err != nil {
		return nil, fmt.Errorf("list leases: %w", err)
	}
	out := make([]*baremetalv1.SiteLease, 0, len(rows))
	for _, r := range rows {
		out = append(out, &baremetalv1.SiteLease{
			Site: r.Site, Segment: r.Segment, MacAddress: r.Mac, Address: r.Address, ExpiresAt: convert.Timestamp(r.ExpiresAt),
			MachineId: r.MachineID, Hostname: r.Hostname,
		})
	}
	return out, nil
}

// DiscoveredFilter narrows the list of discovered machines, and has the place behind which it begins.
type DiscoveredFilter struct {
	Site                string
	AfterSite, AfterMAC string
	Limit               int32
}

// ListDiscovered reads the machines that asked to boot and are in no inventory, of one site or of all, by site and MAC
// address.
func (s *Store) ListDiscovered(ctx context.Context, f DiscoveredFilter) ([]*baremetalv1.DiscoveredMachine, error) {
	if f.Site != "" {
		if _, err := s.GetSite(ctx, f.Site); err != nil {
			return nil, err
		}
	}
	rows, err := s.db.Lists(ctx).ListDiscovered(ctx, dbsqlc.ListDiscoveredParams{
		Site: f.Site, AfterSite: f.AfterSite, AfterMac: f.AfterMAC, PageSize: f.Limit,
	})
	if err != nil {
		return nil, fmt.Errorf("list discovered machines: %w", err)
	}
	out := make([]*baremetalv1.DiscoveredMachine, 0, len(rows))
	for _, r := range rows {
		out = append(out, &baremetalv1.DiscoveredMachine{
			Site: r.Site, Segment: r.Segment, MacAddress: r.Mac, Address: r.Address, Arch: r.Arch, Vendor: r.Vendor,
			FirstSeenAt: convert.Timestamp(r.FirstSeenAt), LastSeenAt: convert.Timestamp(r.LastSeenAt),
		})
	}
	return out, nil
}
