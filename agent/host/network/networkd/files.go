package networkd

import (
	"fmt"
	"strings"

	"github.com/ingot-metal/ingot/agent/host/network"
)

// networkPrefix is before the name of every file of ours below /etc/systemd/network. 05 sorts before the numbers that
// distributions and installers use, so that ours is the one that systemd.network(5) takes.
const networkPrefix = "05-ingot-"

// Render returns the files of the configuration, by path. A card whose driver knows the MAC as its permanent one is
// matched by that; the others can be matched by the present one only.
func (Manager) Render(c network.Config, cards network.Cards) (map[string]string, error) {
	files := map[string]string{}
	permanent := func(mac string) bool { return cards.Permanent[mac] }
	put := func(key, suffix string, body *unit) {
		files[dir+"/"+networkPrefix+strings.ReplaceAll(key, ":", "-")+suffix] = network.FileHeader + body.String()
	}
	for _, i := range c.Interfaces {
		put(i.Key(), ".network", networkFile(c, i, permanent))
		switch {
		case i.VLAN != nil:
			put(i.Key(), ".netdev", netdev(i, "vlan").section("VLAN").set("Id", i.VLAN.ID))
		case i.Bond != nil:
			put(i.Key(), ".netdev", bondFile(*i.Bond, netdev(i, "bond")))
			for _, m := range i.Bond.Members {
				card := network.Interface{Name: m}
				if strings.Contains(m, ":") {
					card = network.Interface{MAC: strings.ToLower(m)}
				}
				put(card.Key(), ".network", link(match(card, permanent), i.MTU).section("Network").set("Bond", i.Name))
			}
		}
	}
	return files, nil
}

func netdev(i network.Interface, kind string) *unit {
	u := (&unit{}).section("NetDev").set("Name", i.Name).set("Kind", kind)
	if i.MTU != 0 {
		u.set("MTUBytes", i.MTU)
	}
	return u
}

func bondFile(b network.Bond, u *unit) *unit {
	u.section("Bond").set("Mode", b.Mode).set("MIIMonitorSec", fmt.Sprintf("%dms", b.MIIMon.Milliseconds()))
	if b.Mode == "802.3ad" {
		u.set("LACPTransmitRate", b.LACPRate())
	}
	if b.HashPolicy != "" {
		u.set("TransmitHashPolicy", b.HashPolicy)
	}
	return u
}

// match finds a card. A virtual link may have the address of a card, and its type is not "ether".
func match(i network.Interface, permanent func(string) bool) *unit {
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

func networkFile(c network.Config, i network.Interface, permanent func(string) bool) *unit {
	u := link(match(i, permanent), i.MTU).section("Network")
	u.set("DHCP", dhcpWord(i)).set("IPv6AcceptRA", yesNo(i.DHCP6 || i.AcceptRA))
	if !i.DHCP4 && !i.DHCP6 {
		// The configuration applies with or without a cable: an outage does not change it.
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
		if v.VLAN != nil && i.Is(v.VLAN.Parent) {
			u.set("VLAN", v.Name)
		}
	}
	for _, r := range i.AllRoutes() {
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

func dhcpWord(i network.Interface) string {
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
