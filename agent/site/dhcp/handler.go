package dhcp

import (
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/segment"
)

// Counters say what came and what went since the server was made.
type Counters struct {
	Malformed, Discovers, Requests, Declines, Releases, Informs int64
	Offers, Acks, Naks                                          int64
	// RefusedRelay came through a relay that is not listed; NoAddress found the pool empty; NotOurs was for others.
	RefusedRelay, NoAddress, NotOurs int64
	// Unsaved acknowledgements were not sent, because the lease could not be stored.
	Unsaved int64
}

// served is a segment with its pool, which only a full server has.
type served struct {
	segment.Segment
	pool *lease.Pool
}

// handler decides. It does no I/O, and is not safe for concurrent use.
type handler struct {
	log      *slog.Logger
	book     *segment.Table
	files    map[iana.Arch]string
	segments []*served
	count    Counters
	// own are hardware addresses that we send probes from.
	own map[segment.MAC]bool
	// event hands over what others are to know. It must not block.
	event func(any)
	// quiet keeps complaints about strangers from filling the log.
	quiet *limiter
}

// reply is a packet to be sent.
type reply struct {
	payload []byte
	from    netip.Addr
	to      netip.AddrPort
	// needsSave is set when it must not be sent before the leases have been stored.
	needsSave bool
}

// client is a request with what we know about its sender.
type client struct {
	Request
	*served
	assigned segment.Assignment
	known    bool
	boot     Boot
}

// packet answers what came to a port from an address; nil when there is nothing to say.
func (h *handler) packet(data []byte, from netip.AddrPort, port uint16, now time.Time) *reply {
	r, err := Parse(data)
	if err != nil {
		h.count.Malformed++
		h.log.Debug("ignore a packet", "from", from.String(), "error", err)
		return nil
	}
	if h.own[r.MAC] {
		return nil
	}
	s := h.segmentOf(r, now)
	if s == nil {
		return nil
	}
	c := client{Request: r, served: s}
	c.assigned, c.known = h.book.Find(r.MAC)
	c.boot = bootOf(s.Segment, h.files, r, c.assigned, c.known)
	if port == bootPort {
		return h.bootServer(c, from)
	}
	if s.Mode == segment.ModeProxy {
		return h.proxy(c)
	}
	return h.full(c, now)
}

// segmentOf returns the segment of a request: that of its relay, or that of its address, for renewals behind a relay
// come without it. Else it is the segment of the device.
func (h *handler) segmentOf(r Request, now time.Time) *served {
	if r.Relay.IsValid() {
		return h.behindRelay(r, now)
	}
	here := slices.IndexFunc(h.segments, func(s *served) bool { return s.Network().Contains(s.Address.Addr()) })
	there := slices.IndexFunc(h.segments, func(s *served) bool {
		return r.Client.IsValid() &&
			s.Network().Contains(r.Client)
	})
	switch {
	case there >= 0:
		return h.segments[there]
	case here >= 0:
		return h.segments[here]
	}
	h.count.NotOurs++
	return nil
}

func (h *handler) behindRelay(r Request, now time.Time) *served {
	for _, s := range h.segments {
		if slices.Contains(s.Relays, r.Relay) {
			return s
		}
	}
	h.count.RefusedRelay++
	if h.quiet.allow("relay "+r.Relay.String(), now) {
		h.log.Warn("refuse DHCP request of a relay that is not listed", "relay", r.Relay.String(), "mac", r.MAC.String())
	}
	return nil
}

func (h *handler) full(c client, now time.Time) *reply {
	switch c.Type {
	case dhcpv4.MessageTypeDiscover:
		h.count.Discovers++
		return h.discover(c, now)
	case dhcpv4.MessageTypeRequest:
		h.count.Requests++
		return h.request(c, now)
	case dhcpv4.MessageTypeInform:
		h.count.Informs++
		return h.inform(c)
	case dhcpv4.MessageTypeDecline:
		h.count.Declines++
		h.decline(c, now)
	case dhcpv4.MessageTypeRelease:
		h.count.Releases++
		h.release(c, now)
	}
	return nil
}

// fixed is the address of the client's assignment on this segment.
func (c client) fixed() netip.Addr {
	if c.assigned.Segment != c.Name {
		return netip.Addr{}
	}
	return c.assigned.Address
}

// host is the name that the client gets: that of its assignment.
func (c client) host() string { return c.assigned.Hostname }

func (h *handler) discover(c client, now time.Time) *reply {
	a, ok := c.pool.Offer(c.MAC, c.fixed(), c.Wanted, now)
	if !ok {
		h.count.NoAddress++
		if h.quiet.allow("no address "+c.Name, now) {
			h.log.Warn("no address is free", "segment", c.Name, "mac", c.MAC.String())
		}
		return nil
	}
	if fixed := c.fixed(); fixed.IsValid() && a != fixed && h.quiet.allow("fixed "+fixed.String(), now) {
		h.log.Warn("the fixed address of a machine is in use by another", "segment", c.Name, "machine_id",
			c.assigned.MachineID,
			"mac", c.MAC.String(), "fixed", fixed.String(), "offered", a.String())
	}
	h.meet(c, a)
	p := answer(c.Segment, c.Request, dhcpv4.MessageTypeOffer)
	withLease(p, a, c.LeaseTime)
	withNetwork(p, c.Segment, c.host())
	withBoot(p, c.Segment, c.Request, c.boot, false)
	h.count.Offers++
	return h.reply(c, p, false)
}

func (h *handler) request(c client, now time.Time) *reply {
	if c.Server.IsValid() && c.Server != c.Address.Addr() {
		h.count.NotOurs++
		c.pool.ChoseAnother(c.MAC)
		h.event(Foreign{Segment: c.Name, Server: c.Server, ChosenBy: c.MAC})
		return nil
	}
	asked := c.Wanted
	if !asked.IsValid() {
		asked = c.Client
	}
	if !asked.IsValid() {
		h.count.Malformed++
		return nil
	}
	ask := lease.Ask{MAC: c.MAC, Address: asked, Fixed: c.fixed(), Hostname: c.name()}
	before, had := c.pool.Lookup(c.MAC, now)
	l, verdict := c.pool.Request(ask, now)
	switch verdict {
	case lease.Granted:
		if !had || before.State != lease.Bound || before.Address != l.Address {
			h.log.Info("lease an address", "segment", c.Name, "mac", c.MAC.String(), "address", l.Address.String(),
				"machine_id", c.assigned.MachineID, "operation_id", c.assigned.OperationID, "program", c.Program.String())
		}
		h.meet(c, l.Address)
		return h.acknowledge(c, l)
	case lease.Refused:
		h.count.Naks++
		h.log.Info("refuse an address", "segment", c.Name, "mac", c.MAC.String(), "address", asked.String(),
			"machine_id", c.assigned.MachineID)
		return h.reply(c, refusal(c.Segment, c.Request), false)
	}
	h.count.NotOurs++
	return nil
}

// name is what a lease is listed under: what we call the machine, else what it calls itself.
func (c client) name() string {
	if c.assigned.Hostname != "" {
		return c.assigned.Hostname
	}
	return c.Hostname
}

func (h *handler) acknowledge(c client, l lease.Lease) *reply {
	p := answer(c.Segment, c.Request, dhcpv4.MessageTypeAck)
	if c.Client.IsValid() {
		p.ClientIPAddr = c.Client.AsSlice()
	}
	withLease(p, l.Address, c.LeaseTime)
	withNetwork(p, c.Segment, c.host())
	withBoot(p, c.Segment, c.Request, c.boot, false)
	h.count.Acks++
	return h.reply(c, p, true)
}

// inform sends the network's options to a host with an address of its own (RFC 2131, 4.3.5): no address, no times.
func (h *handler) inform(c client) *reply {
	if !c.reaches(c.Client) {
		h.count.NotOurs++
		return nil
	}
	p := answer(c.Segment, c.Request, dhcpv4.MessageTypeAck)
	p.ClientIPAddr = c.Client.AsSlice()
	withNetwork(p, c.Segment, "")
	withBoot(p, c.Segment, c.Request, c.boot, false)
	h.count.Acks++
	return h.reply(c, p, false)
}

func (h *handler) decline(c client, now time.Time) {
	if !c.ours() || !c.pool.Decline(c.MAC, c.Wanted, now) {
		h.count.NotOurs++
		return
	}
	h.log.Warn("a client found its address in use by another", "segment", c.Name, "mac", c.MAC.String(),
		"address", c.Wanted.String(), "machine_id", c.assigned.MachineID)
}

func (h *handler) release(c client, now time.Time) {
	if !c.ours() || !c.pool.Release(c.MAC, c.Client, now) {
		h.count.NotOurs++
	}
}

// ours reports whether a message that must name its server names us.
func (c client) ours() bool { return c.Server == c.Address.Addr() }

// meet reports a card without assignment, where that is wanted.
func (h *handler) meet(c client, a netip.Addr) {
	if c.known || c.Discovery == segment.DiscoveryOff || c.VendorClass == probeClass {
		return
	}
	h.event(Unknown{
		Segment: c.Name, MAC: c.MAC, Address: a, Program: c.Program, Arch: c.Arch, VendorClass: c.VendorClass,
		Hostname: c.Hostname, UUID: c.UUID,
	})
}

func (h *handler) reply(c client, p *dhcpv4.DHCPv4, needsSave bool) *reply {
	to := destination(c.Request, c.Segment, p.MessageType())
	return &reply{payload: p.ToBytes(), from: c.Address.Addr(), to: to, needsSave: needsSave}
}
