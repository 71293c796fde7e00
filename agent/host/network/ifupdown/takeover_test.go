package ifupdown

import (
	"maps"
	"net/netip"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/network"
)

// installed is what Debian 12's installer writes, and what its manual page shows beside it.
const installed = `# This file describes the network interfaces available on your system
# and how to activate them. For more information, see interfaces(5).

source /etc/network/interfaces.d/*

# The loopback network interface
auto lo eth1
iface lo inet loopback

# The primary network interface
allow-hotplug eth0
iface eth0 inet dhcp
# This is an autoconfigured IPv6 interface
iface eth0 inet6 auto

mapping eth0
	script /usr/local/sbin/map-scheme
	map HOME eth0-home

iface eth1 inet static
	address 192.0.2.9/24
	up ip route add 10.0.0.0/8 \
		via 192.0.2.1

iface eth1:1 inet static
	address 192.0.2.10/24

iface eth10 inet manual
`

func TestOthersStanzasAreTakenOverAndGivenBack(t *testing.T) {
	const want = `# This file describes the network interfaces available on your system
# and how to activate them. For more information, see interfaces(5).

source /etc/network/interfaces.d/*

# The loopback network interface
#ingot# auto lo eth1
#ingot+
auto lo
iface lo inet loopback

# The primary network interface
allow-hotplug eth0
iface eth0 inet dhcp
# This is an autoconfigured IPv6 interface
iface eth0 inet6 auto

mapping eth0
	script /usr/local/sbin/map-scheme
	map HOME eth0-home

#ingot# iface eth1 inet static
#ingot# 	address 192.0.2.9/24
#ingot# 	up ip route add 10.0.0.0/8 \
#ingot# 		via 192.0.2.1

#ingot# iface eth1:1 inet static
#ingot# 	address 192.0.2.10/24

iface eth10 inet manual
`
	if got := takeOver(installed, map[string]bool{"eth1": true}); got != want {
		t.Errorf("of eth1:\n%s", got)
	}
	// From one configuration to the next, and to none.
	step := takeOver(takeOver(installed, map[string]bool{"eth1": true}), map[string]bool{"eth0": true})
	if step != takeOver(installed, map[string]bool{"eth0": true}) {
		t.Errorf("from eth1 to eth0:\n%s", step)
	}
	if back := takeOver(step, nil); back != installed {
		t.Errorf("given back:\n%s", back)
	}
	for _, text := range []string{"", "auto eth0", "iface eth0 inet manual\n\\", "\\\n\\\n", "auto\niface\n"} {
		if back := takeOver(takeOver(text, map[string]bool{"eth0": true}), nil); back != text &&
			back != text+"\n" {
			t.Errorf("%q comes back as %q", text, back)
		}
	}
}

func TestWhetherOurFileIsRead(t *testing.T) {
	for text, want := range map[string]bool{
		installed: true, "source-directory interfaces.d\n": true, "source interfaces.d/*.cfg\n": false,
		"#source /etc/network/interfaces.d/*\n": false, "source /etc/network/interfaces.d/ingot\n": true, "": false,
	} {
		if got := reads("/etc/network/interfaces", text, "/etc/network/interfaces.d/ingot"); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

func TestRender(t *testing.T) {
	cards := network.Cards{ByMAC: map[string]string{"52:54:00:00:00:01": "eth0", "52:54:00:00:00:02": "eth1"}}
	c := network.Config{Interfaces: []network.Interface{
		{
			Name: "tag", VLAN: &network.VLAN{ID: 20, Parent: "bond0"}, DHCP4: true,
			Addresses: []netip.Prefix{netip.MustParsePrefix("2001:db8::7/64")},
			Gateway:   netip.MustParseAddr("2001:db8::1"),
		},
		{
			Name: "bond0", MTU: 9000, Bond: &network.Bond{
				Members: []string{"52:54:00:00:00:02", "52:54:00:00:00:01"}, Mode: "802.3ad", MIIMon: 100 * time.Millisecond,
				LACPFast: true, HashPolicy: "layer3+4",
			},
			Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24"), netip.MustParsePrefix("192.0.2.8/24")},
			Gateway:   netip.MustParseAddr("192.0.2.1"), DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
			Search: []string{"example.org"}, Routes: []network.Route{{Destination: netip.MustParsePrefix("198.51.100.0/24")}},
		},
	}}
	const want = network.FileHeader + `
auto bond0
iface bond0 inet static
	pre-up [ -e /sys/class/net/bond0 ] || ip link add dev bond0 type bond mode 802.3ad miimon 100 lacp_rate fast xmit_hash_policy layer3+4
	pre-up ip link set dev eth0 down
	pre-up ip link set dev eth0 master bond0
	pre-up ip link set dev eth1 down
	pre-up ip link set dev eth1 master bond0
	pre-up ip link set dev bond0 mtu 9000
	post-down ip link del dev bond0 || true
	pre-up echo 0 >/proc/sys/net/ipv6/conf/bond0/accept_ra || true
	address 192.0.2.7/24
	dns-nameservers 192.0.2.53
	dns-search example.org
iface bond0 inet static
	address 192.0.2.8/24
	up ip route replace 198.51.100.0/24 dev bond0 proto static scope link
	up ip route replace 0.0.0.0/0 via 192.0.2.1 dev bond0 proto static

auto tag
iface tag inet dhcp
	vlan-raw-device bond0
	pre-up ip link set dev bond0 up
	pre-up [ -e /sys/class/net/tag ] || ip link add link bond0 name tag type vlan id 20
	post-down ip link del dev tag || true
iface tag inet6 static
	accept_ra 0
	autoconf 0
	address 2001:db8::7/64
	up ip -6 route replace ::/0 via 2001:db8::1 dev tag proto static
`
	if got := render(c, cards); got != want {
		t.Errorf("got:\n%s", got)
	}
	names := map[string]bool{"bond0": true, "eth0": true, "eth1": true, "tag": true}
	if got := namesIn(want); !maps.Equal(got, names) {
		t.Errorf("it names %v", got)
	}
}
