package storetest

import (
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
)

// SiteSays brings a report of the site's agent.
func (r *MetalRig) SiteSays(p sitestore.SiteReport) {
	r.T.Helper()
	p.Site, p.AgentID = "lab", r.Site.ID
	d, err := r.Store.Sites.SiteDocument(r.T.Context(), "lab")
	if err != nil {
		r.T.Fatal(err)
	}
	p.Applied, p.BootAddresses = d.GetRevision(), map[string]string{"seg": "10.20.0.1:8080"}
	if _, err := r.Store.Sites.RecordSite(r.T.Context(), p, Now()); err != nil {
		r.T.Fatal(err)
	}
}
