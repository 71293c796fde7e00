package reconfig

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/network"
)

// TestPolicyOfAnOrder: each rule of an order is a rule of the policy, with its limits.
func TestPolicyOfAnOrder(t *testing.T) {
	t.Parallel()
	controllers := []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:443")}
	got, err := settingsOf(&baremetalv1.NetReconfig{AcceptDrift: true, Firewall: &baremetalv1.FirewallPolicy{
		DefaultInput: "drop", SmtpEgressAllowed: true, Allow: []*baremetalv1.FirewallRule{
			{Protocol: "icmp"},
			{Protocol: "tcp", PortFrom: 22, SourceCidr: "10.0.0.0/8"},
			{Protocol: "udp", PortFrom: 1000, PortTo: 65535, RatePerSecond: 7},
			{Protocol: "udp", PortFrom: 65535, RatePerSecond: 1},
		},
	}}, 4, controllers)
	want := firewall.Policy{
		Generation: 4, InputDefault: firewall.VerdictDrop, SMTPEgressAllowed: true, Controllers: controllers,
		OverwriteDrift: true,
		Allow: []firewall.AllowRule{
			{Protocol: "tcp", FromPort: 22, Source: netip.MustParsePrefix("10.0.0.0/8")},
			{Protocol: "udp", FromPort: 1000, ToPort: 65535},
			{Protocol: "udp", FromPort: 65535},
		},
		RateLimits: []firewall.RateLimit{{Protocol: "udp", FromPort: 1000, ToPort: 65535, PerSecond: 7},
			{Protocol: "udp", FromPort: 65535, PerSecond: 1}},
	}
	if err != nil || !reflect.DeepEqual(*got.Firewall, want) {
		t.Errorf("%+v, %v, want %+v", got.Firewall, err, want)
	}
	open, err := settingsOf(&baremetalv1.NetReconfig{Firewall: &baremetalv1.FirewallPolicy{}}, 1, nil)
	if err != nil || open.Firewall.InputDefault != firewall.VerdictAccept {
		t.Errorf("no default: %+v, %v", open.Firewall, err)
	}
}

// TestInterfacesOfAnOrder: each field of an order has its place in the host's configuration.
func TestInterfacesOfAnOrder(t *testing.T) {
	t.Parallel()
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	got, err := networkOf([]*baremetalv1.NetworkInterface{
		{
			Name: "bond0", Mtu: 9000, BondMembers: []string{"Eth0", "52:54:00:AA:00:01"},
			Bond: &baremetalv1.BondOptions{Mode: "802.3ad", MiimonMs: 50, LacpRate: "fast", TransmitHashPolicy: "layer3+4"},
		},
		{
			Name: "v7", VlanId: 7, Parent: "bond0", Addresses: []string{"192.0.2.7/24"}, Gateway: "192.0.2.1",
			DnsServers:    []string{"192.0.2.2"},
			SearchDomains: []string{"example.org"}, Routes: []*baremetalv1.NetworkRoute{
				{Destination: "10.0.0.0/8", Via: "192.0.2.3", Metric: 5}, {Destination: "default", Via: "192.0.2.4"},
				{Destination: "default", Via: "fe80::1"},
			},
		},
		{Name: "a", Dhcp: "yes"}, {Name: "b", Dhcp: "ipv4"}, {Name: "c", Dhcp: "ipv6"},
		{Name: "d", Dhcp: "no", AcceptRa: true},
		{MacAddress: "52:54:00:AA:00:02"}, {Name: "bond1", BondMembers: []string{"e"}}, {Name: "v8", VlanId: 8},
		{Name: "v0", Parent: "bond0"},
	})
	want := network.Config{Interfaces: []network.Interface{
		{Name: "bond0", MTU: 9000, Bond: &network.Bond{
			Members: []string{"Eth0", "52:54:00:aa:00:01"}, Mode: "802.3ad", MIIMon: 50 * time.Millisecond, LACPFast: true,
			HashPolicy: "layer3+4",
		}},
		{
			Name: "v7", VLAN: &network.VLAN{ID: 7, Parent: "bond0"}, Addresses: []netip.Prefix{prefix("192.0.2.7/24")},
			Gateway: addr("192.0.2.1"),
			DNS:     []netip.Addr{addr("192.0.2.2")}, Search: []string{"example.org"}, Routes: []network.Route{
				{Destination: prefix("10.0.0.0/8"), Via: addr("192.0.2.3"), Metric: 5},
				{Destination: prefix("0.0.0.0/0"), Via: addr("192.0.2.4")},
				{Destination: prefix("::/0"), Via: addr("fe80::1")},
			},
		},
		{Name: "a", DHCP4: true, DHCP6: true}, {Name: "b", DHCP4: true}, {Name: "c", DHCP6: true},
		{Name: "d", AcceptRA: true},
		{MAC: "52:54:00:aa:00:02"},
		{Name: "bond1", Bond: &network.Bond{Members: []string{"e"}, Mode: "active-backup", MIIMon: 100 * time.Millisecond}},
		{Name: "v8", VLAN: &network.VLAN{ID: 8}}, {Name: "v0", VLAN: &network.VLAN{Parent: "bond0"}},
	}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
}

// TestOrdersThatMakeNoSense are refused with their error, before anything is changed.
func TestOrdersThatMakeNoSense(t *testing.T) {
	t.Parallel()
	rule := func(r *baremetalv1.FirewallRule) *baremetalv1.NetReconfig {
		return &baremetalv1.NetReconfig{Firewall: &baremetalv1.FirewallPolicy{Allow: []*baremetalv1.FirewallRule{r}}}
	}
	card := func(i *baremetalv1.NetworkInterface) *baremetalv1.NetReconfig {
		i.Name = "eth0"
		return &baremetalv1.NetReconfig{Interfaces: []*baremetalv1.NetworkInterface{i}}
	}
	route := func(to, via string) *baremetalv1.NetReconfig {
		return card(&baremetalv1.NetworkInterface{Routes: []*baremetalv1.NetworkRoute{{Destination: to, Via: via}}})
	}
	for name, order := range map[string]*baremetalv1.NetReconfig{
		"host name":      {Hostname: "-x"},
		"verdict":        {Firewall: &baremetalv1.FirewallPolicy{DefaultInput: "reject"}},
		"first port":     rule(&baremetalv1.FirewallRule{Protocol: "tcp", PortFrom: 65536 + 22}),
		"last port":      rule(&baremetalv1.FirewallRule{Protocol: "tcp", PortFrom: 1, PortTo: 65536}),
		"source":         rule(&baremetalv1.FirewallRule{Protocol: "tcp", PortFrom: 1, SourceCidr: "10.0.0.0"}),
		"protocol":       rule(&baremetalv1.FirewallRule{Protocol: "sctp", PortFrom: 1}),
		"DHCP":           card(&baremetalv1.NetworkInterface{Dhcp: "maybe"}),
		"address":        card(&baremetalv1.NetworkInterface{Addresses: []string{"192.0.2.7"}}),
		"gateway":        card(&baremetalv1.NetworkInterface{Gateway: "there"}),
		"DNS server":     card(&baremetalv1.NetworkInterface{DnsServers: []string{"dns.example.org"}}),
		"route":          route("10.0.0.0", ""),
		"next hop":       route("10.0.0.0/8", "there"),
		"off the link":   route("10.0.0.0/8", "192.0.2.1"),
		"VLAN, no trunk": card(&baremetalv1.NetworkInterface{VlanId: 7, Parent: "bond0"}),
	} {
		if got, err := settingsOf(order, 1, nil); err == nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for _, o := range []*baremetalv1.NetReconfig{ // not even readable
		card(&baremetalv1.NetworkInterface{Dhcp: "maybe"}),
		card(&baremetalv1.NetworkInterface{Addresses: []string{"192.0.2.7"}}),
		card(&baremetalv1.NetworkInterface{Gateway: "there"}),
		card(&baremetalv1.NetworkInterface{DnsServers: []string{"there"}}),
		route("10.0.0.0", ""), route("10.0.0.0/8", "there"),
	} {
		if got, err := networkOf(o.GetInterfaces()); err == nil {
			t.Errorf("read as %+v", got)
		}
	}
}
