package dhcp

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/ingot-metal/ingot/agent/site/segment"
)

// Frames of Ethernet with ARP (RFC 826) or IPv4 and UDP: what the watch reads and writes.
const (
	etherLen = 14
	arpLen   = 28
	udpLen   = 8
	ipv4Len  = 20

	etherIPv4 = 0x0800
	etherARP  = 0x0806
	protoUDP  = 17
)

// heard is the content of a frame that is of interest: an address in use, or the answer of a DHCP server.
type heard struct {
	// from is the card that the frame came from.
	from segment.MAC
	// holder has address, by ARP.
	holder  segment.MAC
	address netip.Addr
	// server answered a client.
	server netip.Addr
	client segment.MAC
	proxy  bool
}

var errNotOfInterest = errors.New("not a frame of interest")

// parseFrame reads a frame as it came from the wire, without VLAN tags.
func parseFrame(b []byte) (heard, error) {
	if len(b) < etherLen {
		return heard{}, errNotOfInterest
	}
	h := heard{from: segment.MAC(b[6:12])}
	switch binary.BigEndian.Uint16(b[12:]) {
	case etherARP:
		return h, h.arp(b[etherLen:])
	case etherIPv4:
		return h, h.ipv4(b[etherLen:])
	}
	return heard{}, errNotOfInterest
}

// arp reads the sender of a request or an answer; one of address zero only asks (RFC 5227).
func (h *heard) arp(b []byte) error {
	if len(b) < arpLen || binary.BigEndian.Uint64(b)>>16 != 0x000108000604 {
		return errNotOfInterest
	}
	h.holder, h.address = segment.MAC(b[8:14]), netip.AddrFrom4([4]byte(b[14:18]))
	if h.address.IsUnspecified() || h.holder == (segment.MAC{}) {
		return errNotOfInterest
	}
	return nil
}

func (h *heard) ipv4(b []byte) error {
	if len(b) < ipv4Len || b[0]>>4 != 4 || b[9] != protoUDP || binary.BigEndian.Uint16(b[6:])&0x3fff != 0 {
		return errNotOfInterest
	}
	total, header := int(binary.BigEndian.Uint16(b[2:])), int(b[0]&15)*4
	if header < ipv4Len || total > len(b) || total < header+udpLen {
		return errNotOfInterest
	}
	udp := b[header:total]
	if binary.BigEndian.Uint16(udp[2:]) != clientPort {
		return errNotOfInterest
	}
	return h.dhcp(udp[udpLen:])
}

func (h *heard) dhcp(b []byte) error {
	p, err := dhcpv4.FromBytes(b)
	if err != nil {
		return err
	}
	t := p.MessageType()
	if p.OpCode != dhcpv4.OpcodeBootReply || t != dhcpv4.MessageTypeOffer && t != dhcpv4.MessageTypeAck {
		return errNotOfInterest
	}
	h.server = address(p.Options.Get(dhcpv4.OptionServerIdentifier))
	if !h.server.IsValid() {
		return errNotOfInterest
	}
	h.client, _ = segment.MACOf(p.ClientHWAddr) // only compared with our own
	h.proxy = !address(p.YourIPAddr).IsValid() && !address(p.ClientIPAddr).IsValid()
	return nil
}

// probeClass is the vendor class of our own DISCOVERs, by which other agents know them.
const probeClass = "ingot-probe"

// probeDiscover asks who serves DHCP here. It comes from our card, for one that does not exist, so that no server
// reserves an address for a machine that does.
func probeDiscover(card, asked segment.MAC, xid [4]byte) []byte {
	p := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootRequest, HWType: 1, TransactionID: xid, ClientHWAddr: asked.Hardware(),
		Options:      dhcpv4.Options{},
		ClientIPAddr: nobody, YourIPAddr: nobody, ServerIPAddr: nobody, GatewayIPAddr: nobody,
	}
	p.SetBroadcast()
	p.UpdateOption(dhcpv4.OptMessageType(dhcpv4.MessageTypeDiscover))
	p.UpdateOption(dhcpv4.OptClassIdentifier(probeClass))
	return broadcastFrame(card, p.ToBytes())
}

// broadcastFrame is a packet to all servers, from a client without an address.
func broadcastFrame(card segment.MAC, payload []byte) []byte {
	b := ether(segment.MAC{255, 255, 255, 255, 255, 255}, card, etherIPv4)
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(ipv4Len+udpLen+len(payload)))
	b = append(b, 0, 0, 0, 0, 64, protoUDP, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255)
	binary.BigEndian.PutUint16(b[etherLen+10:], checksum(b[etherLen:]))
	b = binary.BigEndian.AppendUint16(b, clientPort)
	b = binary.BigEndian.AppendUint16(b, serverPort)
	b = binary.BigEndian.AppendUint16(b, uint16(udpLen+len(payload)))
	b = append(b, 0, 0) // no checksum: IPv4 allows it (RFC 768)
	return append(b, payload...)
}

// probeARP asks who has an address without claiming it (RFC 5227, 2.1.1).
func probeARP(card segment.MAC, a netip.Addr) []byte {
	b := ether(segment.MAC{255, 255, 255, 255, 255, 255}, card, etherARP)
	b = append(b, 0, 1, 8, 0, 6, 4, 0, 1)
	b = append(b, card[:]...)
	b = append(b, make([]byte, 4+6)...)
	return append(b, a.AsSlice()...)
}

func ether(to, from segment.MAC, kind uint16) []byte {
	b := make([]byte, 0, 512)
	b = append(b, to[:]...)
	b = append(b, from[:]...)
	return binary.BigEndian.AppendUint16(b, kind)
}

// checksum is that of RFC 1071 over an even number of bytes.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
