package network

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/system"
	"github.com/ingot-metal/ingot/internal/hwid"
)

// BondModes are the modes of the kernel's bonding driver, by its names.
var BondModes = []string{"balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb",
	"balance-alb"}

var hashPolicies = []string{"", "layer2", "layer2+3", "layer3+4"}

// Validate reports the first thing that is wrong with the configuration, as ErrInvalid. What it accepts can be written
// into networkd's files without any quoting.
func (c Config) Validate() error {
	names := map[string]bool{}
	members := map[string]bool{}
	for _, i := range c.Interfaces {
		if names[i.Key()] {
			return invalidNetwork("interface %s is there twice", i.Key())
		}
		names[i.Key()] = true
		if err := i.validate(); err != nil {
			return err
		}
		if err := i.Bond.validate(i.Name, members); err != nil {
			return err
		}
	}
	return c.validateReferences(members)
}

// validateReferences checks what interfaces say of each other.
func (c Config) validateReferences(members map[string]bool) error {
	for _, i := range c.Interfaces {
		if members[i.Name] && i.Name != "" || members[i.MAC] && i.MAC != "" {
			return invalidNetwork("%s is a member of a bond and so takes no configuration of its own", i.Key())
		}
		if i.VLAN == nil {
			continue
		}
		p := c.Find(i.VLAN.Parent)
		if p == nil || p.VLAN != nil {
			return invalidNetwork("%s: its parent %q is no card or bond of the configuration", i.Name, i.VLAN.Parent)
		}
	}
	return nil
}

func (i Interface) validate() error {
	if i.Name != "" && !ValidInterfaceName(i.Name) {
		return invalidNetwork("interface name %q", i.Name)
	}
	if mac, _ := hwid.MAC(i.MAC); mac != i.MAC {
		return invalidNetwork("MAC address %q", i.MAC)
	}
	made := i.Bond != nil || i.VLAN != nil
	switch {
	case i.Name == "" && (i.MAC == "" || made):
		return invalidNetwork("an interface has no name")
	case made && i.MAC != "", i.Bond != nil && i.VLAN != nil:
		return invalidNetwork("%s is either a card, a bond or a VLAN", i.Name)
	case i.VLAN != nil && (i.VLAN.ID < 1 || i.VLAN.ID > 4094):
		return invalidNetwork("%s: VLAN id %d", i.Name, i.VLAN.ID)
	case i.MTU != 0 && (i.MTU < 68 || i.MTU > 65536):
		return invalidNetwork("%s: MTU %d", i.Key(), i.MTU)
	}
	for _, s := range i.Search {
		if s == "" || len(s) > 253 || slices.ContainsFunc(strings.Split(s, "."),
			func(l string) bool { return !system.ValidLabel(l) }) {
			return invalidNetwork("%s: search domain %q", i.Key(), s)
		}
	}
	return i.validateAddresses()
}

func (i Interface) validateAddresses() error {
	for _, a := range i.Addresses {
		if !a.IsValid() || a.Addr().Zone() != "" || a.Addr().IsUnspecified() || a.Addr().IsMulticast() {
			return invalidNetwork("%s: address %s", i.Key(), a)
		}
	}
	for _, d := range i.DNS {
		if !d.IsValid() || d.Zone() != "" {
			return invalidNetwork("%s: DNS server %s", i.Key(), d)
		}
	}
	for _, r := range i.AllRoutes() {
		if !r.Destination.IsValid() || r.Destination != r.Destination.Masked() {
			return invalidNetwork("%s: route to %s", i.Key(), r.Destination)
		}
		if r.Via.IsValid() && (r.Via.Is4() != r.Destination.Addr().Is4() || !i.onLink(r.Via)) {
			return invalidNetwork("%s: %s is not on the link", i.Key(), r.Via)
		}
	}
	return nil
}

// onLink reports whether a next hop can be reached over the interface.
func (i Interface) onLink(via netip.Addr) bool {
	if via.IsLinkLocalUnicast() && via.Is6() || via.Is4() && i.DHCP4 || via.Is6() && (i.DHCP6 || i.AcceptRA) {
		return true
	}
	return slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Contains(via) && p.Addr() != via })
}

func (b *Bond) validate(name string, taken map[string]bool) error {
	if b == nil {
		return nil
	}
	if len(b.Members) == 0 {
		return invalidNetwork("bond %s has no members", name)
	}
	for _, m := range b.Members {
		if _, err := hwid.MAC(m); err != nil && !ValidInterfaceName(m) {
			return invalidNetwork("bond %s: member %q", name, m)
		}
		if taken[m] {
			return invalidNetwork("%s is a member twice", m)
		}
		taken[m] = true
	}
	if !slices.Contains(BondModes, b.Mode) || !slices.Contains(hashPolicies, b.HashPolicy) || b.MIIMon <= 0 {
		return invalidNetwork("bond %s: mode %q, hash policy %q, miimon %s", name, b.Mode, b.HashPolicy, b.MIIMon)
	}
	return nil
}

// ValidInterfaceName follows the kernel's dev_valid_name, less what would need quoting in a file.
func ValidInterfaceName(s string) bool {
	if s == "" || len(s) > 15 || s == "." || s == ".." || s == "lo" || s == "all" || s == "default" {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		return !letter && (r < '0' || r > '9') && !strings.ContainsRune("_-.", r)
	}) < 0
}

func invalidNetwork(format string, args ...any) error {
	return effect.Refuse(effect.ErrInvalid, effect.ReasonInvalid, format, args...)
}
