// Package lldp hears what a machine's network interfaces are plugged into, by the frames that switches send about
// themselves (IEEE Std 802.1AB-2016). It sends nothing.
package lldp

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/internal/safetext"
)

// EtherType is that of LLDP frames.
const EtherType = 0x88cc

// ErrMalformed is returned for a frame that does not conform to the standard.
var ErrMalformed = errors.New("malformed LLDP frame")

// Neighbour is the port at the other end of a link, as it describes itself.
type Neighbour struct {
	// Chassis and Port are its identifiers: addresses in their usual form, names as they are.
	Chassis         string `json:"chassis"`
	Port            string `json:"port"`
	PortDescription string `json:"port_description,omitempty"`
	System          string `json:"system,omitempty"`
	Description     string `json:"description,omitempty"` // volatile: it names the version of the switch's software
	// Addresses are those by which it is managed; volatile.
	Addresses []string `json:"addresses,omitempty"`
	// VLAN is the one of untagged frames; 0 is unknown.
	VLAN int `json:"vlan,omitempty"`
}

// key distinguishes neighbours (802.1AB, 6.3).
func (n Neighbour) key() string { return n.Chassis + "\x00" + n.Port }

// The types of TLVs (802.1AB, table 8-1) and the subtypes that matter.
const (
	tlvEnd, tlvChassis, tlvPort, tlvTTL                         = 0, 1, 2, 3
	tlvPortDescription, tlvSystem, tlvDescription, tlvAddresses = 4, 5, 6, 8
	tlvOrganization                                             = 127

	chassisMAC, chassisNetwork = 4, 5
	portMAC, portNetwork       = 3, 4
)

const (
	header = 14 // two addresses and the EtherType
	// mostText bounds a text in bytes; the standard allows 255.
	mostText = 255
	// mostAddresses bounds how many addresses of a neighbour are kept.
	mostAddresses = 8
)

// Parse reads one Ethernet frame. leaving reports whether the neighbour withdraws itself (a time to live of 0).
func Parse(frame []byte) (n Neighbour, leaving bool, err error) {
	if len(frame) < header || binary.BigEndian.Uint16(frame[12:]) != EtherType {
		return Neighbour{}, false, fmt.Errorf("%w: another EtherType", ErrMalformed)
	}
	rest := frame[header:]
	for i := 0; len(rest) > 0; i++ {
		kind, value, after, err := next(rest)
		switch {
		case err != nil:
			return Neighbour{}, false, err
		case i < 3 && kind != []int{tlvChassis, tlvPort, tlvTTL}[i]:
			return Neighbour{}, false, fmt.Errorf("%w: TLV %d is of type %d", ErrMalformed, i, kind)
		case kind == tlvEnd:
			return n, leaving, nil
		case i >= 3 && kind <= tlvTTL:
			return Neighbour{}, false, fmt.Errorf("%w: a second TLV of type %d", ErrMalformed, kind)
		case kind == tlvTTL:
			if len(value) < 2 {
				return Neighbour{}, false, fmt.Errorf("%w: no time to live", ErrMalformed)
			}
			leaving = binary.BigEndian.Uint16(value) == 0
		default:
			if err := n.set(kind, value); err != nil {
				return Neighbour{}, false, err
			}
		}
		rest = after
	}
	if n.Port == "" {
		return Neighbour{}, false, fmt.Errorf("%w: it ends early", ErrMalformed)
	}
	return n, leaving, nil
}

// next cuts off one TLV: seven bits of type, nine of length, and the value.
func next(b []byte) (kind int, value, rest []byte, err error) {
	if len(b) < 2 {
		return 0, nil, nil, fmt.Errorf("%w: half of a TLV", ErrMalformed)
	}
	h := binary.BigEndian.Uint16(b)
	length := int(h & 0x1ff)
	if len(b)-2 < length {
		return 0, nil, nil, fmt.Errorf("%w: a TLV is longer than the frame", ErrMalformed)
	}
	return int(h >> 9), b[2 : 2+length], b[2+length:], nil
}

// set takes over the value of a TLV. An optional value that makes no sense is left out.
func (n *Neighbour) set(kind int, value []byte) error {
	switch kind {
	case tlvChassis, tlvPort:
		if len(value) < 2 || len(value) > 1+mostText {
			return fmt.Errorf("%w: an identifier of %d bytes", ErrMalformed, len(value)-1)
		}
		if kind == tlvChassis {
			n.Chassis = identifier(value, chassisMAC, chassisNetwork)
		} else {
			n.Port = identifier(value, portMAC, portNetwork)
		}
	case tlvPortDescription:
		n.PortDescription = text(value)
	case tlvSystem:
		n.System = text(value)
	case tlvDescription:
		n.Description = text(value)
	case tlvAddresses:
		// A length that counts the family, the family and the address.
		if len(value) < 3 || int(value[0]) < 2 || len(value) <= int(value[0]) || len(n.Addresses) == mostAddresses {
			return nil
		}
		if a := network(value[1 : 1+value[0]]); a != "" && !slices.Contains(n.Addresses, a) {
			n.Addresses = append(n.Addresses, a)
		}
	case tlvOrganization:
		// IEEE 802.1, subtype 1: port VLAN identifier (IEEE Std 802.1Q, annex D).
		if len(value) >= 6 && string(value[:4]) == "\x00\x80\xc2\x01" {
			n.VLAN = int(binary.BigEndian.Uint16(value[4:]))
		}
	}
	return nil
}

// identifier reads a subtype and its value.
func identifier(value []byte, subtypeMAC, subtypeNetwork byte) string {
	subtype, id := value[0], value[1:]
	switch {
	case subtype == subtypeMAC && len(id) == 6:
		return net.HardwareAddr(id).String()
	case subtype == subtypeNetwork:
		if a := network(id); a != "" {
			return a
		}
	}
	return cmp.Or(readable(id), hex.EncodeToString(id))
}

// network reads a family (IANA Address Family Numbers: 1 and 2 are IP, 6 is a MAC address) and an address of it.
func network(b []byte) string {
	family, address := b[0], b[1:]
	if family == 6 && len(address) == 6 {
		return net.HardwareAddr(address).String()
	}
	if a, ok := netip.AddrFromSlice(address); ok && (family == 1 && a.Is4() || family == 2 && a.Is6()) {
		return a.String()
	}
	return ""
}

// readable is a text of which nothing had to be left out, empty for anything else.
func readable(b []byte) string {
	if s := strings.TrimRight(string(b), "\x00"); s == text(b) {
		return s
	}
	return ""
}

// text drops bytes that cannot be shown, and bytes over the limit.
func text(b []byte) string {
	if len(b) > mostText {
		b = b[:mostText]
	}
	return strings.Trim(safetext.Line(string(b)), " ")
}
