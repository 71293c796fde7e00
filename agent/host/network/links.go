package network

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// wantedLinks is how the kernel is to show the configuration. macs has the cards' names by MAC. An attribute that the
// configuration leaves open has its zero value.
func wantedLinks(c Config, macs map[string]string) []SavedLink {
	var out []SavedLink
	for _, i := range c.Interfaces {
		w := SavedLink{Name: nameOf(i, macs), MTU: i.MTU, Up: true, Addresses: i.Addresses, Routes: i.AllRoutes()}
		if i.VLAN != nil {
			w.Kind, w.VLANID = "vlan", i.VLAN.ID
			w.Parent = nameOf(*c.Find(i.VLAN.Parent), macs)
		}
		if i.Bond != nil {
			w.Kind, w.Bond = "bond", namedBond(*i.Bond, macs)
			for _, m := range w.Bond.Members {
				out = append(out, SavedLink{Name: m, MTU: i.MTU, Up: true, Master: i.Name})
			}
		}
		out = append(out, w)
	}
	return out
}

// nameOf is the interface's name in the kernel; a card that is not there keeps its MAC for a name.
func nameOf(i Interface, macs map[string]string) string {
	if i.Name != "" {
		return i.Name
	}
	return cmp.Or(macs[i.MAC], i.MAC)
}

// namedBond returns the bond with its members by name, sorted.
func namedBond(b Bond, macs map[string]string) *Bond {
	members := make([]string, 0, len(b.Members))
	for _, m := range b.Members {
		members = append(members, cmp.Or(macs[strings.ToLower(m)], m))
	}
	slices.Sort(members)
	b.Members = members
	return &b
}

// linkLines describes a link, one fact a line. Facts that like leaves open are left out.
func linkLines(s SavedLink, like SavedLink) []string {
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
		add("bond %s", describeBond(*s.Bond, *like.Bond))
	}
	for _, a := range sortedStrings(s.Addresses) {
		add("address %s", a)
	}
	for _, r := range sortedStrings(s.Routes) {
		add("route %s", r)
	}
	return out
}

// explicitBond names what a configuration leaves to the kernel: xmit_hash_policy is layer2 there (bonding.txt of the
// kernel).
func explicitBond(b Bond) Bond {
	b.HashPolicy = cmp.Or(b.HashPolicy, "layer2")
	return b
}

// describeBond leaves out what the mode has no use for, or the other bond leaves open.
func describeBond(b Bond, like Bond) string {
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

// compare returns the lines of both sides: the wanted ones, and those that exist of them.
func compare(want, now []SavedLink) (wanted, there []string) {
	for _, w := range want {
		wanted = append(wanted, linkLines(w, w)...)
		if l, ok := findLink(now, w.Name); ok {
			there = append(there, linkLines(l, w)...)
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
