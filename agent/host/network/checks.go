package network

import (
	"context"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/ingot-metal/ingot/agent/host/netcheck"
)

// CheckNetwork examines a configuration that the host shows. before is how the network was; nil takes every address for
// a new one. The path MTU is examined to those controllers that an interface of the configuration leads to.
func (n *Configurator) CheckNetwork(
	ctx context.Context, c Config, before *SavedNetwork, controllers []netip.AddrPort,
) ([]netcheck.Check, error) {
	macs, err := cardsByMAC()
	if err != nil {
		return nil, err
	}
	o := netcheck.Order{}
	for _, i := range c.Interfaces {
		o.Interfaces = append(o.Interfaces, toCheck(i, macs, before))
	}
	for _, to := range controllers {
		if w, ok := wayTo(to.Addr().Unmap(), o.Interfaces); ok && !slices.Contains(o.Controllers, w) {
			o.Controllers = append(o.Controllers, w)
		}
	}
	return netcheck.Run(ctx, o), nil
}

func toCheck(i Interface, macs map[string]string, before *SavedNetwork) netcheck.Interface {
	out := netcheck.Interface{Name: nameOf(i, macs), Gateway: i.Gateway, MTU: i.MTU, DNS: i.DNS}
	for _, a := range i.Addresses {
		had := false
		if before != nil {
			was, _ := findLink(before.Links, out.Name)
			had = slices.ContainsFunc(was.Addresses, func(p netip.Prefix) bool { return p.Addr() == a.Addr() })
		}
		out.Addresses = append(out.Addresses, netcheck.Address{Addr: a.Addr(), New: !had})
	}
	if i.Bond != nil {
		out.Members, out.LACP = namedBond(*i.Bond, macs).Members, i.Bond.Mode == "802.3ad"
	}
	return out
}

// wayTo finds the interface that leads to an address. ok is false where that is none of the configuration's, or the
// address is a gateway, which is examined anyway.
func wayTo(to netip.Addr, interfaces []netcheck.Interface) (w netcheck.Way, ok bool) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return w, false
	}
	over, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return w, false
	}
	for _, i := range interfaces {
		if i.Name == over.Attrs().Name && i.Gateway != to {
			return netcheck.Way{To: to, Interface: i.Name, MTU: i.MTU}, true
		}
	}
	return w, false
}
