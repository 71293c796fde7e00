package dhcp

import (
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// proxy adds the boot file to the offer of another server. It never assigns an address, and does not answer unknown
// machines, unless discovery is on.
func (h *handler) proxy(c client) *reply {
	if c.Type != dhcpv4.MessageTypeDiscover {
		h.count.NotOurs++ // the addresses are the other server's business
		return nil
	}
	h.count.Discovers++
	if c.Program != Plain {
		h.meet(c, netip.Addr{})
	}
	if c.boot == (Boot{}) {
		return nil
	}
	p := answer(c.Segment, c.Request, dhcpv4.MessageTypeOffer)
	withBoot(p, c.Segment, c.Request, c.boot, true)
	h.count.Offers++
	return h.reply(c, p, false)
}

// bootServer answers on port 4011, where PXE firmware that has its address already asks for the boot file (PXE 2.1,
// section 2.2.4). The answer goes where the request came from.
func (h *handler) bootServer(c client, from netip.AddrPort) *reply {
	if c.Type != dhcpv4.MessageTypeRequest && c.Type != dhcpv4.MessageTypeInform {
		h.count.NotOurs++
		return nil
	}
	h.count.Requests++
	if c.boot == (Boot{}) || !c.reaches(from.Addr()) {
		return nil
	}
	p := answer(c.Segment, c.Request, dhcpv4.MessageTypeAck)
	if c.Client.IsValid() {
		p.ClientIPAddr = c.Client.AsSlice()
	}
	withBoot(p, c.Segment, c.Request, c.boot, true)
	h.count.Acks++
	return &reply{payload: p.ToBytes(), from: c.Address.Addr(), to: from}
}

// reaches reports whether an answer may go to an address: to machines of the segment, not to a forged address.
func (c client) reaches(a netip.Addr) bool {
	return c.Network().Contains(a) && a != c.Address.Addr()
}
