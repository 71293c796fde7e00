package dhcp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/ingot-metal/ingot/agent/site/segment"
)

// Ports of DHCP (RFC 2131) and of the boot server of PXE (2.1, section 2.2.3).
const (
	serverPort = 67
	clientPort = 68
	bootPort   = 4011
)

var (
	everybody = netip.AddrFrom4([4]byte{255, 255, 255, 255})
	nobody    = net.IPv4zero.To4()
)

// answer begins the reply to a request, with what every reply has.
func answer(s segment.Segment, r Request, t dhcpv4.MessageType) *dhcpv4.DHCPv4 {
	q := r.packet
	p := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootReply, HWType: q.HWType, TransactionID: q.TransactionID, Flags: q.Flags,
		ClientIPAddr: nobody, YourIPAddr: nobody, ServerIPAddr: nobody, GatewayIPAddr: q.GatewayIPAddr,
		ClientHWAddr: q.ClientHWAddr, Options: make(dhcpv4.Options, 16),
	}
	us := s.Address.Addr().As4()
	p.Options[dhcpv4.OptionDHCPMessageType.Code()] = []byte{byte(t)}
	p.Options[dhcpv4.OptionServerIdentifier.Code()] = us[:]
	// RFC 6842 wants the client identifier back, RFC 3046 the relay's information.
	for _, code := range [...]dhcpv4.OptionCode{dhcpv4.OptionClientIdentifier, dhcpv4.OptionRelayAgentInformation} {
		if value := q.Options.Get(code); value != nil {
			p.Options[code.Code()] = value
		}
	}
	return p
}

// refusal is a NAK: the client forgets its address and begins anew. Behind a relay it must be broadcast there.
func refusal(s segment.Segment, r Request) *dhcpv4.DHCPv4 {
	p := answer(s, r, dhcpv4.MessageTypeNak)
	if r.Relay.IsValid() {
		p.SetBroadcast()
	}
	return p
}

// withNetwork adds what a host needs to know of its network.
func withNetwork(p *dhcpv4.DHCPv4, s segment.Segment, host string) {
	set := func(code dhcpv4.OptionCode, value []byte) { p.Options[code.Code()] = value }
	set(dhcpv4.OptionSubnetMask, net.CIDRMask(s.Network().Bits(), 32))
	if s.Router.IsValid() {
		set(dhcpv4.OptionRouter, s.Router.AsSlice())
	}
	var servers []byte
	for _, dns := range s.DNS {
		servers = append(servers, dns.AsSlice()...)
	}
	if len(servers) > 0 {
		set(dhcpv4.OptionDomainNameServer, servers)
	}
	if host != "" {
		set(dhcpv4.OptionHostName, []byte(host))
	}
}

// withLease adds the address and its times: renew at half, ask anybody at seven eighths (RFC 2131, 4.4.5).
func withLease(p *dhcpv4.DHCPv4, a netip.Addr, d time.Duration) {
	p.YourIPAddr = a.AsSlice()
	p.Options[dhcpv4.OptionIPAddressLeaseTime.Code()] = seconds(d)
	p.Options[dhcpv4.OptionRenewTimeValue.Code()] = seconds(d / 2)
	p.Options[dhcpv4.OptionRebindingTimeValue.Code()] = seconds(d / 8 * 7)
}

func seconds(d time.Duration) []byte {
	return binary.BigEndian.AppendUint32(nil, uint32(min(d/time.Second, 1<<32-1)))
}

// What PXE clients find in option 43 (PXE 2.1, table 2-1; iPXE in option 175).
var (
	// Discovery control, bit 3: load the boot file that is named here, ask no other server.
	pxeLoadThis = []byte{6, 1, 8, 255}
	// A menu of one entry, which is to boot locally (type 0), and a prompt that does not wait.
	pxeBootLocally = append(append([]byte{6, 1, 3, 9, 3 + 4, 0, 0, 4}, "disk"...), 10, 2, 0, 'D', 255)
	// no-pxedhcp: don't wait for a proxy, what there is to know is here.
	ipxeNoProxy = []byte{0xb0, 1, 1}
)

// noFile is the file that makes firmware with HTTP boot go on to its next device: HTTP boot has no order for that, but
// stops at once when the file is missing. No machine's files have this name.
const noFile = "/boot/none"

// withBoot adds what to load. proxy is set when this reply is beside one of another server.
func withBoot(p *dhcpv4.DHCPv4, s segment.Segment, r Request, b Boot, proxy bool) {
	switch {
	case b.Local && b.Program == HTTP:
		withFile(p, s, HTTP, s.HTTPBase()+noFile)
	case b.Local && b.Program == IPXE:
		p.Options[optionIPXE.Code()] = ipxeNoProxy
	case b.Local:
		withPXE(p, r, pxeBootLocally)
	case b.File != "":
		withFile(p, s, b.Program, b.File)
		if proxy && b.Program != HTTP {
			withPXE(p, r, pxeLoadThis)
		} else if b.Program == IPXE {
			p.Options[optionIPXE.Code()] = ipxeNoProxy
		}
	}
}

// withFile names a file, in the head and in the options: firmware reads the one or the other.
func withFile(p *dhcpv4.DHCPv4, s segment.Segment, program Program, file string) {
	us := s.Address.Addr()
	p.ServerIPAddr, p.BootFileName = us.AsSlice(), file
	p.Options[dhcpv4.OptionBootfileName.Code()] = []byte(file)
	if program == HTTP {
		p.Options[dhcpv4.OptionClassIdentifier.Code()] = []byte("HTTPClient")
		return
	}
	if program != IPXE {
		// Old ROMs read on to a zero, and ask for a name with the 0xff that ends the options.
		p.Options[dhcpv4.OptionBootfileName.Code()] = append([]byte(file), 0)
	}
	p.Options[dhcpv4.OptionTFTPServerName.Code()] = []byte(us.String())
}

// withPXE makes a reply one of PXE, with its own options in option 43.
func withPXE(p *dhcpv4.DHCPv4, r Request, options []byte) {
	p.Options[dhcpv4.OptionClassIdentifier.Code()] = []byte("PXEClient")
	p.Options[dhcpv4.OptionVendorSpecificInformation.Code()] = options
	if id := r.packet.Options.Get(dhcpv4.OptionClientMachineIdentifier); id != nil {
		p.Options[dhcpv4.OptionClientMachineIdentifier.Code()] = id
	}
}

// destination is where a reply goes (RFC 2131, 4.1). Clients without an address get a broadcast, whether they asked for
// one or not: all understand it, and it needs no ARP entry made by hand. So do clients that claim an address of another
// network, so that they cannot make us send there.
func destination(r Request, s segment.Segment, t dhcpv4.MessageType) netip.AddrPort {
	switch {
	case r.Relay.IsValid():
		return netip.AddrPortFrom(r.Relay, serverPort)
	case t == dhcpv4.MessageTypeAck && r.Client.IsValid() && s.Network().Contains(r.Client):
		return netip.AddrPortFrom(r.Client, clientPort)
	}
	return netip.AddrPortFrom(everybody, clientPort)
}
