package lease

import (
	"net/netip"
	"time"

	"github.com/ingot-metal/ingot/agent/site/segment"
)

// Verdict is a pool's answer to a client that asks for one address.
type Verdict int

const (
	// Silent: the address is none of ours to give or to refuse.
	Silent Verdict = iota
	// Granted: the client has it.
	Granted
	// Refused: the client must not use it.
	Refused
)

// Ask is a client's request for one address: the one that it was offered, had before, or has.
type Ask struct {
	MAC      segment.MAC
	Address  netip.Addr
	Hostname string
	// Fixed is the address of the client's assignment, if it has one.
	Fixed netip.Addr
}

// Request decides about an Ask. An unknown client gets the address if it is free, so that a site that lost its leases
// recovers them.
func (p *Pool) Request(ask Ask, now time.Time) (Lease, Verdict) {
	if v := p.judge(ask, now); v != Granted {
		return Lease{}, v
	}
	return p.grant(ask, now), Granted
}

func (p *Pool) judge(ask Ask, now time.Time) Verdict {
	have, leased := p.Lookup(ask.MAC, now)
	switch {
	case !p.network.Contains(ask.Address):
		return Refused
	case ask.Fixed != ask.Address && ask.Fixed.IsValid() && p.usable(ask.Fixed, ask.MAC, now):
		return Refused // it is to ask again, and gets its fixed one
	case ask.Fixed != ask.Address && !p.inPool(ask.Address) && !leased:
		return Silent
	case ask.Fixed != ask.Address && !p.inPool(ask.Address):
		return Refused
	case !p.usable(ask.Address, ask.MAC, now):
		return Refused
	case leased && have.State == Bound && have.Address != ask.Address && p.offered(ask.MAC) != ask.Address:
		return Refused
	}
	return Granted
}

// grant binds the address. What the client had before ends, and who had the address before is forgotten.
func (p *Pool) grant(ask Ask, now time.Time) Lease {
	e := p.entry(ask.Address)
	if old, ok := p.clients[ask.MAC]; ok && old != e {
		p.end(old, now)
	}
	if p.clients[e.lease.MAC] == e && e.lease.MAC != ask.MAC {
		delete(p.clients, e.lease.MAC)
	}
	since := now
	if l := e.lease; l.MAC == ask.MAC && l.at(now).State == Bound {
		since = l.Since
	}
	e.lease = Lease{
		Segment: p.cfg.Segment.Name, Address: ask.Address, MAC: ask.MAC, State: Bound, Hostname: ask.Hostname,
		Since: since, Ends: now.Add(p.cfg.Segment.LeaseTime), Fixed: ask.Address == ask.Fixed,
	}
	p.clients[ask.MAC] = e
	p.forgetOffer(ask.MAC)
	p.changed[ask.Address] = struct{}{}
	p.rest(e)
	return e.lease
}

// end ends a lease that has not run out yet.
func (p *Pool) end(e *entry, now time.Time) {
	if e.lease.at(now).State != Bound {
		return
	}
	e.lease.State, e.lease.Ends = Ended, now
	p.changed[e.address] = struct{}{}
	p.rest(e)
}

func (p *Pool) forgetOffer(mac segment.MAC) {
	if e, ok := p.offers[mac]; ok {
		e.offerTo, e.offerEnds = segment.MAC{}, time.Time{}
		delete(p.offers, mac)
		p.rest(e)
	}
}

// ChoseAnother records that the client took the offer of another server.
func (p *Pool) ChoseAnother(mac segment.MAC) { p.forgetOffer(mac) }

// Release takes an address back from the client that has it. It is false when the client does not have it.
func (p *Pool) Release(mac segment.MAC, a netip.Addr, now time.Time) bool {
	e, ok := p.entries[a]
	if !ok || e.lease.MAC != mac || e.lease.at(now).State != Bound {
		return false
	}
	p.end(e, now)
	return true
}

// Decline sets an address aside that its client has found in use by another host (RFC 2131, 4.3.3). It is false when
// the client has neither had nor been offered it.
func (p *Pool) Decline(mac segment.MAC, a netip.Addr, now time.Time) bool {
	e, ok := p.entries[a]
	if !ok || (e.lease.MAC != mac || e.lease.State == Declined) && e.offerTo != mac {
		return false
	}
	if e.offerTo == mac {
		p.forgetOffer(mac)
	}
	if p.clients[e.lease.MAC] == e {
		delete(p.clients, e.lease.MAC)
	}
	e.lease = Lease{
		Segment: p.cfg.Segment.Name, Address: a, MAC: mac, State: Declined, Since: now, Ends: now.Add(p.cfg.DeclineTime),
	}
	p.changed[a] = struct{}{}
	p.rest(e)
	return true
}
