package validate

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

const (
	maxInterfaces = 256
	maxPerList    = 64 // addresses, routes, servers, members of one interface
)

// network checks the interfaces of a configuration together: their references to each other, and values that may be
// there only once.
type network struct {
	f    *faults
	list []*baremetalv1.NetworkInterface
	path string
	seen map[string]bool
}

func interfaces(f *faults, path string, list []*baremetalv1.NetworkInterface) {
	if len(list) > maxInterfaces {
		f.add(path, fmt.Sprintf("more than %d interfaces", maxInterfaces))
		return
	}
	n := network{f: f, list: list, path: path, seen: map[string]bool{}}
	for k, i := range list {
		at := fmt.Sprintf("%s[%d]", path, k)
		n.identity(at, i)
		n.size(at, i)
		n.vlan(at, i)
		n.bond(at, i)
		n.addresses(at, i)
		n.names(at, i)
		n.routes(at, i)
	}
	n.members()
}

// once reports values that are there a second time. A key is of one kind of thing, such as "mac 52:54:…".
func (n *network) once(path, kind, value string) {
	key := kind + " " + value
	if n.seen[key] {
		n.f.add(path, "there twice: "+value)
	}
	n.seen[key] = true
}

func (n *network) identity(at string, i *baremetalv1.NetworkInterface) {
	made := isBond(i) || isVLAN(i)
	if i.GetName() != "" {
		n.f.add(at+".name", interfaceName(i.GetName()))
		n.once(at+".name", "interface", i.GetName())
	}
	switch {
	case isBond(i) && isVLAN(i):
		n.f.add(at+".vlan_id", "a bond is no VLAN: make the VLAN an interface of its own, with the bond as its parent")
	case i.GetName() == "" && made:
		n.f.add(at+".name", "required: a bond or VLAN is made with it")
	case i.GetName() == "" && i.GetMacAddress() == "":
		n.f.add(at+".name", "name or mac_address is required")
	}
	if i.GetMacAddress() == "" {
		return
	}
	mac, ok := MAC(i.GetMacAddress())
	switch {
	case !ok:
		n.f.add(at+".mac_address", macRule)
	case made:
		n.f.add(at+".mac_address", "only a card is found by its MAC address")
	default:
		n.once(at+".mac_address", "MAC address", mac)
	}
}

// interfaceName returns the fault of a name of a network interface (dev_valid_name of Linux, and no odd letters).
func interfaceName(s string) string {
	letter := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-.", r)
	}
	switch {
	case len(s) > 15 || s == "." || s == ".." || strings.IndexFunc(s, func(r rune) bool { return !letter(r) }) >= 0:
		return "1 to 15 letters, digits, -, _ and ."
	case s == "lo" || s == "all" || s == "default":
		return s + " is not to be configured"
	}
	return ""
}

func isBond(i *baremetalv1.NetworkInterface) bool { return len(i.GetBondMembers()) > 0 }
func isVLAN(i *baremetalv1.NetworkInterface) bool { return i.GetVlanId() != 0 || i.GetParent() != "" }

// size: 68 is the least of IPv4 (RFC 791), 1280 that of IPv6 (RFC 8200).
func (n *network) size(at string, i *baremetalv1.NetworkInterface) {
	least := int32(68)
	for _, a := range i.GetAddresses() {
		if p, err := netip.ParsePrefix(a); err == nil && p.Addr().Is6() {
			least = 1280
		}
	}
	mtu := i.GetMtu()
	if mtu != 0 && (mtu < least || mtu > 65535) {
		n.f.add(at+".mtu", fmt.Sprintf("0, or %d to 65535", least))
		return
	}
	if p := n.find(i.GetParent()); p != nil && p.GetMtu() != 0 && mtu > p.GetMtu() {
		n.f.add(at+".mtu", fmt.Sprintf("larger than that of its parent, %d", p.GetMtu()))
	}
}

func (n *network) vlan(at string, i *baremetalv1.NetworkInterface) {
	if !isVLAN(i) {
		return
	}
	if id := i.GetVlanId(); id < 1 || id > 4094 {
		n.f.add(at+".vlan_id", "1 to 4094")
	}
	p := n.find(i.GetParent())
	switch {
	case i.GetParent() == "":
		n.f.add(at+".parent", "required for a VLAN")
	case p == nil:
		n.f.add(at+".parent", "is no interface of this configuration")
	case isVLAN(p):
		n.f.add(at+".parent", "is a VLAN itself")
	default:
		n.once(at+".vlan_id", "VLAN", fmt.Sprintf("%d on %s", i.GetVlanId(), i.GetParent()))
	}
}

// find returns the interface that a name or MAC address means.
func (n *network) find(ref string) *baremetalv1.NetworkInterface {
	k := slices.IndexFunc(n.list, func(i *baremetalv1.NetworkInterface) bool { return means(ref, i) })
	if k < 0 {
		return nil
	}
	return n.list[k]
}

func means(ref string, i *baremetalv1.NetworkInterface) bool {
	if ref == "" {
		return false
	}
	a, ok := MAC(ref)
	b, _ := MAC(i.GetMacAddress())
	return ref == i.GetName() || ok && a == b
}

var (
	bondModes = []string{"", "balance-rr", "active-backup", "balance-xor", "broadcast", "802.3ad", "balance-tlb",
		"balance-alb"}
	hashPolicies = []string{"", "layer2", "layer2+3", "layer3+4"}
	hashing      = []string{"802.3ad", "balance-xor", "balance-tlb"}
	lacpRates    = []string{"", "slow", "fast"}
	dhcpWords    = []string{"", "no", "yes", "ipv4", "ipv6"}
)

const (
	maxMIIMon  = 10000 // ms
	notOfAHost = "is not an address of a host"
)

func (n *network) bond(at string, i *baremetalv1.NetworkInterface) {
	if !isBond(i) {
		if i.GetBond() != nil {
			n.f.add(at+".bond", "only with bond_members")
		}
		return
	}
	if len(i.GetBondMembers()) > maxPerList {
		n.f.add(at+".bond_members", fmt.Sprintf("more than %d members", maxPerList))
		return
	}
	for k, m := range i.GetBondMembers() {
		n.member(fmt.Sprintf("%s.bond_members[%d]", at, k), m)
	}
	b := i.GetBond()
	n.oneOf(at+".bond.mode", b.GetMode(), bondModes)
	n.oneOf(at+".bond.lacp_rate", b.GetLacpRate(), lacpRates)
	n.oneOf(at+".bond.transmit_hash_policy", b.GetTransmitHashPolicy(), hashPolicies)
	if b.GetLacpRate() != "" && b.GetMode() != "802.3ad" {
		n.f.add(at+".bond.lacp_rate", "only in mode 802.3ad")
	}
	if b.GetTransmitHashPolicy() != "" && !slices.Contains(hashing, b.GetMode()) {
		n.f.add(at+".bond.transmit_hash_policy", "only in modes "+strings.Join(hashing, ", "))
	}
	if m := b.GetMiimonMs(); m < 0 || m > maxMIIMon {
		n.f.add(at+".bond.miimon_ms", fmt.Sprintf("0 to %d", maxMIIMon))
	}
}

func (n *network) member(at, m string) {
	if strings.Contains(m, ":") {
		mac, ok := MAC(m)
		if !ok {
			n.f.add(at, macRule)
			return
		}
		m = mac
	} else if fault := interfaceName(m); fault != "" || m == "" {
		n.f.add(at, "a name or a MAC address of a card")
		return
	}
	n.once(at, "bond member", m)
}

func (n *network) oneOf(at, value string, allowed []string) {
	if !slices.Contains(allowed, value) {
		n.f.add(at, "one of "+strings.Join(allowed[1:], ", "))
	}
}

// members: a card of a bond has no life of its own.
func (n *network) members() {
	for k, i := range n.list {
		for _, b := range n.list {
			if slices.ContainsFunc(b.GetBondMembers(), func(m string) bool { return means(m, i) }) {
				n.f.add(fmt.Sprintf("%s[%d]", n.path, k),
					fmt.Sprintf("is a member of the bond %s and so takes no configuration of its own", b.GetName()))
			}
		}
	}
}
