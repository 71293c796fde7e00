package lease

import (
	"net/netip"
	"time"

	"github.com/ingot-metal/ingot/agent/site/segment"
)

// Offer finds an address for a client that looks for one, and keeps it for the client for a while. fixed is the one of
// its assignment, want the one that it asks for; either may be the zero value. It is false when there is no address.
func (p *Pool) Offer(mac segment.MAC, fixed, want netip.Addr, now time.Time) (netip.Addr, bool) {
	a, ok := p.pick(mac, fixed, want, now)
	if !ok {
		return netip.Addr{}, false
	}
	e := p.entry(a)
	if p.offers[mac] != e {
		p.forgetOffer(mac)
	}
	p.forgetOffer(e.offerTo) // it has lapsed, or is this client's
	p.offers[mac] = e
	e.offerTo, e.offerEnds = mac, now.Add(p.cfg.OfferTime)
	p.rest(e)
	return a, true
}

func (p *Pool) pick(mac segment.MAC, fixed, want netip.Addr, now time.Time) (netip.Addr, bool) {
	if fixed.IsValid() && p.usable(fixed, mac, now) {
		return fixed, true
	}
	for _, a := range [...]netip.Addr{p.offered(mac), p.last(mac), want} {
		if p.inPool(a) && p.usable(a, mac, now) {
			return a, true
		}
	}
	if a, ok := p.fresh(mac, now); ok {
		return a, true
	}
	return p.rested(mac, now)
}

func (p *Pool) offered(mac segment.MAC) netip.Addr {
	if e, ok := p.offers[mac]; ok {
		return e.address
	}
	return netip.Addr{}
}

func (p *Pool) last(mac segment.MAC) netip.Addr {
	if e, ok := p.clients[mac]; ok {
		return e.address
	}
	return netip.Addr{}
}

// fresh returns the first address of the pool that was never used. Those that it passes over wait with the used ones.
func (p *Pool) fresh(mac segment.MAC, now time.Time) (netip.Addr, bool) {
	for p.inPool(p.next) {
		a := p.next
		p.next = a.Next()
		if p.entries[a] != nil {
			continue // it is among the used ones
		}
		if p.usable(a, mac, now) {
			return a, true
		}
		if p.ours(a) {
			p.setBack(p.entry(a), now)
		}
	}
	return netip.Addr{}, false
}

// rested returns the address that has been free for the longest time.
func (p *Pool) rested(mac segment.MAC, now time.Time) (netip.Addr, bool) {
	for len(p.resting) > 0 && !p.resting[0].rested.After(now) {
		e := p.resting[0]
		if p.usable(e.address, mac, now) {
			return e.address, true
		}
		p.setBack(e, now)
	}
	return netip.Addr{}, false
}

// setBack puts off an unused address that is not available yet.
func (p *Pool) setBack(e *entry, now time.Time) { p.restUntil(e, now.Add(p.cfg.Cooldown)) }

// Upcoming returns up to n addresses that a new client may be offered next.
func (p *Pool) Upcoming(n int, now time.Time) []netip.Addr {
	var out []netip.Addr
	for a := p.next; p.inPool(a) && len(out) < n; a = a.Next() {
		if p.entries[a] == nil && p.usable(a, segment.MAC{}, now) {
			out = append(out, a)
		}
	}
	// The heap's array begins with the smallest; that the rest is only roughly in order does no harm here.
	for i := 0; i < len(p.resting) && i < 2*n && len(out) < n; i++ {
		if a := p.resting[i].address; p.usable(a, segment.MAC{}, now) {
			out = append(out, a)
		}
	}
	return out
}

// MarkInUse reports whether a card was seen with an address of the pool that it has no lease of. Others don't get the
// address until the given time. It is false when the card has, or had last, the lease.
func (p *Pool) MarkInUse(a netip.Addr, mac segment.MAC, until time.Time) bool {
	if !p.inPool(a) || !p.ours(a) {
		return false
	}
	p.inUse[a] = stranger{mac: mac, until: until}
	e := p.clients[mac]
	return e == nil || e.address != a
}
