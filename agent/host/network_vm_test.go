package host

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/hosttest"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// bondAndVLANs is what only a kernel with both can be given.
func bondAndVLANs() network.Config {
	return network.Config{Interfaces: []network.Interface{
		{
			Name: "bond0", MTU: 1450, Addresses: []netip.Prefix{prefix("192.0.2.7/24")},
			Gateway: netip.MustParseAddr("192.0.2.1"),
			Bond: &network.Bond{
				Members: []string{"52:54:00:00:00:01", "52:54:00:00:00:02"}, Mode: "802.3ad", MIIMon: 50 * time.Millisecond,
				LACPFast: true, HashPolicy: "layer3+4",
			},
		},
		{
			Name:      "storage",
			MTU:       1400,
			VLAN:      &network.VLAN{ID: 20, Parent: "bond0"},
			Addresses: []netip.Prefix{prefix("10.20.0.7/16")},
		},
		{Name: "mgmt", VLAN: &network.VLAN{ID: 4094, Parent: "bond0"}, Addresses: []netip.Prefix{prefix("2001:db8::7/64")}},
	}}
}

func wantBondAndVLANs(t *testing.T) {
	t.Helper()
	wantIn(
		t,
		hosttest.ReadFile(t, "/proc/net/bonding/bond0"),
		"IEEE 802.3ad",
		"MII Polling Interval (ms): 50",
		"LACP rate: fast",
		"Transmit Hash Policy: layer3+4",
		"Permanent HW addr: 52:54:00:00:00:01",
		"Permanent HW addr: 52:54:00:00:00:02",
	)
	wantIn(t, strings.Join(strings.Fields(hosttest.ReadFile(t, "/proc/net/vlan/config")), " "), "storage | 20 | bond0",
		"mgmt | 4094 | bond0")
	wantIn(t, hosttest.Shell(t, "ip addr show; ip route"), "10.20.0.7/16", "2001:db8::7/64", "mtu 1400", "mtu 1450",
		"default via 192.0.2.1 dev bond0")
}

// tryBonds applies bonds and VLANs, changes them, takes them away and brings the beginning back.
func tryBonds(t *testing.T, h *Linux) {
	t.Helper()
	const look = "ip -br addr show | tr -s ' '; ip -d link show type vlan; cat /proc/net/bonding/* 2>/dev/null || true"
	before := hosttest.Shell(t, look)
	first := bondAndVLANs()
	saved, err := h.SaveNetwork(t.Context(), first)
	hosttest.Must(t, err)
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, first))
	wantBondAndVLANs(t)

	second := bondAndVLANs()
	second.Interfaces[0].Bond.Mode, second.Interfaces[0].Bond.LACPFast, second.Interfaces[0].Bond.HashPolicy = "active-backup", false, ""
	second.Interfaces = second.Interfaces[:2]
	second.Interfaces[1].VLAN.ID = 21
	savedFirst, err := h.SaveNetwork(t.Context(), second)
	hosttest.Must(t, err)
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, second))
	wantIn(t, hosttest.ReadFile(t, "/proc/net/bonding/bond0"), "fault-tolerance (active-backup)")
	vlans := strings.Join(strings.Fields(hosttest.ReadFile(t, "/proc/net/vlan/config")), " ")
	wantIn(t, vlans, "storage | 21 | bond0")
	if strings.Contains(vlans, "mgmt") {
		t.Errorf("a VLAN that is not named any more is still there: %s", vlans)
	}

	hosttest.Must(t, h.RestoreNetwork(t.Context(), effect.Cause{}, savedFirst))
	wantBondAndVLANs(t)
	if s, err := h.Network(t.Context(), first, nil); err != nil || s.Diff != "" {
		t.Errorf("after the first rollback: %v\n%s", err, s.Diff)
	}
	hosttest.Must(t, h.RestoreNetwork(t.Context(), effect.Cause{}, saved))
	if after := hosttest.Shell(t, look); after != before {
		t.Errorf("before:\n%s\nafter the second rollback:\n%s", before, after)
	}
}

// Through networkd, the kernel, ifupdown and NetworkManager, in one machine: its start is what takes the time.
func TestBondsAndVLANs(t *testing.T) {
	t.Parallel()
	machine := hosttest.VMRun{Limit: hosttest.VMTime, Programs: []string{"usr/sbin/NetworkManager"}}
	if os.Getenv(hosttest.VMVariable) == "" {
		machine.Unpacked = unpacked(t, networkManagerPackages...)
	}
	if !hosttest.InVMWith(t, machine, ownSystem) {
		return
	}
	h, _ := unguarded(t)
	tryBonds(t, h)
	stopNetworkd()
	hosttest.Must(t, os.RemoveAll("/run/systemd/system")) // and so systemd is not init
	tryBonds(t, h)

	hosttest.Must(t, os.MkdirAll("/run/systemd/system", 0o755))
	hosttest.Must(t, os.MkdirAll("/run/network", 0o755))
	for _, d := range []string{"pre-up", "up", "down", "post-down"} {
		hosttest.Must(t, os.MkdirAll("/etc/network/if-"+d+".d", 0o755))
	}
	hosttest.WriteFile(t, "/etc/network/interfaces", "auto lo\niface lo inet loopback\n")
	hosttest.Shell(t, "ifup -a")
	h = ifupdownHost(t)
	tryBonds(t, h)
	// What a boot does with the files alone, of a machine that has none of it yet.
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, bondAndVLANs()))
	hosttest.Shell(t, "ip link del bond0; rm /run/network/ifstate*; ifup -a")
	wantBondAndVLANs(t)
	if s, err := h.Network(t.Context(), bondAndVLANs(), nil); err != nil || s.Diff != "" {
		t.Errorf("after a boot: %v\n%s", err, s.Diff)
	}
	hosttest.Must(t, h.ApplyNetwork(t.Context(), effect.Cause{}, network.Config{}))

	hosttest.Shell(t, "rm -r /etc/network /run/network /etc/ingot")
	startNetworkManager(t)
	testkit.Eventually(t, rigTime, func() bool {
		return strings.Count(hosttest.Shell(t, "ip -br link show"), " UP ") == 2
	}, "NetworkManager does not raise the cards")
	h, _ = unguarded(t)
	tryBonds(t, h)
}
