package validate_test

import (
	"strings"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/validate"
)

// eth is a card with an address and what else is said of it.
func eth(change func(*pb.NetworkInterface)) *pb.NetworkInterface {
	i := &pb.NetworkInterface{Name: "eth0", Addresses: []string{"192.0.2.7/24", "2001:db8::7/64"}}
	change(i)
	return i
}

func TestGoodInterfaces(t *testing.T) {
	for name, list := range map[string][]*pb.NetworkInterface{
		"everything of a card": {eth(func(i *pb.NetworkInterface) {
			i.Gateway, i.Mtu, i.Dhcp = "192.0.2.1", 9000, "no"
			i.DnsServers, i.SearchDomains = []string{"192.0.2.53", "2001:db8::53"}, []string{"example.org", "local"}
			i.Routes = []*pb.NetworkRoute{
				{Destination: "10.0.0.0/8", Via: "192.0.2.2"}, {Destination: "10.0.0.0/8", Via: "192.0.2.3", Metric: 9},
				{Destination: "198.51.100.0/24"}, {Destination: "default", Via: "fe80::1"},
				{Destination: "default", Via: "192.0.2.9", Metric: 9},
			}
		})},
		"by MAC, with DHCP":   {{MacAddress: "52:54:00:12:34:56", Dhcp: "yes"}},
		"point to point":      {{Name: "eth0", Addresses: []string{"192.0.2.6/31"}, Gateway: "192.0.2.7"}},
		"a gateway over DHCP": {{Name: "eth0", Dhcp: "ipv4", Gateway: "192.0.2.7"}},
		"a route by RA": {{Name: "eth0", AcceptRa: true,
			Routes: []*pb.NetworkRoute{{Destination: "2001:db8:1::/48", Via: "2001:db8::1"}}}},
		"two cards, two homes": {{Name: "eth0", Addresses: []string{"192.0.2.7/24"}},
			{Name: "eth1", Addresses: []string{"198.51.100.7/24"}, Gateway: "198.51.100.1"}},
		"VLAN on a bond": {
			{Name: "bond0", BondMembers: []string{"eth0", "52:54:00:12:34:56"}, Mtu: 9000, Bond: &pb.BondOptions{
				Mode: "802.3ad", LacpRate: "fast", TransmitHashPolicy: "layer3+4", MiimonMs: 50,
			}},
			{Name: "storage", VlanId: 4094, Parent: "bond0", Mtu: 9000, Addresses: []string{"10.0.0.7/16"}},
			{Name: "mgmt", VlanId: 1, Parent: "bond0"},
		},
		"VLAN on a card by MAC": {{MacAddress: "52:54:00:AB:cd:56"}, {Name: "v7", VlanId: 7, Parent: "52:54:00:ab:CD:56"}},
	} {
		if err := validate.NetReconfig("config", &pb.NetReconfig{Interfaces: list}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBadInterfaces(t *testing.T) {
	card := func(change func(*pb.NetworkInterface)) []*pb.NetworkInterface {
		return []*pb.NetworkInterface{eth(change)}
	}
	bond := func(o *pb.BondOptions, members ...string) []*pb.NetworkInterface {
		return []*pb.NetworkInterface{{Name: "bond0", BondMembers: members, Bond: o}}
	}
	route := func(r *pb.NetworkRoute) []*pb.NetworkInterface {
		return card(func(i *pb.NetworkInterface) { i.Routes = []*pb.NetworkRoute{r} })
	}
	for _, c := range []struct {
		name string
		list []*pb.NetworkInterface
		want string // fields below config.interfaces
	}{
		{"no name", []*pb.NetworkInterface{{Dhcp: "yes"}}, "[0].name"},
		{"long name", []*pb.NetworkInterface{{Name: "averyveryverylong"}}, "[0].name"},
		{"newline in a name", []*pb.NetworkInterface{{Name: "a\n[Match]"}}, "[0].name"},
		{"slash in a name", []*pb.NetworkInterface{{Name: "../x"}}, "[0].name"},
		{"loopback", []*pb.NetworkInterface{{Name: "lo"}}, "[0].name"},
		{"bad MAC", []*pb.NetworkInterface{{MacAddress: "52:54"}}, "[0].mac_address"},
		{"name twice", []*pb.NetworkInterface{{Name: "eth0"}, {Name: "eth0"}}, "[1].name"},
		{"MAC twice", []*pb.NetworkInterface{{MacAddress: "52:54:00:12:34:56"}, {MacAddress: "52:54:00:12:34:56"}},
			"[1].mac_address"},
		{"bad CIDR", card(func(i *pb.NetworkInterface) { i.Addresses[1] = "192.0.2.1" }), "[0].addresses[1]"},
		{"length 33", card(func(i *pb.NetworkInterface) { i.Addresses[0] = "192.0.2.7/33" }), "[0].addresses[0]"},
		{"the network", card(func(i *pb.NetworkInterface) { i.Addresses[0] = "192.0.2.0/24" }), "[0].addresses[0]"},
		{"broadcast", card(func(i *pb.NetworkInterface) { i.Addresses[0] = "192.0.2.255/24" }), "[0].addresses[0]"},
		{"multicast", card(func(i *pb.NetworkInterface) { i.Addresses[1] = "ff02::1/64" }), "[0].addresses[1]"},
		{"mapped", card(func(i *pb.NetworkInterface) { i.Addresses[1] = "::ffff:192.0.2.7/120" }), "[0].addresses[1]"},
		{"address twice", []*pb.NetworkInterface{
			{Name: "eth0", Addresses: []string{"192.0.2.7/24"}}, {Name: "eth1", Addresses: []string{"192.0.2.7/25"}},
		}, "[1].addresses[0]"},
		{"gateway elsewhere", card(func(i *pb.NetworkInterface) { i.Gateway = "198.51.100.1" }), "[0].gateway"},
		{"gateway is itself", card(func(i *pb.NetworkInterface) { i.Gateway = "192.0.2.7" }), "[0].gateway"},
		{"gateway by name", card(func(i *pb.NetworkInterface) { i.Gateway = "router" }), "[0].gateway"},
		{"two gateways", []*pb.NetworkInterface{
			{Name: "eth0", Addresses: []string{"192.0.2.7/24"}, Gateway: "192.0.2.1"},
			{Name: "eth1", Addresses: []string{"198.51.100.7/24"}, Gateway: "198.51.100.1"},
		}, "[1].gateway"},
		{"small MTU", []*pb.NetworkInterface{{Name: "eth0", Mtu: 67}}, "[0].mtu"},
		{"small MTU for IPv6", card(func(i *pb.NetworkInterface) { i.Mtu = 1279 }), "[0].mtu"},
		{"large MTU", card(func(i *pb.NetworkInterface) { i.Mtu = 65536 }), "[0].mtu"},
		{"negative MTU", card(func(i *pb.NetworkInterface) { i.Mtu = -1 }), "[0].mtu"},
		{"VLAN 4095", []*pb.NetworkInterface{{Name: "eth0"}, {Name: "v", VlanId: 4095, Parent: "eth0"}}, "[1].vlan_id"},
		{"VLAN -1", []*pb.NetworkInterface{{Name: "eth0"}, {Name: "v", VlanId: -1, Parent: "eth0"}}, "[1].vlan_id"},
		{"VLAN without id", []*pb.NetworkInterface{{Name: "eth0"}, {Name: "v", Parent: "eth0"}}, "[1].vlan_id"},
		{"VLAN without parent", []*pb.NetworkInterface{{Name: "v", VlanId: 7}}, "[0].parent"},
		{"VLAN of a stranger", []*pb.NetworkInterface{{Name: "v", VlanId: 7, Parent: "eth0"}}, "[0].parent"},
		{"VLAN on a VLAN", []*pb.NetworkInterface{{Name: "eth0"}, {Name: "v", VlanId: 7, Parent: "eth0"},
			{Name: "w", VlanId: 8, Parent: "v"}}, "[2].parent"},
		{"VLAN twice", []*pb.NetworkInterface{{Name: "eth0"}, {Name: "v", VlanId: 7, Parent: "eth0"},
			{Name: "w", VlanId: 7, Parent: "eth0"}}, "[2].vlan_id"},
		{"VLAN without a name", []*pb.NetworkInterface{{Name: "eth0"}, {VlanId: 7, Parent: "eth0"}}, "[1].name"},
		{"VLAN larger than its card", []*pb.NetworkInterface{{Name: "eth0", Mtu: 1500},
			{Name: "v", VlanId: 7, Parent: "eth0", Mtu: 9000}}, "[1].mtu"},
		{"VLAN and bond", []*pb.NetworkInterface{{Name: "eth0"},
			{Name: "v", VlanId: 7, Parent: "eth0", BondMembers: []string{"eth1"}}}, "[1].vlan_id"},
		{"member twice", bond(nil, "eth0", "eth0"), "[0].bond_members[1]"},
		{"member of two", []*pb.NetworkInterface{{Name: "b0", BondMembers: []string{"eth0"}},
			{Name: "b1", BondMembers: []string{"eth1", "eth0"}}}, "[1].bond_members[1]"},
		{"member by a bad MAC", bond(nil, "52:54:00"), "[0].bond_members[0]"},
		{"member with an address", []*pb.NetworkInterface{{Name: "eth0", Addresses: []string{"192.0.2.7/24"}},
			{Name: "b0", BondMembers: []string{"eth0"}}}, "[0]"},
		{"bond by MAC", []*pb.NetworkInterface{{Name: "b0", MacAddress: "52:54:00:12:34:56", BondMembers: []string{"eth0"}}},
			"[0].mac_address"},
		{"bond mode", bond(&pb.BondOptions{Mode: "lacp"}, "eth0"), "[0].bond.mode"},
		{"rate without LACP", bond(&pb.BondOptions{LacpRate: "fast"}, "eth0"), "[0].bond.lacp_rate"},
		{"hash without use", bond(&pb.BondOptions{Mode: "active-backup", TransmitHashPolicy: "layer2"}, "eth0"),
			"[0].bond.transmit_hash_policy"},
		{"miimon", bond(&pb.BondOptions{MiimonMs: -1}, "eth0"), "[0].bond.miimon_ms"},
		{"options without members", card(func(i *pb.NetworkInterface) { i.Bond = &pb.BondOptions{} }), "[0].bond"},
		{"dhcp", card(func(i *pb.NetworkInterface) { i.Dhcp = "on" }), "[0].dhcp"},
		{"server by name", card(func(i *pb.NetworkInterface) { i.DnsServers = []string{"dns"} }), "[0].dns_servers[0]"},
		{"server twice", card(func(i *pb.NetworkInterface) { i.DnsServers = []string{"192.0.2.53", "192.0.2.53"} }),
			"[0].dns_servers[1]"},
		{"search", card(func(i *pb.NetworkInterface) { i.SearchDomains = []string{"a b"} }), "[0].search_domains[0]"},
		{"route with host bits", route(&pb.NetworkRoute{Destination: "10.0.0.1/8"}), "[0].routes[0].destination"},
		{"route to nothing", route(&pb.NetworkRoute{Via: "192.0.2.1"}), "[0].routes[0].destination"},
		{"route via elsewhere", route(&pb.NetworkRoute{Destination: "10.0.0.0/8", Via: "198.51.100.1"}), "[0].routes[0].via"},
		{"route of two families", route(&pb.NetworkRoute{Destination: "10.0.0.0/8", Via: "2001:db8::1"}),
			"[0].routes[0].via"},
		{"default without via", route(&pb.NetworkRoute{Destination: "default"}), "[0].routes[0].via"},
		{"gateway and default", card(func(i *pb.NetworkInterface) {
			i.Gateway, i.Routes = "192.0.2.1", []*pb.NetworkRoute{{Destination: "0.0.0.0/0", Via: "192.0.2.2"}}
		}), "[0].routes[0].destination"},
	} {
		err := validate.NetReconfig("config", &pb.NetReconfig{Interfaces: c.list})
		if got := strings.ReplaceAll(strings.Join(fields(err), " "), "config.interfaces", ""); got != c.want {
			t.Errorf("%s: named %q, want %q: %v", c.name, got, c.want, err)
		}
	}
}
