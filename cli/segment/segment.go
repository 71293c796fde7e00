// Package segment derives what a site agent serves on a network device from the device's own address.
package segment

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

const (
	// largestPool is enough for any segment, and well within what the controller takes.
	largestPool = 4096
	// longestPrefix leaves addresses for machines: a /29 has six in all.
	longestPrefix = 29
)

// New returns the segment of a network device with an address such as 10.20.0.1/24. Without a pool, START-END, the pool
// is the half of the network in which the device's own address is not.
func New(device, address, pool string) (*pb.Segment, error) {
	own, err := netip.ParsePrefix(address)
	if err != nil || !own.Addr().Is4() {
		return nil, fmt.Errorf("%q is not an IPv4 address with its prefix length, such as 10.20.0.1/24", address)
	}
	s := &pb.Segment{Name: name(device), Interface: device, Address: own.String()}
	if pool != "" {
		first, last, _ := strings.Cut(pool, "-") // without a dash last is no address
		start, err := netip.ParseAddr(first)
		end, endErr := netip.ParseAddr(last)
		if err != nil || endErr != nil {
			return nil, fmt.Errorf("%q is not a pool, such as 10.20.0.100-10.20.0.199", pool)
		}
		if !own.Contains(start) || !own.Contains(end) || end.Less(start) {
			return nil, fmt.Errorf("the pool %s is not in the network %s", pool, own.Masked())
		}
		s.PoolStart, s.PoolEnd = start.String(), end.String()
		return s, nil
	}
	start, end, err := half(own)
	if err != nil {
		return nil, err
	}
	s.PoolStart, s.PoolEnd = start.String(), end.String()
	return s, nil
}

// Reach sets the router and the name servers of machines on the segment; "" and none set nothing.
func Reach(s *pb.Segment, router string, dns []string) error {
	for _, a := range append([]string{router}, dns...) {
		if ip, err := netip.ParseAddr(a); a != "" && (err != nil || !ip.Is4()) {
			return fmt.Errorf("%q is not an IPv4 address", a)
		}
	}
	s.Router, s.Dns = router, dns
	return nil
}

// Modes are the sources of addresses on a segment.
var Modes = []string{"dhcp", "proxy", "static"}

// ModeUsage describes the flag that chooses one of them.
const ModeUsage = "dhcp, proxy where another server assigns the addresses, or static where none does"

// In sets the source of addresses on the segment. Only mode dhcp has a pool; in other modes a pool is refused.
func In(s *pb.Segment, mode, pool string) error {
	s.Mode = mode
	if mode == "dhcp" {
		return nil
	}
	if pool != "" {
		return fmt.Errorf("a segment in mode %s has no pool: its site gives no addresses", mode)
	}
	s.PoolStart, s.PoolEnd = "", ""
	return nil
}

// Addresses describes in words which addresses machines get.
func Addresses(s *pb.Segment) string {
	if s.GetPoolStart() == "" {
		return "gives machines no addresses (mode " + s.GetMode() + ")"
	}
	return "gives machines " + s.GetPoolStart() + "-" + s.GetPoolEnd()
}

// half returns the first and the last address of the half without own.
func half(own netip.Prefix) (start, end netip.Addr, err error) {
	if own.Bits() > longestPrefix {
		return start, end, fmt.Errorf("%s has no room for machines: its prefix is longer than /%d", own, longestPrefix)
	}
	network := binary.BigEndian.Uint32(own.Masked().Addr().AsSlice())
	size := uint32(1) << (32 - own.Bits()) //nolint:gosec // a prefix of IPv4 has at most 32 bits; /0 gives 0 below
	if own.Bits() == 0 {
		return start, end, fmt.Errorf("%s is not a network", own)
	}
	first, last := network+size/2, network+size-2 // the last address of a network is its broadcast address
	if binary.BigEndian.Uint32(own.Addr().AsSlice()) >= first {
		first, last = network+1, first-1
	}
	last = min(last, first+largestPool-1)
	return address(first), address(last), nil
}

func address(n uint32) netip.Addr {
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, n)))
}

// name makes the device's name one of a segment, in which dots and capitals are not allowed.
func name(device string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(device))
}
