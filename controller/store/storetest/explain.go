package storetest

import (
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
)

// SiteSays brings a report of the site's agent.
func (r *MetalRig) SiteSays(p sitestore.SiteReport) {
	r.Helper()
	p.Site, p.AgentID = "lab", r.Site.ID
	d, err := r.Store.SiteDocument(r.Context(), "lab")
	if err != nil {
		r.Fatal(err)
	}
	p.Applied, p.BootAddresses = d.GetRevision(), map[string]string{"seg": "10.20.0.1:8080"}
	if _, err := r.Store.RecordSite(r.Context(), p, Now()); err != nil {
		r.Fatal(err)
	}
}
