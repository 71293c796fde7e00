// Package segment is the plain data that the services of a site share: the network segments that they serve, and what
// the controller has assigned to the machines on them. It does no I/O.
package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"
)

// Mode is how the machines of a segment get their addresses.
type Mode string

const (
	// ModeDHCP: the site agent is the DHCP server of the segment.
	ModeDHCP Mode = "dhcp"
	// ModeProxy: another DHCP server assigns addresses, the site agent only adds the boot options.
	ModeProxy Mode = "proxy"
	// ModeStatic: there is no DHCP. Machines are started from images that their BMCs attach.
	ModeStatic Mode = "static"
)

// Discovery is the treatment of a machine without an assignment.
type Discovery string

const (
	// DiscoveryOff: an address, if we assign any, and nothing else; it is not reported.
	DiscoveryOff Discovery = "off"
	// DiscoveryReport: as off, and it is reported to the controller.
	DiscoveryReport Discovery = "report"
	// DiscoveryBoot: it is reported to the controller, and the machine boots the discovery image.
	DiscoveryBoot Discovery = "boot"
)

// Segment is one broadcast domain that the site agent serves, through one interface.
type Segment struct {
	// Name is unique in the site.
	Name string
	// Interface is the name of the network device. Nothing is sent or answered on any other.
	Interface string
	// Address is the site agent's own on Interface, with the length of the prefix. It is also the server identifier of
	// DHCP and the host of boot URLs.
	Address netip.Prefix
	// Subnet is the network of the machines. Only a segment behind a relay needs it; otherwise it is that of Address.
	Subnet netip.Prefix
	// PoolStart and PoolEnd are the first and the last address for machines without a fixed one. Both absent: there is
	// no pool, and only machines with a fixed address get one.
	PoolStart, PoolEnd netip.Addr
	// Router is the default gateway that machines get, if any.
	Router netip.Addr
	// DNS are the name servers that machines get.
	DNS []netip.Addr
	// LeaseTime is how long an address is lent; at least a minute.
	LeaseTime time.Duration
	Mode      Mode
	Discovery Discovery
	// Relays are the addresses (giaddr) of relay agents that may ask for machines of this segment.
	Relays []netip.Addr
	// HTTPPort is the port of the site's HTTP boot server on Address.
	HTTPPort int
}

// Network is the prefix that the machines of the segment live in.
func (s Segment) Network() netip.Prefix {
	if s.Subnet.IsValid() {
		return s.Subnet.Masked()
	}
	return s.Address.Masked()
}

// HTTPBase is the URL of the site's boot server as machines of this segment reach it, without a slash at its end.
func (s Segment) HTTPBase() string {
	return "http://" + netip.AddrPortFrom(s.Address.Addr(), uint16(s.HTTPPort)).String()
}

// MaxPool is the most addresses that a pool may have: each has an entry in memory.
const MaxPool = 1 << 16

// MinLeaseTime is the shortest LeaseTime that is accepted: clients renew at half of it.
const MinLeaseTime = time.Minute

// Validate returns all problems, joined.
func (s Segment) Validate() error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("segment %q: "+format, append([]any{s.Name}, args...)...))
	}
	if s.Name == "" {
		bad("it has no name")
	}
	if s.Interface == "" {
		bad("it has no interface")
	}
	if !s.Address.IsValid() || !s.Address.Addr().Is4() {
		bad("address %v is not an IPv4 address with a prefix length", s.Address)
	}
	if s.Subnet.IsValid() && !s.Subnet.Addr().Is4() {
		bad("subnet %v is not of IPv4", s.Subnet)
	}
	if s.HTTPPort < 1 || s.HTTPPort > 65535 {
		bad("http port %s is not between 1 and 65535", strconv.Itoa(s.HTTPPort))
	}
	switch s.Discovery {
	case DiscoveryOff, DiscoveryReport, DiscoveryBoot:
	default:
		bad("discovery %q is not off, report or boot", s.Discovery)
	}
	for what, list := range map[string][]netip.Addr{"router": {s.Router}, "name server": s.DNS, "relay": s.Relays} {
		for _, a := range list {
			if a != (netip.Addr{}) && !a.Is4() || a == (netip.Addr{}) && what != "router" {
				bad("%s %v is not an IPv4 address", what, a)
			}
		}
	}
	switch s.Mode {
	case ModeDHCP:
		problems = append(problems, s.validatePool()...)
	case ModeProxy, ModeStatic:
	default:
		bad("mode %q is not dhcp, proxy or static", s.Mode)
	}
	return errors.Join(problems...)
}

func (s Segment) validatePool() []error {
	var problems []error
	bad := func(format string, args ...any) {
		problems = append(problems, fmt.Errorf("segment %q: "+format, append([]any{s.Name}, args...)...))
	}
	if s.LeaseTime < MinLeaseTime {
		bad("lease time %v is under %v", s.LeaseTime, MinLeaseTime)
	}
	if !s.PoolStart.IsValid() && !s.PoolEnd.IsValid() {
		return problems
	}
	network := s.Network()
	if !network.Contains(s.PoolStart) || !network.Contains(s.PoolEnd) {
		bad("pool %v to %v is not in %v", s.PoolStart, s.PoolEnd, network)
	}
	if s.PoolEnd.Less(s.PoolStart) {
		bad("pool ends at %v, before its start %v", s.PoolEnd, s.PoolStart)
	}
	if n := s.poolSize(); n > MaxPool {
		bad("pool has %d addresses, more than %d", n, MaxPool)
	}
	return problems
}

func (s Segment) poolSize() int64 {
	if !s.PoolStart.Is4() || !s.PoolEnd.Is4() {
		return 0
	}
	first, last := s.PoolStart.As4(), s.PoolEnd.As4()
	return int64(binary.BigEndian.Uint32(last[:])) - int64(binary.BigEndian.Uint32(first[:])) + 1
}
