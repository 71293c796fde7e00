package site

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/site/dhcp"
	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/segment"
)

func rack(name, device, address string) *fleetv1.Segment {
	return &fleetv1.Segment{Name: name, Interface: device, Address: address}
}

func TestOnlyAllowedInterfacesAreServedAndEachOnce(t *testing.T) {
	t.Parallel()
	p := readDocument(&fleetv1.SiteDocument{Revision: 3, Segments: []*fleetv1.Segment{
		rack("a", "eth1", "10.1.0.1/24"), rack("b", "eth1", "10.2.0.1/24"), rack("c", "eth2", "10.3.0.1/24"),
		rack("d", "eth3", "nowhere"),
		rack("e", "eth4", "10.5.0.1/24"),
	}}, []string{"eth1", "eth3", "eth4"}, 8080)
	var served []string
	for _, s := range p.segments {
		served = append(served, s.segment.Name)
	}
	if fmt.Sprint(served) != "[a e]" {
		t.Errorf("served %v", served)
	}
	for name, want := range map[string]string{"b": "serves segment a already", "c": "site.interfaces", "d": "address"} {
		if !strings.Contains(p.refused[name], want) {
			t.Errorf("segment %s: %q, want %q", name, p.refused[name], want)
		}
	}
	s := p.segments[0].segment
	if s.HTTPPort != 8080 || s.LeaseTime != time.Hour || s.Mode != segment.ModeDHCP ||
		s.Discovery != segment.DiscoveryReport {
		t.Errorf("defaults: %+v", s)
	}
}

func TestAssignmentsThatMakeNoSenseCostNobodyElseTheirs(t *testing.T) {
	t.Parallel()
	sum := func(c string) string { return strings.Repeat(c, 64) }
	p := readDocument(&fleetv1.SiteDocument{
		Revision: 3, Segments: []*fleetv1.Segment{rack("a", "eth1", "10.1.0.1/24"), rack("b", "eth2", "10.2.0.1/24")},
		Installers: []*fleetv1.InstallerFiles{{Arch: "amd64", KernelSha256: sum("1"), InitrdSha256: sum("2")}},
		Assignments: []*fleetv1.BootAssignment{
			{MachineId: "good", MacAddresses: []string{"02:00:00:00:00:01", "02:00:00:00:00:02", "zz"}, Mode: "installer",
				Token: "t", Address: "10.2.0.9", PrefetchSha256: []string{sum("3")}},
			{MachineId: "thief", MacAddresses: []string{"02:00:00:00:00:01"}, Mode: "installer", Token: "u"},
			{MachineId: "odd", MacAddresses: []string{"02:00:00:00:00:03"}, Mode: "sideways"},
			{MachineId: "bare", MacAddresses: []string{"02:00:00:00:00:04"}, Mode: "rescue"},
			{MachineId: "lost", MacAddresses: []string{"02:00:00:00:00:05"}, Mode: "disk", Address: "nowhere"},
			{MachineId: "done", MacAddresses: []string{"02:00:00:00:00:06"}, Mode: "disk", PrefetchSha256: []string{sum("4")}},
		},
	}, []string{"eth1", "eth2"}, 8080)
	if len(p.problems) != 5 {
		t.Errorf("problems %v", p.problems)
	}
	for i, want := range []string{
		"a 02:00:00:00:00:01 good invalid IP, a 02:00:00:00:00:02 good invalid IP, a 02:00:00:00:00:06 done invalid IP",
		"b 02:00:00:00:00:01 good 10.2.0.9, b 02:00:00:00:00:02 good invalid IP, b 02:00:00:00:00:06 done invalid IP"} {
		var got []string
		for _, a := range p.segments[i].doc.Assignments {
			got = append(got, fmt.Sprint(a.Segment, " ", a.MAC, " ", a.MachineID, " ", a.Address))
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("segment %d has\n%s, want\n%s", i, strings.Join(got, ", "), want)
		}
		if err := (&segment.Table{}).Replace(p.segments[i].doc); err != nil {
			t.Error(err)
		}
	}
	if got := fmt.Sprint(p.wanted); got != fmt.Sprint([]string{sum("1"), sum("2"), sum("3")}) {
		t.Errorf("wanted %s", got)
	}
}

func TestWhoHasAnAddress(t *testing.T) {
	t.Parallel()
	one, two, none := segment.MAC{1}, segment.MAC{2}, segment.MAC{}
	for _, c := range []struct {
		what       string
		mode       segment.Mode
		lent, seen segment.MAC
		want       segment.MAC
	}{
		{"both agree", segment.ModeDHCP, one, one, one},
		{"another card uses a lent address", segment.ModeDHCP, one, two, none},
		{"behind a router", segment.ModeDHCP, one, none, one},
		{"not lent", segment.ModeDHCP, none, two, none},
		{"beside another server", segment.ModeProxy, none, two, two},
		{"beside another server, unseen", segment.ModeProxy, none, none, none},
	} {
		got, ok := agree(c.mode, c.lent, c.lent != none, c.seen, c.seen != none)
		if got != c.want || ok != (c.want != none) {
			t.Errorf("%s: %v %v, want %v", c.what, got, ok, c.want)
		}
	}
	now := time.Now()
	a := netip.MustParseAddr("10.1.0.50")
	for _, l := range []lease.Lease{
		{Address: a, MAC: one, State: lease.Bound, Ends: now},
		{Address: a, MAC: one, State: lease.Ended, Ends: now.Add(time.Hour)},
		{Address: a.Next(), MAC: one, State: lease.Bound, Ends: now.Add(time.Hour)},
	} {
		if mac, ok := ownerByLease([]lease.Lease{l}, a, now); ok {
			t.Errorf("%+v gives %v the address", l, mac)
		}
	}
}

func TestWhatIsSaidOfASegment(t *testing.T) {
	t.Parallel()
	if got := stateOf(map[string]string{"http": "", "dhcp": "no device", "ra": "",
		"tftp": "port"}); got != "dhcp: no device; tftp: port" {
		t.Errorf("state %q", got)
	}
	if got := stateOf(map[string]string{"http": ""}); got != "up" {
		t.Errorf("state %q", got)
	}
	other := func(address string, proxy bool) dhcp.Other {
		return dhcp.Other{Foreign: dhcp.Foreign{Server: netip.MustParseAddr(address), Proxy: proxy}}
	}
	others := []dhcp.Other{other("10.1.0.9", false), other("10.1.0.8", false), other("10.1.0.10", true)}
	if got := foreignServer(segment.ModeDHCP, others); got != "10.1.0.8" {
		t.Errorf("beside a full server: %q", got)
	}
	if got := foreignServer(segment.ModeProxy, others); got != "10.1.0.10" {
		t.Errorf("beside a proxy: %q", got)
	}
	s := segment.Segment{PoolStart: netip.MustParseAddr("10.1.0.250"), PoolEnd: netip.MustParseAddr("10.1.1.3")}
	if got := poolSize(s); got != 10 {
		t.Errorf("pool of %d", got)
	}
	if got := printable("PXE\x00Client\n" + strings.Repeat("x", 100)); got != "PXEClient"+strings.Repeat("x", 55) {
		t.Errorf("vendor %q", got)
	}
}
