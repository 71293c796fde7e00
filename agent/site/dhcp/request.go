package dhcp

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/ingot-metal/ingot/agent/site/segment"
)

// Program is what asks at the other end, as far as it matters for booting.
type Program int

const (
	// Plain is an operating system, or firmware that only wants an address.
	Plain Program = iota
	// PXE is firmware that loads its boot file over TFTP.
	PXE
	// HTTP is UEFI firmware that loads its boot file over HTTP.
	HTTP
	// IPXE is iPXE, in ROM or loaded by us.
	IPXE
)

// String is for logs and reports.
func (p Program) String() string { return [...]string{"plain", "pxe", "http", "ipxe"}[p] }

// Request has the fields that are read from a client's packet. Addresses that are not there, or zero, are the zero
// netip.Addr.
type Request struct {
	Type dhcpv4.MessageType
	MAC  segment.MAC
	// Client is the address that it uses already (ciaddr), Relay the relay agent's (giaddr).
	Client, Relay netip.Addr
	// Wanted is the address that it asks for (option 50), Server whom it asks (option 54).
	Wanted, Server netip.Addr
	Program        Program
	Arch           iana.Arch
	// VendorClass (option 60), Hostname (12) and UUID (97) are for reports: printable and short, whatever was sent.
	VendorClass, Hostname, UUID string

	packet *dhcpv4.DHCPv4
}

// Errors of Parse beside those of the packet's form.
var (
	errNotRequest = errors.New("it is not a request")
	errHardware   = errors.New("its hardware address is not one of Ethernet")
	errNoType     = errors.New("it has no message type that a client sends")
)

// Parse reads a packet that came to a server's port.
func Parse(data []byte) (Request, error) {
	p, err := dhcpv4.FromBytes(data)
	if err != nil {
		return Request{}, fmt.Errorf("parse DHCP packet: %w", err)
	}
	mac, ok := segment.MACOf(p.ClientHWAddr)
	r := Request{
		Type: p.MessageType(), MAC: mac, packet: p,
		Client: address(p.ClientIPAddr), Relay: address(p.GatewayIPAddr),
		Wanted:      address(p.Options.Get(dhcpv4.OptionRequestedIPAddress)),
		Server:      address(p.Options.Get(dhcpv4.OptionServerIdentifier)),
		VendorClass: printable(p.Options.Get(dhcpv4.OptionClassIdentifier), 64),
		Hostname:    hostname(p.Options.Get(dhcpv4.OptionHostName)),
	}
	switch {
	case p.OpCode != dhcpv4.OpcodeBootRequest:
		return Request{}, errNotRequest
	case !ok || p.HWType != iana.HWTypeEthernet || mac[0]&1 != 0:
		return Request{}, errHardware
	case !fromClient(r.Type):
		return Request{}, errNoType
	}
	r.Program, r.Arch = program(p), arch(p)
	r.UUID = machineUUID(p.Options.Get(dhcpv4.OptionClientMachineIdentifier))
	return r, nil
}

func fromClient(t dhcpv4.MessageType) bool {
	switch t {
	case dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeDecline,
		dhcpv4.MessageTypeRelease, dhcpv4.MessageTypeInform:
		return true
	}
	return false
}

// address returns the zero value for anything that is not an IPv4 address of a host.
func address(ip net.IP) netip.Addr {
	a, ok := netip.AddrFromSlice(ip)
	if !ok || !a.Unmap().Is4() || a.IsUnspecified() {
		return netip.Addr{}
	}
	return a.Unmap()
}

// optionIPXE carries the settings of iPXE, and shows that it is there (option 175, "Etherboot").
const optionIPXE = dhcpv4.GenericOptionCode(175)

func program(p *dhcpv4.DHCPv4) Program {
	class := p.Options.Get(dhcpv4.OptionClassIdentifier)
	switch {
	case p.Options.Has(optionIPXE) || isIPXE(p.Options.Get(dhcpv4.OptionUserClassInformation)):
		return IPXE
	case bytes.HasPrefix(class, []byte("PXEClient")):
		return PXE
	case bytes.HasPrefix(class, []byte("HTTPClient")):
		return HTTP
	}
	return Plain
}

// isIPXE knows both forms of option 77: bare, as iPXE sends it, and the list of RFC 3004.
func isIPXE(class []byte) bool {
	if string(class) == "iPXE" {
		return true
	}
	for len(class) > 1 && len(class) > int(class[0]) {
		if string(class[1:1+class[0]]) == "iPXE" {
			return true
		}
		class = class[1+class[0]:]
	}
	return false
}

// arch is the client architecture of option 93 (RFC 4578), else of the vendor class ("PXEClient:Arch:00007:…"), else
// that of a PC with a BIOS.
func arch(p *dhcpv4.DHCPv4) iana.Arch {
	if list := p.Options.Get(dhcpv4.OptionClientSystemArchitectureType); len(list) >= 2 {
		return iana.Arch(uint16(list[0])<<8 | uint16(list[1]))
	}
	_, rest, found := strings.Cut(string(p.Options.Get(dhcpv4.OptionClassIdentifier)), ":Arch:")
	if number, _, _ := strings.Cut(rest, ":"); found {
		if n, err := strconv.ParseUint(number, 10, 16); err == nil {
			return iana.Arch(n)
		}
	}
	return iana.INTEL_X86PC
}

// machineUUID reads option 97 (RFC 4578, 2.3): a type of zero, then the 16 bytes as SMBIOS has them, the first three
// fields in little-endian order.
func machineUUID(b []byte) string {
	if len(b) != 17 || b[0] != 0 {
		return ""
	}
	u := b[1:]
	return fmt.Sprintf("%x-%x-%x-%x-%x", []byte{u[3], u[2], u[1], u[0]}, []byte{u[5], u[4]}, []byte{u[7], u[6]}, u[8:10],
		u[10:])
}

// printable keeps what may stand in a log or a report of text from the wire.
func printable(b []byte, most int) string {
	out := make([]byte, 0, min(len(b), most))
	for _, c := range b {
		if len(out) == most || c == 0 {
			break
		}
		if c < ' ' || c > '~' {
			c = '?'
		}
		out = append(out, c)
	}
	return string(out)
}

// hostname returns the name if it is a valid one (RFC 1123), else "".
func hostname(b []byte) string {
	name := strings.TrimRight(string(b), "\x00")
	if len(name) > 253 || strings.Trim(name, "-.") != name {
		return ""
	}
	for _, c := range []byte(name) {
		if c != '-' && c != '.' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return ""
		}
	}
	return name
}
