package reconfig

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/internal/hwid"
)

const defaultMIIMon = 100 * time.Millisecond

// networkOf translates the order. What the parts may be together is checked by network.Config.Validate.
func networkOf(list []*baremetalv1.NetworkInterface) (network.Config, error) {
	var c network.Config
	for k, o := range list {
		i, err := interfaceOf(o)
		if err != nil {
			return c, fmt.Errorf("interfaces[%d]: %w", k, err)
		}
		c.Interfaces = append(c.Interfaces, i)
	}
	return c, nil
}

func interfaceOf(o *baremetalv1.NetworkInterface) (network.Interface, error) {
	mac := strings.ToLower(o.GetMacAddress())
	if card, err := hwid.MAC(mac); err == nil {
		mac = card // whatever its separators are
	}
	i := network.Interface{
		Name: o.GetName(), MAC: mac, MTU: int(o.GetMtu()), Search: o.GetSearchDomains(),
		AcceptRA: o.GetAcceptRa(), Bond: bondOf(o),
	}
	if o.GetVlanId() != 0 || o.GetParent() != "" {
		i.VLAN = &network.VLAN{ID: int(o.GetVlanId()), Parent: o.GetParent()}
	}
	switch o.GetDhcp() {
	case "", "no":
	case "yes":
		i.DHCP4, i.DHCP6 = true, true
	case "ipv4":
		i.DHCP4 = true
	case "ipv6":
		i.DHCP6 = true
	default:
		return i, fmt.Errorf("dhcp %q", o.GetDhcp())
	}
	return i, addressesOf(o, &i)
}

func addressesOf(o *baremetalv1.NetworkInterface, i *network.Interface) error {
	for _, text := range o.GetAddresses() {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return fmt.Errorf("address: %w", err)
		}
		i.Addresses = append(i.Addresses, p)
	}
	for _, text := range o.GetDnsServers() {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("DNS server: %w", err)
		}
		i.DNS = append(i.DNS, a)
	}
	if o.GetGateway() != "" {
		var err error
		if i.Gateway, err = netip.ParseAddr(o.GetGateway()); err != nil {
			return fmt.Errorf("gateway: %w", err)
		}
	}
	for _, r := range o.GetRoutes() {
		route, err := routeOf(r)
		if err != nil {
			return err
		}
		i.Routes = append(i.Routes, route)
	}
	return nil
}

func routeOf(o *baremetalv1.NetworkRoute) (network.Route, error) {
	r := network.Route{Metric: o.GetMetric()}
	var err error
	if o.GetVia() != "" {
		if r.Via, err = netip.ParseAddr(o.GetVia()); err != nil {
			return r, fmt.Errorf("route: %w", err)
		}
	}
	if o.GetDestination() != "default" {
		r.Destination, err = netip.ParsePrefix(o.GetDestination())
		if err != nil {
			return r, fmt.Errorf("route: %w", err)
		}
		return r, nil
	}
	r.Destination = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if r.Via.Is6() {
		r.Destination = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return r, nil
}

func bondOf(o *baremetalv1.NetworkInterface) *network.Bond {
	if len(o.GetBondMembers()) == 0 {
		return nil
	}
	b := &network.Bond{
		Mode: "active-backup", MIIMon: defaultMIIMon, LACPFast: o.GetBond().GetLacpRate() == "fast",
		HashPolicy: o.GetBond().GetTransmitHashPolicy(),
	}
	for _, m := range o.GetBondMembers() {
		b.Members = append(b.Members, memberOf(m))
	}
	if o.GetBond().GetMode() != "" {
		b.Mode = o.GetBond().GetMode()
	}
	if n := o.GetBond().GetMiimonMs(); n != 0 {
		b.MIIMon = time.Duration(n) * time.Millisecond
	}
	return b
}

// memberOf keeps names as they are: the kernel distinguishes upper case from lower.
func memberOf(m string) string {
	if strings.Contains(m, ":") {
		return strings.ToLower(m)
	}
	return m
}
