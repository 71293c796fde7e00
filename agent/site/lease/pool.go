package lease

import (
	"cmp"
	"container/heap"
	"net/netip"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/agent/site/segment"
)

// The defaults of a Config.
const (
	DefaultCooldown    = 60 * time.Second
	DefaultOfferTime   = 30 * time.Second
	DefaultDeclineTime = 10 * time.Minute
)

// Config describes a pool.
type Config struct {
	Segment segment.Segment
	// Reserved returns the card whose fixed address this is. No other card gets it. It must not block.
	Reserved func(netip.Addr) (segment.MAC, bool)
	// Cooldown is how long an address rests before another client gets it.
	Cooldown time.Duration
	// OfferTime is how long an offer is kept for its client.
	OfferTime time.Duration
	// DeclineTime is how long an address that is in use by a stranger is set aside.
	DeclineTime time.Duration
}

// Pool assigns addresses. It is not safe for concurrent use.
type Pool struct {
	cfg       Config
	network   netip.Prefix
	broadcast netip.Addr
	entries   map[netip.Addr]*entry
	// clients has the address that each client had last; offers the one that it was offered last.
	clients, offers map[segment.MAC]*entry
	// next is the first address of the pool that was never looked at; behind PoolEnd when there is none.
	next netip.Addr
	// resting orders those that were by the time at which they may be free.
	resting restHeap
	changed map[netip.Addr]struct{}
	inUse   map[netip.Addr]stranger
}

// entry is all that is known about one address.
type entry struct {
	address netip.Addr
	// lease is the stored lease. Its State is empty when there never was one.
	lease Lease
	// offerTo is for whom the address is kept, until offerEnds.
	offerTo   segment.MAC
	offerEnds time.Time
	// rested is when it may be free, place its index in the heap of those; -1 when it is not there.
	rested time.Time
	place  int
}

// stranger is a card that was seen with an address.
type stranger struct {
	mac   segment.MAC
	until time.Time
}

// New makes the pool of a segment from the leases that were stored.
func New(cfg Config, stored []Lease) *Pool {
	cfg.Cooldown = cmp.Or(cfg.Cooldown, DefaultCooldown)
	cfg.OfferTime = cmp.Or(cfg.OfferTime, DefaultOfferTime)
	cfg.DeclineTime = cmp.Or(cfg.DeclineTime, DefaultDeclineTime)
	if cfg.Reserved == nil {
		cfg.Reserved = func(netip.Addr) (segment.MAC, bool) { return segment.MAC{}, false }
	}
	p := &Pool{
		cfg: cfg, network: cfg.Segment.Network(), next: cfg.Segment.PoolStart,
		entries: map[netip.Addr]*entry{}, clients: map[segment.MAC]*entry{}, offers: map[segment.MAC]*entry{},
		changed: map[netip.Addr]struct{}{}, inUse: map[netip.Addr]stranger{},
	}
	p.broadcast = broadcast(p.network)
	for _, l := range stored {
		p.restore(l)
	}
	return p
}

// restore takes over a stored lease. Of a client with several addresses, the one that ends last is its own.
func (p *Pool) restore(l Lease) {
	e := p.entry(l.Address)
	e.lease = l
	if other, ok := p.clients[l.MAC]; l.State != Declined && (!ok || other.lease.Ends.Before(l.Ends)) {
		p.clients[l.MAC] = e
	}
	p.rest(e)
}

func (p *Pool) entry(a netip.Addr) *entry {
	e, ok := p.entries[a]
	if !ok {
		e = &entry{address: a, place: -1}
		p.entries[a] = e
	}
	return e
}

func (p *Pool) inPool(a netip.Addr) bool {
	s := p.cfg.Segment
	return s.PoolStart.IsValid() && a.IsValid() && !a.Less(s.PoolStart) && !s.PoolEnd.Less(a)
}

// ours reports whether an address is one that a client of this segment may have at all.
func (p *Pool) ours(a netip.Addr) bool {
	s := p.cfg.Segment
	if !p.network.Contains(a) || a == s.Address.Addr() || a == s.Router || slices.Contains(s.DNS, a) {
		return false
	}
	return !p.broadcast.IsValid() || a != p.network.Addr() && a != p.broadcast
}

// broadcast is the last address of an IPv4 network; invalid where the network has none (RFC 3021).
func broadcast(n netip.Prefix) netip.Addr {
	if n.Bits() >= 31 {
		return netip.Addr{}
	}
	b := n.Masked().Addr().As4()
	for i := n.Bits(); i < 32; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	return netip.AddrFrom4(b)
}

// usable reports whether a client may have an address now.
func (p *Pool) usable(a netip.Addr, mac segment.MAC, now time.Time) bool {
	if !p.ours(a) {
		return false
	}
	if owner, reserved := p.cfg.Reserved(a); reserved && owner != mac {
		return false
	}
	if other, seen := p.inUse[a]; seen && other.mac != mac && now.Before(other.until) {
		return false
	}
	e := p.entries[a]
	return e == nil || e.free(mac, now, p.cfg.Cooldown)
}

// free reports whether neither another client's lease nor an offer to one stands in the way.
func (e *entry) free(mac segment.MAC, now time.Time, cooldown time.Duration) bool {
	if e.offerTo != mac && now.Before(e.offerEnds) {
		return false
	}
	switch e.lease.State {
	case "":
		return true
	case Declined:
		return !now.Before(e.lease.Ends)
	}
	return e.lease.MAC == mac || !now.Before(e.lease.Ends.Add(cooldown))
}

// freeAt is when any client may have the address.
func (e *entry) freeAt(cooldown time.Duration) time.Time {
	at := e.lease.Ends
	if e.lease.State == Bound || e.lease.State == Ended {
		at = at.Add(cooldown)
	}
	if e.offerEnds.After(at) {
		return e.offerEnds
	}
	return at
}

// Lookup returns the lease that the client has or had last.
func (p *Pool) Lookup(mac segment.MAC, now time.Time) (Lease, bool) {
	e, ok := p.clients[mac]
	if !ok {
		return Lease{}, false
	}
	return e.lease.at(now), true
}

// Holder returns the lease that an address has now, if it has one.
func (p *Pool) Holder(a netip.Addr, now time.Time) (Lease, bool) {
	e, ok := p.entries[a]
	if !ok || e.lease.at(now).State != Bound {
		return Lease{}, false
	}
	return e.lease, true
}

// Snapshot lists the leases in the order of their addresses, as they are now. Offers are not among them.
func (p *Pool) Snapshot(now time.Time) []Lease {
	out := make([]Lease, 0, len(p.entries))
	for _, e := range p.entries {
		if e.lease.State != "" {
			out = append(out, e.lease.at(now))
		}
	}
	slices.SortFunc(out, func(a, b Lease) int { return a.Address.Compare(b.Address) })
	return out
}

// Changes returns the leases that changed since Saved was called last. They must be stored before their clients hear of
// them.
func (p *Pool) Changes() []Lease {
	out := make([]Lease, 0, len(p.changed))
	for a := range p.changed {
		out = append(out, p.entries[a].lease)
	}
	return out
}

// Saved records that the last result of Changes has been stored.
func (p *Pool) Saved() { clear(p.changed) }

// rest puts an address in its place among those that will be free one day. It is called after every change.
func (p *Pool) rest(e *entry) { p.restUntil(e, e.freeAt(p.cfg.Cooldown)) }

func (p *Pool) restUntil(e *entry, free time.Time) {
	if !p.inPool(e.address) {
		return
	}
	e.rested = free
	if e.place < 0 {
		heap.Push(&p.resting, e)
	} else {
		heap.Fix(&p.resting, e.place)
	}
}

// restHeap has the entry on top that is free first. Each knows its place.
type restHeap []*entry

func (h restHeap) Len() int           { return len(h) }
func (h restHeap) Less(i, j int) bool { return h[i].rested.Before(h[j].rested) }
func (h restHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push is of heap.Interface.
func (h *restHeap) Push(x any) {
	e := x.(*entry)
	e.place = len(*h)
	*h = append(*h, e)
}

// Pop is of heap.Interface. Nothing is ever taken out.
func (h *restHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	last.place = -1
	*h = old[:len(old)-1]
	return last
}
