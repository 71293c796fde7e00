package host

import (
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// bondAndVLANs is what only a kernel with both can be given.
func bondAndVLANs() NetworkConfig {
	return NetworkConfig{Interfaces: []Interface{
		{
			Name: "bond0", MTU: 1450, Addresses: []netip.Prefix{prefix("192.0.2.7/24")},
			Gateway: netip.MustParseAddr("192.0.2.1"),
			Bond: &Bond{
				Members: []string{"52:54:00:00:00:01", "52:54:00:00:00:02"}, Mode: "802.3ad", MIIMon: 50 * time.Millisecond,
				LACPFast: true, HashPolicy: "layer3+4",
			},
		},
		{Name: "storage", MTU: 1400, VLAN: &VLAN{ID: 20, Parent: "bond0"}, Addresses: []netip.Prefix{prefix("10.20.0.7/16")}},
		{Name: "mgmt", VLAN: &VLAN{ID: 4094, Parent: "bond0"}, Addresses: []netip.Prefix{prefix("2001:db8::7/64")}},
	}}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}

func wantBondAndVLANs(t *testing.T) {
	t.Helper()
	wantIn(t, read(t, "/proc/net/bonding/bond0"), "IEEE 802.3ad", "MII Polling Interval (ms): 50", "LACP rate: fast",
		"Transmit Hash Policy: layer3+4", "Permanent HW addr: 52:54:00:00:00:01", "Permanent HW addr: 52:54:00:00:00:02")
	wantIn(t, strings.Join(strings.Fields(read(t, "/proc/net/vlan/config")), " "), "storage | 20 | bond0",
		"mgmt | 4094 | bond0")
	wantIn(t, sh(t, "ip addr show; ip route"), "10.20.0.7/16", "2001:db8::7/64", "mtu 1400", "mtu 1450",
		"default via 192.0.2.1 dev bond0")
}

// tryBonds applies bonds and VLANs, changes them, takes them away and brings the beginning back.
func tryBonds(t *testing.T, h *Linux) {
	t.Helper()
	const look = "ip -br addr show | tr -s ' '; ip -d link show type vlan; cat /proc/net/bonding/*"
	before := sh(t, look)
	first := bondAndVLANs()
	saved, err := h.SaveNetwork(t.Context(), first)
	must(t, err)
	must(t, h.ApplyNetwork(t.Context(), Effect{}, first))
	wantBondAndVLANs(t)

	second := bondAndVLANs()
	second.Interfaces[0].Bond.Mode, second.Interfaces[0].Bond.LACPFast, second.Interfaces[0].Bond.HashPolicy = "active-backup", false, ""
	second.Interfaces = second.Interfaces[:2]
	second.Interfaces[1].VLAN.ID = 21
	savedFirst, err := h.SaveNetwork(t.Context(), second)
	must(t, err)
	must(t, h.ApplyNetwork(t.Context(), Effect{}, second))
	wantIn(t, read(t, "/proc/net/bonding/bond0"), "fault-tolerance (active-backup)")
	vlans := strings.Join(strings.Fields(read(t, "/proc/net/vlan/config")), " ")
	wantIn(t, vlans, "storage | 21 | bond0")
	if strings.Contains(vlans, "mgmt") {
		t.Errorf("a VLAN that is not named any more is still there: %s", vlans)
	}

	must(t, h.RestoreNetwork(t.Context(), Effect{}, savedFirst))
	wantBondAndVLANs(t)
	if s, err := h.Network(t.Context(), first, nil); err != nil || s.Diff != "" {
		t.Errorf("after the first rollback: %v\n%s", err, s.Diff)
	}
	must(t, h.RestoreNetwork(t.Context(), Effect{}, saved))
	if after := sh(t, look); after != before {
		t.Errorf("before:\n%s\nafter the second rollback:\n%s", before, after)
	}
}

// Once through networkd and once without, in one machine: its start is what takes the time.
func TestBondsAndVLANs(t *testing.T) {
	t.Parallel()
	if !inVM(t) {
		return
	}
	h, _ := unguarded(t)
	tryBonds(t, h)
	stopNetworkd()
	must(t, os.RemoveAll("/run/systemd/system")) // and so systemd is not init
	tryBonds(t, h)
}
