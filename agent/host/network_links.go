package host

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// key names the interface in messages and file names.
func (i Interface) key() string {
	if i.Name != "" {
		return i.Name
	}
	return i.MAC
}

// is says whether a reference by name or MAC means this interface.
func (i Interface) is(ref string) bool {
	return ref != "" && (ref == i.Name || strings.EqualFold(ref, i.MAC))
}

// find gives the interface of the configuration that a reference means.
func (c NetworkConfig) find(ref string) *Interface {
	k := slices.IndexFunc(c.Interfaces, func(i Interface) bool { return i.is(ref) })
	if k < 0 {
		return nil
	}
	return &c.Interfaces[k]
}

// allRoutes are the routes with that of the gateway.
func (i Interface) allRoutes() []Route {
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

// normal gives a route the metric that the kernel shows: IPv6 has no 0 (IP6_RT_PRIO_USER, linux/ipv6_route.h).
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

// wanted is how the kernel is to show the configuration. macs gives the name of the card with a MAC. An attribute that
// the configuration leaves open has its zero value.
func (c NetworkConfig) wanted(macs map[string]string) []SavedLink {
	var out []SavedLink
	for _, i := range c.Interfaces {
		w := SavedLink{Name: i.nameOf(macs), MTU: i.MTU, Up: true, Addresses: i.Addresses, Routes: i.allRoutes()}
		if i.VLAN != nil {
			w.Kind, w.VLANID = "vlan", i.VLAN.ID
			w.Parent = c.find(i.VLAN.Parent).nameOf(macs)
		}
		if i.Bond != nil {
			w.Kind, w.Bond = "bond", i.Bond.named(macs)
			for _, m := range w.Bond.Members {
				out = append(out, SavedLink{Name: m, MTU: i.MTU, Up: true, Master: i.Name})
			}
		}
		out = append(out, w)
	}
	return out
}

// nameOf is the interface's name in the kernel; a card that is not there keeps its MAC for a name.
func (i Interface) nameOf(macs map[string]string) string {
	if i.Name != "" {
		return i.Name
	}
	return cmp.Or(macs[i.MAC], i.MAC)
}

// named gives the bond with its members by name, sorted.
func (b Bond) named(macs map[string]string) *Bond {
	members := make([]string, 0, len(b.Members))
	for _, m := range b.Members {
		members = append(members, cmp.Or(macs[strings.ToLower(m)], m))
	}
	slices.Sort(members)
	b.Members = members
	return &b
}

// lines describes a link, one fact a line. like says which facts count: those that it leaves open are left out.
func (s SavedLink) lines(like SavedLink) []string {
	var out []string
	add := func(format string, args ...any) {
		out = append(out, s.Name+": "+fmt.Sprintf(format, args...))
	}
	add("up %t", s.Up)
	if like.MTU != 0 {
		add("mtu %d", s.MTU)
	}
	if like.Master != "" {
		add("member of %s", s.Master)
	}
	if like.VLANID != 0 {
		add("vlan %d on %s", s.VLANID, s.Parent)
	}
	if like.Bond != nil && s.Bond != nil {
		add("bond %s", s.Bond.describe(*like.Bond))
	}
	for _, a := range sortedStrings(s.Addresses) {
		add("address %s", a)
	}
	for _, r := range sortedStrings(s.Routes) {
		add("route %s", r)
	}
	return out
}

// explicit names what a configuration leaves to the kernel: xmit_hash_policy is layer2 there (bonding.txt of the
// kernel).
func (b Bond) explicit() Bond {
	b.HashPolicy = cmp.Or(b.HashPolicy, "layer2")
	return b
}

// describe leaves out what the mode has no use for, or the other bond leaves open.
func (b Bond) describe(like Bond) string {
	text := fmt.Sprintf("mode %s miimon %s", b.Mode, b.MIIMon)
	if like.Mode == "802.3ad" {
		text += fmt.Sprintf(" lacp-fast %t", b.LACPFast)
	}
	if like.HashPolicy != "" {
		text += " hash " + b.HashPolicy
	}
	return text
}

func sortedStrings[T fmt.Stringer](list []T) []string {
	out := make([]string, 0, len(list))
	for _, v := range list {
		out = append(out, v.String())
	}
	slices.Sort(out)
	return out
}

// compare gives both sides' lines: what is wanted, and what there is of it.
func compare(want, now []SavedLink) (wanted, there []string) {
	for _, w := range want {
		wanted = append(wanted, w.lines(w)...)
		if l, ok := findLink(now, w.Name); ok {
			there = append(there, l.lines(w)...)
		}
	}
	return wanted, there
}

func findLink(links []SavedLink, name string) (SavedLink, bool) {
	k := slices.IndexFunc(links, func(l SavedLink) bool { return l.Name == name })
	if k < 0 {
		return SavedLink{}, false
	}
	return links[k], true
}

func digestLines(lines []string) string {
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return "sha256:" + hex.EncodeToString(sum[:])
}
