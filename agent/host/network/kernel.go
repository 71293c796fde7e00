package network

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/agent/host/netdump"
)

// kernelLinks reads all interfaces but the loopback.
func kernelLinks() ([]SavedLink, error) {
	list, err := netdump.Links()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	names := map[int]string{}
	for _, l := range list {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	var out []SavedLink
	for _, l := range list {
		if l.Attrs().EncapType == "loopback" {
			continue
		}
		s, err := kernelLink(l, names)
		if err != nil {
			return nil, fmt.Errorf("read interface %s: %w", l.Attrs().Name, err)
		}
		out = append(out, s)
	}
	for i := range out {
		addMembers(&out[i], out)
	}
	return out, nil
}

func kernelLink(l netlink.Link, names map[int]string) (SavedLink, error) {
	a := l.Attrs()
	s := SavedLink{Name: a.Name, Kind: l.Type(), MTU: a.MTU, Up: a.RawFlags&unix.IFF_UP != 0, Master: names[a.MasterIndex]}
	switch l := l.(type) {
	case *netlink.Vlan:
		s.VLANID, s.Parent = l.VlanId, names[a.ParentIndex]
	case *netlink.Bond:
		s.Bond = &Bond{
			Mode: l.Mode.String(), MIIMon: time.Duration(l.Miimon) * time.Millisecond,
			LACPFast: l.LacpRate == netlink.BOND_LACP_RATE_FAST, HashPolicy: l.XmitHashPolicy.String(),
		}
	}
	addrs, err := netdump.Addresses(l, netlink.FAMILY_ALL)
	if err != nil {
		return s, fmt.Errorf("list addresses: %w", err)
	}
	for _, addr := range addrs {
		if p, ok := staticAddress(addr); ok {
			s.Addresses, s.Shown = append(s.Addresses, p), append(s.Shown, addr)
		}
	}
	s.Routes, err = kernelRoutes(l)
	if leasedByDhclient(a.Name, addrs) {
		s.Routes = slices.DeleteFunc(s.Routes, func(r Route) bool {
			return r.Destination.Addr().Is4() && r.Protocol == unix.RTPROT_BOOT
		})
	}
	return s, err
}

// leasedByDhclient reports whether the interface has an address by ISC's dhclient, as ifup starts it. The routes that
// its script sets look like those that are set by hand (dhclient-script(8)).
func leasedByDhclient(name string, addrs []netlink.Addr) bool {
	leased := func(a netlink.Addr) bool { return a.IP.To4() != nil && a.Flags&unix.IFA_F_PERMANENT == 0 }
	if !slices.ContainsFunc(addrs, leased) {
		return false
	}
	// The first is written once the route is set, the second may be older than the host's present way.
	for _, file := range []string{"/run/dhclient." + name + ".pid", "/var/lib/dhcp/dhclient." + name + ".leases"} {
		if _, err := os.Stat(file); err == nil {
			return true
		}
	}
	return false
}

// addMembers fills in who the members of a bond are.
func addMembers(s *SavedLink, all []SavedLink) {
	if s.Bond == nil {
		return
	}
	for _, l := range all {
		if l.Master == s.Name {
			s.Bond.Members = append(s.Bond.Members, l.Name)
		}
	}
	slices.Sort(s.Bond.Members)
}

// staticAddress leaves out what the kernel or a DHCP client adds and lets expire, and link-local IPv6.
func staticAddress(a netlink.Addr) (netip.Prefix, bool) {
	ip, ok := netip.AddrFromSlice(a.IP)
	if !ok || a.Flags&unix.IFA_F_PERMANENT == 0 {
		return netip.Prefix{}, false
	}
	ip = ip.Unmap()
	if ip.Is6() && ip.IsLinkLocalUnicast() {
		return netip.Prefix{}, false
	}
	bits, _ := a.Mask.Size()
	return netip.PrefixFrom(ip, bits), true
}

// kernelRoutes returns the configured routes of the main table.
func kernelRoutes(l netlink.Link) ([]Route, error) {
	var out []Route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netdump.Routes(family,
			&netlink.Route{LinkIndex: l.Attrs().Index, Table: unix.RT_TABLE_MAIN},
			netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			if route, ok := staticRoute(r, family); ok {
				out = append(out, route)
			}
		}
	}
	return out, nil
}

// staticRoute leaves out those of the kernel, DHCP, router advertisements and routing daemons (rtnetlink(7),
// rtm_protocol).
func staticRoute(r netlink.Route, family int) (Route, bool) {
	if r.Protocol != unix.RTPROT_BOOT && r.Protocol != unix.RTPROT_STATIC || r.Type != unix.RTN_UNICAST {
		return Route{}, false
	}
	out := Route{Metric: uint32(r.Priority), Destination: netip.PrefixFrom(netip.IPv4Unspecified(), 0)}
	if family == netlink.FAMILY_V6 {
		out.Destination = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	if r.Dst != nil {
		ip, ok := netip.AddrFromSlice(r.Dst.IP)
		if !ok {
			return Route{}, false
		}
		bits, _ := r.Dst.Mask.Size()
		out.Destination = netip.PrefixFrom(ip.Unmap(), bits)
	}
	if via, ok := netip.AddrFromSlice(r.Gw); ok {
		out.Via = via.Unmap()
	}
	if src, ok := netip.AddrFromSlice(r.Src); ok {
		out.Source = src.Unmap()
	}
	out.MTU, out.OnLink = r.MTU, r.Flags&unix.RTNH_F_ONLINK != 0
	if r.Protocol != unix.RTPROT_STATIC {
		out.Protocol = int(r.Protocol)
	}
	return out, len(r.MultiPath) == 0
}

// cardsByMAC returns the names of cards by their permanent MAC, or by their present one where the driver names none.
// Bonds, bridges and VLANs, which borrow a card's address, are left out.
func cardsByMAC() (map[string]string, error) {
	list, err := netdump.Links()
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	out := map[string]string{}
	for _, l := range list {
		if k := l.Type(); k != "device" && k != "veth" && k != "dummy" && k != "tuntap" {
			continue
		}
		mac, _ := macOf(l)
		if mac != "" {
			out[mac] = l.Attrs().Name
		}
	}
	return out, nil
}

// macOf returns the card's address, and reports whether it is a permanent one.
func macOf(l netlink.Link) (mac string, permanent bool) {
	if perm := l.Attrs().PermHWAddr; len(perm) == 6 && perm.String() != "00:00:00:00:00:00" {
		return perm.String(), true
	}
	return l.Attrs().HardwareAddr.String(), false
}
