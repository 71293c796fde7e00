package webhook

import (
	"context"
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/store/dbsqlc"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/controller/webhook"
	"github.com/ingot-metal/ingot/internal/ids"
)

// takeSiteEvents takes the sites that fell silent or were heard again. The machines of a site are read only where a
// filter asks for them.
func (s *Store) takeSiteEvents(
	ctx context.Context, q *dbsqlc.Queries, hooks []dbsqlc.Webhook, limit int32, out *FannedOut,
) ([]happened, error) {
	changes, err := q.TakeSiteChanges(ctx, limit)
	if err != nil {
		return nil, fmt.Errorf("take changes of sites: %w", err)
	}
	out.Events, out.More = out.Events+len(changes), out.More || len(changes) == int(limit)
	events := make([]happened, 0, len(changes))
	for _, c := range changes {
		row, err := q.SiteRow(ctx, c.Site)
		if err != nil {
			return nil, fmt.Errorf("read site %s: %w", c.Site, err)
		}
		site, err := sitestore.Message(row)
		if err != nil {
			return nil, err
		}
		var machines []*baremetalv1.Machine
		if filtersSites(hooks) {
			if machines, err = s.machinesOfSite(ctx, q, c.Site); err != nil {
				return nil, err
			}
		}
		events = append(events, happened{machines: machines, Event: webhook.Event{
			ID: ids.New(ids.Event), Type: webhook.TypeOfSite(c.Kind), Subject: c.Site, Time: c.Ts, Data: site,
		}})
	}
	return events, nil
}

// filtersSites reports whether a webhook takes the events of sites with some machines only.
func filtersSites(hooks []dbsqlc.Webhook) bool {
	for _, h := range hooks {
		if h.Filter != "" && webhook.WantsSites(h.EventTypes) {
			return true
		}
	}
	return false
}

// machinesOfSite returns the machines of a site as they are now.
func (s *Store) machinesOfSite(ctx context.Context, q *dbsqlc.Queries, site string) ([]*baremetalv1.Machine, error) {
	const page = 500
	var out []*baremetalv1.Machine
	for after := ""; ; {
		rows, err := q.MachinesOfSiteAfter(ctx, dbsqlc.MachinesOfSiteAfterParams{Site: site, AfterID: after, PageSize: page})
		if err != nil {
			return nil, fmt.Errorf("read machines of site %s: %w", site, err)
		}
		all, err := s.machines.MachineMessages(ctx, rows)
		if err != nil {
			return nil, err
		}
		out = append(out, all...)
		if len(rows) < page {
			return out, nil
		}
		after = rows[len(rows)-1].MachineID
	}
}
