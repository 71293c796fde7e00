package network

import (
	"fmt"
	"net/netip"
	"strings"
)

// networkPrefix is before the name of every file of ours below /etc/systemd/network. 05 sorts before the numbers that
// distributions and installers use, so that ours is the one that systemd.network(5) takes.
const networkPrefix = "05-ingot-"

const fileHeader = "# Written by the Ingot agent. A change by hand is reported, and refuses the next configuration.\n"

// networkdFiles renders the configuration, by file name. permanent says whether a card's driver knows the MAC as its
// permanent one; the others can be matched by the present one only.
func networkdFiles(c Config, permanent func(mac string) bool) map[string]string {
	files := map[string]string{}
	put := func(key, suffix string, body *unit) {
		files[networkPrefix+strings.ReplaceAll(key, ":", "-")+suffix] = fileHeader + body.String()
	}
	for _, i := range c.Interfaces {
		put(i.key(), ".network", networkFile(c, i, permanent))
		switch {
		case i.VLAN != nil:
			put(i.key(), ".netdev", netdev(i, "vlan").section("VLAN").set("Id", i.VLAN.ID))
		case i.Bond != nil:
			put(i.key(), ".netdev", bondFile(*i.Bond, netdev(i, "bond")))
			for _, m := range i.Bond.Members {
				card := Interface{Name: m}
				if strings.Contains(m, ":") {
					card = Interface{MAC: strings.ToLower(m)}
				}
				put(card.key(), ".network", link(match(card, permanent), i.MTU).section("Network").set("Bond", i.Name))
			}
		}
	}
	return files
}

func netdev(i Interface, kind string) *unit {
	u := (&unit{}).section("NetDev").set("Name", i.Name).set("Kind", kind)
	if i.MTU != 0 {
		u.set("MTUBytes", i.MTU)
	}
	return u
}

func bondFile(b Bond, u *unit) *unit {
	u.section("Bond").set("Mode", b.Mode).set("MIIMonitorSec", fmt.Sprintf("%dms", b.MIIMon.Milliseconds()))
	if b.Mode == "802.3ad" {
		rate := "slow"
		if b.LACPFast {
			rate = "fast"
		}
		u.set("LACPTransmitRate", rate)
	}
	if b.HashPolicy != "" {
		u.set("TransmitHashPolicy", b.HashPolicy)
	}
	return u
}

// match finds a card. What is made of cards may have the address of one, and is no "ether" by its type.
func match(i Interface, permanent func(string) bool) *unit {
	u := (&unit{}).section("Match")
	if i.Name != "" {
		u.set("Name", i.Name)
	}
	switch {
	case i.MAC == "":
	case permanent(i.MAC):
		u.set("PermanentMACAddress", i.MAC).set("Type", "ether")
	default:
		u.set("MACAddress", i.MAC).set("Type", "ether")
	}
	return u
}

func link(u *unit, mtu int) *unit {
	if mtu != 0 {
		u.section("Link").set("MTUBytes", mtu)
	}
	return u
}

func networkFile(c Config, i Interface, permanent func(string) bool) *unit {
	u := link(match(i, permanent), i.MTU).section("Network")
	u.set("DHCP", dhcpWord(i)).set("IPv6AcceptRA", yesNo(i.DHCP6 || i.AcceptRA))
	if !i.DHCP4 && !i.DHCP6 {
		// What is configured is there whether or not a cable is: an outage is none of the configuration.
		u.set("ConfigureWithoutCarrier", "yes")
	}
	for _, a := range i.Addresses {
		u.set("Address", a)
	}
	for _, d := range i.DNS {
		u.set("DNS", d)
	}
	if len(i.Search) > 0 {
		u.set("Domains", strings.Join(i.Search, " "))
	}
	for _, v := range c.Interfaces {
		if v.VLAN != nil && i.is(v.VLAN.Parent) {
			u.set("VLAN", v.Name)
		}
	}
	for _, r := range i.allRoutes() {
		u.section("Route").set("Destination", r.Destination)
		if r.Via.IsValid() {
			u.set("Gateway", r.Via)
		} else if r.Destination.Addr().Is4() {
			u.set("Scope", "link")
		}
		if r.Metric != 0 {
			u.set("Metric", r.Metric)
		}
	}
	return u
}

func dhcpWord(i Interface) string {
	switch {
	case i.DHCP4 && i.DHCP6:
		return "yes"
	case i.DHCP4:
		return "ipv4"
	case i.DHCP6:
		return "ipv6"
	}
	return "no"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// unit is a file in the syntax of systemd.syntax(7).
type unit struct{ b strings.Builder }

func (u *unit) section(name string) *unit {
	fmt.Fprintf(&u.b, "\n[%s]\n", name)
	return u
}

func (u *unit) set(key string, value any) *unit {
	fmt.Fprintf(&u.b, "%s=%v\n", key, value)
	return u
}

func (u *unit) String() string { return u.b.String() }

// resolvConf is resolv.conf(5) with the servers and domains of all interfaces, each once. The resolver of glibc takes
// the first three servers.
func resolvConf(c Config) string {
	var b strings.Builder
	b.WriteString(fileHeader)
	var search []string
	seen := map[netip.Addr]bool{}
	for _, i := range c.Interfaces {
		for _, d := range i.DNS {
			if !seen[d] {
				fmt.Fprintf(&b, "nameserver %s\n", d)
			}
			seen[d] = true
		}
		search = append(search, i.Search...)
	}
	if len(search) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(search, " "))
	}
	return b.String()
}

// namesServers says whether the configuration has a say in whom to ask for names.
func namesServers(c Config) bool {
	for _, i := range c.Interfaces {
		if len(i.DNS) > 0 {
			return true
		}
	}
	return false
}
