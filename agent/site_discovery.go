package agent

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/agent/site/discovery"
	"github.com/ingot-metal/ingot/internal/bmcaddr"
)

const (
	// discoveryMost is how long a discovery may take, whatever the controller's limit.
	discoveryMost = 5 * time.Minute
	// reportedAtOnce keeps a report far below the size of a message.
	reportedAtOnce = 100
)

// discoveryRun is the discovery of BMCs that is under way; one is at a time.
type discoveryRun struct {
	mu   sync.Mutex
	id   string
	stop context.CancelFunc
	// stopped is the id of the last order to stop, perhaps before its discovery has begun.
	stopped string
}

// begin makes d the one that is under way, unless there is another.
func (r *discoveryRun) begin(
	ctx context.Context, d *fleetv1.DiscoverBMCs,
) (own context.Context, end func(), ok bool) {
	limit := min(time.Duration(d.GetTimeoutMs())*time.Millisecond, discoveryMost)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.id != "" || r.stopped == d.GetDiscoveryId() {
		return nil, nil, false
	}
	own, cancel := context.WithTimeout(ctx, limit)
	r.id, r.stop = d.GetDiscoveryId(), cancel
	return own, func() {
		cancel()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.id = ""
	}, true
}

func (r *discoveryRun) cancel(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped = id; r.id == id && id != "" {
		r.stop()
	}
}

// discoverBMCs looks for BMCs for a controller, and reports what it has found when it has ended.
func (l *life) discoverBMCs(ctx context.Context, d *fleetv1.DiscoverBMCs, send func(*fleetv1.BMCsDiscovered)) {
	if l.site == nil {
		return
	}
	if d.GetStop() {
		l.site.discovery.cancel(d.GetDiscoveryId())
		return
	}
	last := &fleetv1.BMCsDiscovered{DiscoveryId: d.GetDiscoveryId(), Done: true}
	defer send(last)
	addresses, err := bmcaddr.Expand(d.GetNetworks())
	if err != nil {
		last.Problem = err.Error()
		return
	}
	own, end, ok := l.site.discovery.begin(ctx, d)
	if !ok {
		last.Problem, last.Skipped = "the site's agent is looking for BMCs already", int32(len(addresses))
		return
	}
	defer end()
	l.a.cfg.Log.Info("looking for BMCs", "discovery_id", d.GetDiscoveryId(), "addresses", len(addresses))
	result := discovery.Run(own, l.site.bmcs, discoveryRequest(d, addresses))
	l.a.cfg.Log.Info("looked for BMCs", "discovery_id", d.GetDiscoveryId(), "found", len(result.BMCs), "skipped",
		result.Skipped)
	last.Problem, last.Skipped = result.Problem, int32(result.Skipped)
	for part := range slices.Chunk(result.BMCs, reportedAtOnce) {
		report := &fleetv1.BMCsDiscovered{DiscoveryId: d.GetDiscoveryId()}
		for _, f := range part {
			report.Bmcs = append(report.Bmcs, &fleetv1.FoundBMC{
				Endpoint: f.Endpoint, Protocol: string(f.Protocol), Vendor: f.Vendor, Model: f.Model, SerialNumber: f.Serial,
				SystemUuid: f.UUID, MacAddresses: f.MACs, Problem: f.Problem,
			})
		}
		send(report)
	}
}

func discoveryRequest(d *fleetv1.DiscoverBMCs, addresses []netip.Addr) discovery.Request {
	r := discovery.Request{Addresses: addresses, Port: int(d.GetPort()), Ref: d.GetCredentialsRef()}
	if c := d.GetCredentials(); c != nil {
		r.Credentials = &bmc.Credentials{
			Username: c.GetUsername(), Password: c.GetPassword(), Version: c.GetVersion(), Allowed: c.GetAllowedEndpoints(),
			PlainHTTP: c.GetAllowPlainHttp(), UnverifiedTLS: c.GetAllowUnverifiedTls(),
		}
	}
	return r
}
