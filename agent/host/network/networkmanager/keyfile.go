package networkmanager

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"strings"

	"github.com/ingot-metal/ingot/agent/host/network"
)

// profile is one of our connections: a file of nm-settings-keyfile(5).
type profile struct {
	// link is the interface that it is for.
	link string
	// virtual: NetworkManager makes the interface.
	virtual bool
	text    string
}

// profiles returns those of a configuration in the order of activation: cards and bonds, then the links on them.
func profiles(c network.Config, cards network.Cards) []profile {
	var first, members, vlans []profile
	for _, i := range c.Interfaces {
		name := cards.NameOf(i)
		f := &file{}
		switch {
		case i.VLAN != nil:
			parent := i.VLAN.Parent
			if p := c.Find(parent); p != nil {
				parent = cards.NameOf(*p)
			}
			f.connection(name, "vlan").mtu(i.MTU)
			f.section("vlan").set("id", i.VLAN.ID).set("parent", parent).set("flags", 1)
			f.addresses(i)
			vlans = append(vlans, profile{link: name, virtual: true, text: f.String()})
			continue
		case i.Bond != nil:
			bond := cards.Bond(*i.Bond)
			f.connection(name, "bond").set("autoconnect-slaves", 1).mtu(i.MTU)
			f.bond(*bond)
			for _, m := range bond.Members {
				card := &file{}
				card.connection(m, "ethernet").set("master", name).set("slave-type", "bond").mtu(i.MTU)
				members = append(members, profile{link: m, text: card.String()})
			}
		default:
			f.connection(name, "ethernet").mtu(i.MTU)
		}
		f.addresses(i)
		first = append(first, profile{link: name, virtual: i.Bond != nil, text: f.String()})
	}
	return append(append(first, members...), vlans...)
}

// idOf is the UUID of our connection of an interface, the same at all times: RFC 9562, version 8.
func idOf(link string) string {
	h := sha256.Sum256([]byte("ingot network connection " + link))
	h[6], h[8] = h[6]&0x0f|0x80, h[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", h[:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// file is in the format of a keyfile.
type file struct{ strings.Builder }

func (f *file) section(name string) *file {
	if f.Len() > 0 {
		f.WriteByte('\n')
	}
	fmt.Fprintf(f, "[%s]\n", name)
	return f
}

func (f *file) set(key string, value any) *file {
	fmt.Fprintf(f, "%s=%v\n", key, value)
	return f
}

// connection begins the file. Ours goes before all other connections of the interface.
func (f *file) connection(link, kind string) *file {
	f.WriteString(network.FileHeader)
	return f.section("connection").set("id", "ingot-"+link).set("uuid", idOf(link)).set("type", kind).
		set("interface-name", link).set("autoconnect-priority", 999).set("autoconnect-retries", 0)
}

func (f *file) mtu(mtu int) *file {
	if mtu != 0 {
		f.section("ethernet").set("mtu", mtu)
	}
	return f
}

func (f *file) bond(b network.Bond) {
	f.section("bond").set("mode", b.Mode).set("miimon", b.MIIMon.Milliseconds())
	if b.Mode == "802.3ad" {
		f.set("lacp_rate", b.LACPRate())
	}
	if b.HashPolicy != "" {
		f.set("xmit_hash_policy", b.HashPolicy)
	}
}

// addresses writes what of IPv4 and IPv6 the interface has.
func (f *file) addresses(i network.Interface) {
	four, six := 0, 0
	for _, a := range i.Addresses {
		if a.Addr().Is4() {
			four++
		} else {
			six++
		}
	}
	method := "disabled"
	switch {
	case i.DHCP4:
		method = "auto"
	case four > 0:
		method = "manual"
	}
	f.section("ipv4").set("method", method)
	f.family(i, true)
	method = "link-local"
	switch {
	case i.AcceptRA:
		method = "auto"
	case i.DHCP6:
		method = "dhcp"
	case six > 0:
		method = "manual"
	}
	f.section("ipv6").set("method", method)
	f.family(i, false)
}

// family writes addresses, routes and servers of a family. Metric 0 is the kernel's default; NetworkManager has others.
func (f *file) family(i network.Interface, four bool) {
	f.set("may-fail", "true")
	if four {
		f.set("route-metric", 0)
	} else {
		f.set("route-metric", 1024) // IPv6 has no 0 (IP6_RT_PRIO_USER, linux/ipv6_route.h)
	}
	n := 0
	for _, a := range i.Addresses {
		if a.Addr().Is4() == four {
			n++
			f.set(fmt.Sprintf("address%d", n), a)
		}
	}
	n = 0
	for _, r := range network.OnLinkFirst(i.AllRoutes()) {
		if r.Destination.Addr().Is4() != four {
			continue
		}
		n++
		via, metric := r.Via, r.Metric
		if !via.IsValid() {
			via = netip.IPv4Unspecified()
			if !four {
				via = netip.IPv6Unspecified()
			}
		}
		if metric == 0 && !four {
			metric = 1024
		}
		f.set(fmt.Sprintf("route%d", n), fmt.Sprintf("%s,%s,%d", r.Destination, via, metric))
	}
	var servers strings.Builder
	for _, d := range i.DNS {
		if d.Is4() == four {
			servers.WriteString(d.String() + ";")
		}
	}
	if servers.Len() == 0 {
		return
	}
	f.set("dns", servers.String())
	if len(i.Search) > 0 {
		f.set("dns-search", strings.Join(i.Search, ";")+";")
	}
}
