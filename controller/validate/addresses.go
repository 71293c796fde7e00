package validate

import (
	"fmt"
	"net/netip"
	"slices"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

func (n *network) addresses(at string, i *baremetalv1.NetworkInterface) {
	n.oneOf(at+".dhcp", i.GetDhcp(), dhcpWords)
	if len(i.GetAddresses()) > maxPerList {
		n.f.add(at+".addresses", fmt.Sprintf("more than %d addresses", maxPerList))
		return
	}
	for k, s := range i.GetAddresses() {
		path := fmt.Sprintf("%s.addresses[%d]", at, k)
		p, fault := interfaceAddress(s)
		n.f.add(path, fault)
		if fault == "" {
			n.once(path, "address", p.Addr().String())
		}
	}
}

// interfaceAddress reads an address with its prefix length, and describes what keeps a host from having it.
func interfaceAddress(s string) (p netip.Prefix, fault string) {
	p, err := netip.ParsePrefix(s)
	a := p.Addr()
	switch {
	case err != nil:
		return p, "not an address with prefix length, such as 192.0.2.7/24"
	case a.Is4In6():
		return p, "write it as IPv4"
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) ||
		p.Bits() == 0:
		return p, notOfAHost
	case a.Is4() && p.Bits() < 31 && (a == p.Masked().Addr() || a == lastOf(p)):
		return p, "is the network's own or broadcast address, not a host's"
	}
	return p, ""
}

// lastOf is the broadcast address of an IPv4 network.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < 32; bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	return netip.AddrFrom4(b)
}

func (n *network) names(at string, i *baremetalv1.NetworkInterface) {
	if len(i.GetDnsServers()) > maxPerList || len(i.GetSearchDomains()) > maxPerList {
		n.f.add(at+".dns_servers", fmt.Sprintf("more than %d servers or domains", maxPerList))
		return
	}
	for k, s := range i.GetDnsServers() {
		path := fmt.Sprintf("%s.dns_servers[%d]", at, k)
		a, err := netip.ParseAddr(s)
		switch {
		case err != nil || a.Zone() != "":
			n.f.add(path, "not an IP address")
		case a.IsUnspecified() || a.IsMulticast():
			n.f.add(path, notOfAHost)
		default:
			n.once(path, "DNS server of "+at, a.String())
		}
	}
	for k, s := range i.GetSearchDomains() {
		if len(s) > 253 || !dnsName(s) {
			n.f.add(fmt.Sprintf("%s.search_domains[%d]", at, k), "not a domain name")
		}
	}
}

func (n *network) routes(at string, i *baremetalv1.NetworkInterface) {
	if i.GetGateway() != "" {
		gw, fault := n.nextHop(i, i.GetGateway())
		n.f.add(at+".gateway", fault)
		if fault == "" {
			n.once(at+".gateway", "default route", defaultRoute(gw, 0))
		}
	}
	if len(i.GetRoutes()) > maxPerList {
		n.f.add(at+".routes", fmt.Sprintf("more than %d routes", maxPerList))
		return
	}
	for k, r := range i.GetRoutes() {
		n.route(fmt.Sprintf("%s.routes[%d]", at, k), i, r)
	}
}

// defaultRoute names one: the kernel has one of a family and metric.
func defaultRoute(via netip.Addr, metric uint32) string {
	if via.Is4() {
		return fmt.Sprintf("of IPv4 with metric %d", metric)
	}
	return fmt.Sprintf("of IPv6 with metric %d", metric)
}

func (n *network) route(at string, i *baremetalv1.NetworkInterface, r *baremetalv1.NetworkRoute) {
	var via netip.Addr
	if r.GetVia() != "" {
		var fault string
		if via, fault = n.nextHop(i, r.GetVia()); fault != "" {
			n.f.add(at+".via", fault)
			return
		}
	}
	if r.GetDestination() == "default" {
		if !via.IsValid() {
			n.f.add(at+".via", "required for a default route")
			return
		}
		n.once(at+".destination", "default route", defaultRoute(via, r.GetMetric()))
		return
	}
	if fault := cidr(r.GetDestination()); fault != "" {
		n.f.add(at+".destination", fault)
		return
	}
	p := netip.MustParsePrefix(r.GetDestination())
	if via.IsValid() && via.Is4() != p.Addr().Is4() {
		n.f.add(at+".via", "is not of the destination's address family")
		return
	}
	if p.Bits() == 0 && via.IsValid() {
		n.once(at+".destination", "default route", defaultRoute(via, r.GetMetric()))
		return
	}
	n.once(at+".destination", "route", fmt.Sprintf("%s with metric %d", p, r.GetMetric()))
}

// nextHop reads an address that must be reachable over the interface itself.
func (n *network) nextHop(i *baremetalv1.NetworkInterface, s string) (a netip.Addr, fault string) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil || a.Zone() != "" || a.Is4In6():
		return a, "not an IP address"
	case a.IsUnspecified() || a.IsMulticast() || a.IsLoopback():
		return a, notOfAHost
	case a.Is6() && a.IsLinkLocalUnicast(), dynamic(i, a):
		return a, ""
	}
	own := false
	on := slices.ContainsFunc(i.GetAddresses(), func(s string) bool {
		p, err := netip.ParsePrefix(s)
		own = own || err == nil && p.Addr() == a
		return err == nil && p.Contains(a)
	})
	switch {
	case own:
		return a, "is an address of the interface itself"
	case !on:
		return a, "is not on the link: in none of the networks of addresses"
	}
	return a, ""
}

// dynamic reports whether the networks of the link are not known before it is up.
func dynamic(i *baremetalv1.NetworkInterface, a netip.Addr) bool {
	switch i.GetDhcp() {
	case "yes":
		return true
	case "ipv4":
		return a.Is4()
	case "ipv6":
		return a.Is6()
	}
	return i.GetAcceptRa() && a.Is6()
}
