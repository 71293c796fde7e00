package network

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/internal/hwid"
)

// Key names the interface in messages and file names.
func (i Interface) Key() string {
	if i.Name != "" {
		return i.Name
	}
	return i.MAC
}

// Is reports whether a reference by name or MAC means this interface.
func (i Interface) Is(ref string) bool {
	return ref != "" && (ref == i.Name || hwid.SameMAC(ref, i.MAC))
}

// Find returns the interface of the configuration that a reference means.
func (c Config) Find(ref string) *Interface {
	k := slices.IndexFunc(c.Interfaces, func(i Interface) bool { return i.Is(ref) })
	if k < 0 {
		return nil
	}
	return &c.Interfaces[k]
}

// AllRoutes are the routes with that of the gateway.
func (i Interface) AllRoutes() []Route {
	routes := slices.Clone(i.Routes)
	if i.Gateway.IsValid() {
		routes = append(routes, Route{Destination: defaultOf(i.Gateway), Via: i.Gateway})
	}
	return routes
}

// defaultOf is the default route's destination in the family of an address.
func defaultOf(a netip.Addr) netip.Prefix {
	if a.Is4() {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// normal returns a route with the metric that the kernel shows: IPv6 has no 0 (IP6_RT_PRIO_USER, linux/ipv6_route.h).
func (r Route) normal() Route {
	if r.Metric == 0 && r.Destination.Addr().Is6() {
		r.Metric = 1024
	}
	r.Protocol = 0
	return r
}

func (r Route) String() string {
	r = r.normal()
	var b strings.Builder
	fmt.Fprintf(&b, "%s", r.Destination)
	if r.Via.IsValid() {
		fmt.Fprintf(&b, " via %s", r.Via)
	}
	fmt.Fprintf(&b, " metric %d", r.Metric)
	if r.Source.IsValid() {
		fmt.Fprintf(&b, " src %s", r.Source)
	}
	if r.MTU != 0 {
		fmt.Fprintf(&b, " mtu %d", r.MTU)
	}
	if r.OnLink {
		b.WriteString(" onlink")
	}
	return b.String()
}
