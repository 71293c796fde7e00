package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// reconcile makes the kernel show the wanted links: bonds and VLANs are made, members taken, addresses and routes added
// and then those that are not wanted removed. Links that are not named stay as they are. Every step may be repeated.
func reconcile(want []SavedLink) error {
	return inPhases(want, makeBond, enslave, makeVLAN, raise, setAddresses, setRoutes)
}

// phase takes one step towards a wanted link, seeing what there is.
type phase func(want SavedLink, now []SavedLink) error

// inPhases takes each step for all links before the next.
func inPhases(want []SavedLink, phases ...phase) error {
	var errs []error
	for _, step := range phases {
		now, err := kernelLinks()
		if err != nil {
			return err
		}
		for _, w := range want {
			if err := step(w, now); err != nil {
				errs = append(errs, fmt.Errorf("configure %s: %w", w.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}

// removeOutdated removes links that stand in the way of the wanted ones.
func removeOutdated(was, want []SavedLink) (removed []string, err error) {
	now, err := kernelLinks()
	if err != nil {
		return nil, err
	}
	removed = append(outdated(was, want), idleBonds(want, now)...)
	return removed, removeLinks(removed)
}

// removeLinks deletes bonds and VLANs by name. One that is gone is no error.
func removeLinks(names []string) error {
	for _, name := range names {
		l, err := netlink.LinkByName(name)
		if IsNoLink(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("find %s: %w", name, err)
		}
		if l.Type() != "bond" && l.Type() != "vlan" {
			continue // a foreign one, by the same name
		}
		if err := netlink.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
			return fmt.Errorf("delete %s: %w", name, err)
		}
	}
	return nil
}

func IsNoLink(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing)
}

// outdated names the bonds and VLANs there that must be made anew: not wanted any more, or otherwise.
func outdated(old, want []SavedLink) []string {
	var names []string
	for _, o := range old {
		if o.Kind != "bond" && o.Kind != "vlan" {
			continue
		}
		w, ok := findLink(want, o.Name)
		same := ok && w.VLANID == o.VLANID && w.Parent == o.Parent && (w.Bond == nil) == (o.Bond == nil)
		if same && o.Bond != nil {
			a, b := explicitBond(*w.Bond), explicitBond(*o.Bond)
			same = describeBond(a, a) == describeBond(b, a)
		}
		if !same {
			names = append(names, o.Name)
		}
	}
	return names
}

// idleBonds returns the unused bonds that must be made anew. The driver makes a bond0 of its own when it is loaded
// (max_bonds in bonding.txt of the kernel). Neither networkd nor we could set its mode.
func idleBonds(want, now []SavedLink) []string {
	var names []string
	for _, w := range want {
		is, there := findLink(now, w.Name)
		if w.Bond == nil || !there || is.Bond == nil || is.Up || len(is.Bond.Members)+len(is.Addresses) > 0 {
			continue
		}
		if describeBond(*is.Bond, *w.Bond) != describeBond(*w.Bond, *w.Bond) {
			names = append(names, w.Name)
		}
	}
	return names
}

func makeBond(w SavedLink, now []SavedLink) error {
	if _, there := findLink(now, w.Name); w.Bond == nil || there {
		return nil
	}
	b := netlink.NewLinkBond(netlink.LinkAttrs{Name: w.Name})
	b.Mode = netlink.StringToBondMode(w.Bond.Mode)
	b.Miimon = int(w.Bond.MIIMon / time.Millisecond)
	if w.Bond.Mode == "802.3ad" {
		b.LacpRate = netlink.BOND_LACP_RATE_SLOW
		if w.Bond.LACPFast {
			b.LacpRate = netlink.BOND_LACP_RATE_FAST
		}
	}
	if w.Bond.HashPolicy != "" {
		b.XmitHashPolicy = netlink.StringToBondXmitHashPolicy(w.Bond.HashPolicy)
	}
	return netlink.LinkAdd(b)
}

// enslave adds a card to its bond, or removes it. A card must be down to join (bonding.txt of the kernel).
func enslave(w SavedLink, now []SavedLink) error {
	is, ok := findLink(now, w.Name)
	if is.Master == w.Master {
		return nil
	}
	if !ok {
		return errors.New("no such interface")
	}
	card, err := netlink.LinkByName(w.Name)
	if err != nil {
		return err
	}
	if w.Master == "" {
		return netlink.LinkSetNoMaster(card)
	}
	bond, err := netlink.LinkByName(w.Master)
	if err != nil {
		return err
	}
	if err := netlink.LinkSetDown(card); err != nil {
		return err
	}
	return netlink.LinkSetMaster(card, bond)
}

func makeVLAN(w SavedLink, now []SavedLink) error {
	if _, there := findLink(now, w.Name); w.VLANID == 0 || there {
		return nil
	}
	parent, err := netlink.LinkByName(w.Parent)
	if err != nil {
		return err
	}
	return netlink.LinkAdd(&netlink.Vlan{
		LinkAttrs: netlink.LinkAttrs{Name: w.Name, ParentIndex: parent.Attrs().Index}, VlanId: w.VLANID,
	})
}

func raise(w SavedLink, now []SavedLink) error {
	is, _ := findLink(now, w.Name)
	l, err := netlink.LinkByName(w.Name)
	if err != nil {
		return err
	}
	if w.MTU != 0 && w.MTU != is.MTU {
		if err := netlink.LinkSetMTU(l, w.MTU); err != nil {
			return fmt.Errorf("set MTU %d: %w", w.MTU, err)
		}
	}
	switch {
	case w.Up && !is.Up:
		return netlink.LinkSetUp(l)
	case !w.Up && is.Up:
		return netlink.LinkSetDown(l)
	}
	return nil
}

// setAddresses adds before it removes, so that a kept network never loses its routes.
func setAddresses(w SavedLink, now []SavedLink) error {
	is, _ := findLink(now, w.Name)
	l, err := netlink.LinkByName(w.Name)
	if err != nil {
		return err
	}
	for _, p := range w.Addresses {
		if slices.Contains(is.Addresses, p) {
			continue
		}
		if err := netlink.AddrReplace(l, kernelAddress(w, p)); err != nil {
			return fmt.Errorf("add address %s: %w", p, err)
		}
	}
	for _, p := range is.Addresses {
		if slices.Contains(w.Addresses, p) {
			continue
		}
		if err := netlink.AddrDel(l, &netlink.Addr{IPNet: ipNet(p)}); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("remove address %s: %w", p, err)
		}
	}
	return nil
}

// kernelAddress is one of the link's addresses as it was shown, or with the usual broadcast. IFA_F_NOPREFIXROUTE is
// left out: the route that replaced the kernel's is not saved.
func kernelAddress(s SavedLink, p netip.Prefix) *netlink.Addr {
	for _, a := range s.Shown {
		if shown, _ := staticAddress(a); shown != p {
			continue
		}
		if a.Broadcast = a.Broadcast.To4(); a.Broadcast == nil { // JSON makes 16 bytes of an address
			a.Broadcast = net.IPv4zero // the library's word for none
		}
		a.Flags &= unix.IFA_F_NODAD
		return &a
	}
	return &netlink.Addr{IPNet: ipNet(p)}
}

func setRoutes(w SavedLink, now []SavedLink) error {
	is, _ := findLink(now, w.Name)
	l, err := netlink.LinkByName(w.Name)
	if err != nil {
		return err
	}
	for _, r := range is.Routes {
		if slices.ContainsFunc(w.Routes, func(o Route) bool { return o.normal() == r.normal() }) {
			continue
		}
		if err := netlink.RouteDel(kernelRoute(l, r)); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("remove route %s: %w", r, err)
		}
	}
	for _, r := range OnLinkFirst(w.Routes) {
		if slices.ContainsFunc(is.Routes, func(o Route) bool { return o.normal() == r.normal() }) {
			continue
		}
		if err := netlink.RouteReplace(kernelRoute(l, r)); err != nil {
			return fmt.Errorf("add route %s: %w", r, err)
		}
	}
	return nil
}

// OnLinkFirst puts routes that others' next hops may need before those.
func OnLinkFirst(routes []Route) []Route {
	routes = slices.Clone(routes)
	slices.SortStableFunc(routes, func(a, b Route) int {
		switch {
		case a.Via.IsValid() == b.Via.IsValid():
			return 0
		case b.Via.IsValid():
			return -1
		}
		return 1
	})
	return routes
}

func kernelRoute(l netlink.Link, r Route) *netlink.Route {
	out := &netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: ipNet(r.Destination), Priority: int(r.Metric),
		Protocol: unix.RTPROT_STATIC, Table: unix.RT_TABLE_MAIN,
	}
	if r.Source.IsValid() {
		out.Src = r.Source.AsSlice()
	}
	if r.OnLink {
		out.Flags = unix.RTNH_F_ONLINK
	}
	out.MTU = r.MTU
	if r.Protocol != 0 {
		out.Protocol = netlink.RouteProtocol(r.Protocol)
	}
	if r.Via.IsValid() {
		out.Gw = r.Via.AsSlice()
	} else if r.Destination.Addr().Is4() {
		out.Scope = netlink.SCOPE_LINK
	}
	return out
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
