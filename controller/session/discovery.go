package session

import (
	"sync"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
)

// reportsHeld is more reports than one discovery has; an agent that sends more loses them.
const reportsHeld = 64

// discovery is the one of BMCs that a session's agent is working on.
type discovery struct {
	mu      sync.Mutex
	id      string
	reports chan *fleetv1.BMCsDiscovered
}

// BeginDiscovery makes an id the discovery of this session, unless it has one. Its reports come until end is called.
func (s *Session) BeginDiscovery(id string) (reports <-chan *fleetv1.BMCsDiscovered, end func(), ok bool) {
	d := &s.discovery
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.id != "" {
		return nil, nil, false
	}
	d.id, d.reports = id, make(chan *fleetv1.BMCsDiscovered, reportsHeld)
	return d.reports, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.id, d.reports = "", nil
	}, true
}

// Discovered hands a report to the call that has begun its discovery.
func (s *Session) Discovered(report *fleetv1.BMCsDiscovered) {
	d := &s.discovery
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.id == "" || report.GetDiscoveryId() != d.id {
		return
	}
	select {
	case d.reports <- report:
	default:
	}
}

// OfSite finds a session of a site's agent that can discover BMCs; nil if there is none here.
func (r *Registry) OfSite(site string) *Session {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, s := range r.sessions {
		if s.Role == "site" && s.Site == site && s.Discovers {
			return s
		}
	}
	return nil
}
