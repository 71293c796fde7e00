package bmcaddr

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// MaxExpanded is how many addresses one discovery of BMCs may have.
const MaxExpanded = 1024

// Expand returns the addresses of a list of addresses and networks in CIDR form, each once, in the order of the list.
// Of a network of IPv4 with four or more, the first and the last are no host's. The error names the wrong entry.
func Expand(networks []string) ([]netip.Addr, error) {
	var out []netip.Addr
	known := map[netip.Addr]bool{}
	for _, text := range networks {
		p, err := network(text)
		if err != nil {
			return nil, fmt.Errorf("%q %w", text, err)
		}
		hosts, err := hostsOf(p)
		if err != nil {
			return nil, fmt.Errorf("%q %w", text, err)
		}
		for _, a := range hosts {
			if !known[a] {
				known[a] = true
				out = append(out, a)
			}
		}
		if len(out) > MaxExpanded {
			return nil, fmt.Errorf("more than %d addresses in all", MaxExpanded)
		}
	}
	return out, nil
}

func network(text string) (netip.Prefix, error) {
	if !strings.Contains(text, "/") {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("is no address, and no network such as 10.42.1.0/24")
		}
		return netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return p, fmt.Errorf("is no address, and no network such as 10.42.1.0/24")
	}
	if p != p.Masked() {
		return p, fmt.Errorf("has bits after its prefix; the network is %s", p.Masked())
	}
	return p, nil
}

func hostsOf(p netip.Prefix) ([]netip.Addr, error) {
	const mostBits = 10 // MaxExpanded
	bits := p.Addr().BitLen() - p.Bits()
	switch first := p.Addr(); {
	case bits > mostBits:
		return nil, fmt.Errorf("has more than %d addresses", MaxExpanded)
	case first.IsMulticast(), first.IsUnspecified(), first.Is4In6(), first.Is4() && first.As4()[0] >= 240:
		return nil, fmt.Errorf("has no addresses of hosts")
	}
	var out []netip.Addr
	for a := p.Addr(); p.Contains(a); a = a.Next() {
		out = append(out, a)
	}
	if p.Addr().Is4() && bits >= 2 {
		out = slices.Delete(out, 0, 1)
		out = out[:len(out)-1]
	}
	out = slices.DeleteFunc(out, func(a netip.Addr) bool { return notMetadata(a.String()) != nil })
	if len(out) == 0 {
		return nil, ErrMetadata
	}
	return out, nil
}
