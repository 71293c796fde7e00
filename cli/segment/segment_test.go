package segment_test

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/cli/segment"
)

func TestPoolIsTheOtherHalf(t *testing.T) {
	for address, want := range map[string][2]string{
		"10.20.0.1/24":   {"10.20.0.128", "10.20.0.254"},
		"10.20.0.200/24": {"10.20.0.1", "10.20.0.127"},
		"10.0.0.1/8":     {"10.128.0.0", "10.128.15.255"},
		"192.0.2.1/29":   {"192.0.2.4", "192.0.2.6"},
	} {
		s, err := segment.New("eth1.42", address, "")
		if err != nil || s.GetPoolStart() != want[0] || s.GetPoolEnd() != want[1] || s.GetName() != "eth1-42" {
			t.Errorf("%s: %v, %v; want %v", address, s, err, want)
		}
	}
	s, err := segment.New("eth1", "10.20.0.1/24", "10.20.0.10-10.20.0.20")
	if err != nil || s.GetPoolStart() != "10.20.0.10" || s.GetPoolEnd() != "10.20.0.20" {
		t.Errorf("a pool that was given: %v, %v", s, err)
	}
	for _, bad := range []string{"10.20.0.10", "10.20.0.10-x", "10.20.0.20-10.20.0.10", "10.20.1.1-10.20.1.9",
		"fd00::1-fd00::9"} {
		if s, err := segment.New("eth1", "10.20.0.1/24", bad); err == nil {
			t.Errorf("pool %q gives %v", bad, s)
		}
	}
	for _, bad := range []string{"10.20.0.1", "10.20.0.1/30", "fd00::1/64", "10.0.0.1/0", ""} {
		if s, err := segment.New("eth1", bad, ""); err == nil {
			t.Errorf("%q gives %v", bad, s)
		}
	}
}

func TestOnlyDHCPHasAPool(t *testing.T) {
	for _, mode := range segment.Modes {
		s, err := segment.New("eth1", "10.20.0.1/24", "")
		if err != nil {
			t.Fatal(err)
		}
		if err := segment.In(s, mode, ""); err != nil || (s.GetPoolStart() != "") != (mode == "dhcp") || s.GetMode() != mode {
			t.Errorf("%s: %v, %v", mode, s, err)
		}
		if err := segment.In(s, mode, "10.20.0.10-10.20.0.20"); (err == nil) != (mode == "dhcp") {
			t.Errorf("%s with a pool that was asked for: %v", mode, err)
		}
	}
}

// TestPoolIsInTheNetwork holds for every address: the pool has neither the device's nor the network's own address, nor
// its broadcast.
func TestPoolIsInTheNetwork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		own := netip.PrefixFrom(netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "address"))),
			rapid.IntRange(1, 29).Draw(t, "bits"))
		s, err := segment.New("eth1", own.String(), "")
		if err != nil {
			t.Fatal(err)
		}
		start, end := netip.MustParseAddr(s.GetPoolStart()), netip.MustParseAddr(s.GetPoolEnd())
		if end.Less(start) || !own.Contains(start) || !own.Contains(end.Next()) || start == own.Masked().Addr() {
			t.Fatalf("%s: pool %s-%s", own, start, end)
		}
		if !own.Addr().Less(start) && !end.Less(own.Addr()) {
			t.Fatalf("%s is in its pool %s-%s", own, start, end)
		}
	})
}

func TestMachinesAreToldAddressesOnly(t *testing.T) {
	s, err := segment.New("eth1", "10.20.0.1/24", "")
	if err != nil {
		t.Fatal(err)
	}
	if err := segment.Reach(s, "10.20.0.254", []string{"192.0.2.53", "192.0.2.54"}); err != nil ||
		s.GetRouter() != "10.20.0.254" || len(s.GetDns()) != 2 {
		t.Errorf("%v, %v", s, err)
	}
	for _, bad := range []string{"router.example.net", "fd00::1", "10.20.0.254/24"} {
		if segment.Reach(s, bad, nil) == nil || segment.Reach(s, "", []string{bad}) == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
