package ifupdown

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/agent/host/network"
)

// render writes the configuration as interfaces(5). Bonds and VLANs are made by commands of ip(8), so that neither the
// package ifenslave nor vlan is needed.
func render(c network.Config, cards network.Cards) string {
	var b strings.Builder
	b.WriteString(network.FileHeader)
	interfaces := slices.Clone(c.Interfaces)
	slices.SortStableFunc(interfaces, func(a, b network.Interface) int { // what VLANs are on comes first
		switch {
		case (a.VLAN == nil) == (b.VLAN == nil):
			return 0
		case a.VLAN == nil:
			return -1
		}
		return 1
	})
	for _, i := range interfaces {
		w := writer{b: &b, name: cards.NameOf(i)}
		fmt.Fprintf(&b, "\nauto %s\n", w.name)
		w.write(c, i, cards)
	}
	return b.String()
}

// namesIn returns the interfaces of a text of render: those that it brings up, and the members of its bonds.
func namesIn(text string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 2 && fields[0] == "auto" {
			names[fields[1]] = true
		}
		if len(fields) == 8 && fields[0] == "pre-up" && fields[6] == "master" {
			names[fields[5]] = true
		}
	}
	return names
}

// writer writes the stanzas of one interface.
type writer struct {
	b    *strings.Builder
	name string
}

func (w writer) stanza(family, method string) {
	fmt.Fprintf(w.b, "iface %s %s %s\n", w.name, family, method)
}

func (w writer) set(format string, args ...any) { fmt.Fprintf(w.b, "\t"+format+"\n", args...) }

func (w writer) write(c network.Config, i network.Interface, cards network.Cards) {
	four, six := split(i.Addresses)
	method := "manual"
	switch {
	case len(four) > 0:
		method = "static"
	case i.DHCP4:
		method = "dhcp"
	}
	w.stanza("inet", method)
	w.device(c, i, cards)
	if len(six) == 0 && !i.DHCP6 && !i.AcceptRA {
		w.set("pre-up echo 0 >/proc/sys/net/ipv6/conf/%s/accept_ra || true", w.name)
	}
	if len(four) > 0 {
		w.set("address %s", four[0])
	}
	w.resolver(i)
	if len(four) > 0 {
		for _, a := range four[1:] {
			w.stanza("inet", "static")
			w.set("address %s", a)
		}
		if i.DHCP4 {
			w.stanza("inet", "dhcp")
		}
	}
	w.routes(i, true)
	w.six(i, six)
	w.routes(i, false)
}

// device makes what the addresses are on.
func (w writer) device(c network.Config, i network.Interface, cards network.Cards) {
	exists := fmt.Sprintf("pre-up [ -e /sys/class/net/%s ] || ip link add", w.name)
	switch {
	case i.Bond != nil:
		bond := cards.Bond(*i.Bond)
		w.set("%s dev %s type bond %s", exists, w.name, bondOptions(*bond))
		for _, m := range bond.Members { // a card must be down to join
			w.set("pre-up ip link set dev %s down", m)
			w.set("pre-up ip link set dev %s master %s", m, w.name)
		}
	case i.VLAN != nil:
		parent := i.VLAN.Parent
		if p := c.Find(parent); p != nil {
			parent = cards.NameOf(*p)
		}
		w.set("vlan-raw-device %s", parent)
		w.set("pre-up ip link set dev %s up", parent)
		w.set("%s link %s name %s type vlan id %d", exists, parent, w.name, i.VLAN.ID)
	}
	if i.MTU != 0 {
		w.set("pre-up ip link set dev %s mtu %d", w.name, i.MTU)
	}
	if i.Bond != nil || i.VLAN != nil {
		w.set("post-down ip link del dev %s || true", w.name)
	}
}

func bondOptions(b network.Bond) string {
	text := fmt.Sprintf("mode %s miimon %d", b.Mode, b.MIIMon.Milliseconds())
	if b.Mode == "802.3ad" {
		text += " lacp_rate " + b.LACPRate()
	}
	if b.HashPolicy != "" {
		text += " xmit_hash_policy " + b.HashPolicy
	}
	return text
}

// resolver names the DNS servers, for the hooks of systemd-resolved and resolvconf.
func (w writer) resolver(i network.Interface) {
	if len(i.DNS) > 0 {
		w.set("dns-nameservers %s", joined(i.DNS))
	}
	if len(i.Search) > 0 {
		w.set("dns-search %s", strings.Join(i.Search, " "))
	}
}

func joined(list []netip.Addr) string {
	var words []string
	for _, a := range list {
		words = append(words, a.String())
	}
	return strings.Join(words, " ")
}

// six writes the stanzas of IPv6.
func (w writer) six(i network.Interface, addresses []netip.Prefix) {
	acceptRA := 0
	if i.AcceptRA || i.DHCP6 {
		acceptRA = 2 // also where the host forwards
	}
	autoconf := 0
	if i.AcceptRA {
		autoconf = 1
	}
	begin := func(method string) {
		w.stanza("inet6", method)
		if method != "manual" {
			w.set("accept_ra %d", acceptRA)
			w.set("autoconf %d", autoconf)
		}
	}
	for _, a := range addresses {
		begin("static")
		w.set("address %s", a)
	}
	switch {
	case i.DHCP6:
		begin("dhcp")
	case i.AcceptRA && len(addresses) == 0:
		begin("auto")
	case len(addresses) == 0 && slices.ContainsFunc(i.AllRoutes(), isSix):
		begin("manual")
	}
}

func isSix(r network.Route) bool { return r.Destination.Addr().Is6() }

// routes adds the routes of a family to its last stanza.
func (w writer) routes(i network.Interface, four bool) {
	for _, r := range network.OnLinkFirst(i.AllRoutes()) {
		if isSix(r) == four {
			continue
		}
		line := "up ip"
		if !four {
			line += " -6"
		}
		line += " route replace " + r.Destination.String()
		if r.Via.IsValid() {
			line += " via " + r.Via.String()
		}
		line += " dev " + w.name + " proto static"
		if !r.Via.IsValid() && four {
			line += " scope link"
		}
		if r.Metric != 0 {
			line += fmt.Sprintf(" metric %d", r.Metric)
		}
		w.set("%s", line)
	}
}

func split(list []netip.Prefix) (four, six []netip.Prefix) {
	for _, a := range list {
		if a.Addr().Is4() {
			four = append(four, a)
		} else {
			six = append(six, a)
		}
	}
	return four, six
}
