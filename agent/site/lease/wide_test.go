package lease_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/site/lease"
)

// TestAPoolOfA22: a segment of a /22 assigns each of its addresses once, and a released one rests for 60 s.
func TestAPoolOfA22(t *testing.T) {
	t.Parallel()
	wide := small("10.1.0.0", "10.1.3.255")
	wide.Address = netip.MustParsePrefix("10.1.0.1/22")
	p := lease.New(lease.Config{Segment: wide}, nil)
	seen := map[netip.Addr]bool{}
	for i := range 1024 - 5 { // without network, broadcast, us, router and name server
		a := dora(t, p, mac(i), start)
		if seen[a] || !wide.Address.Contains(a) {
			t.Fatalf("%v is given twice, or lies outside", a)
		}
		seen[a] = true
	}
	if a, ok := p.Offer(mac(5000), netip.Addr{}, netip.Addr{}, start); ok {
		t.Errorf("a full pool gives %v", a)
	}
	freed := addr("10.1.2.7")
	holder, ok := p.Holder(freed, start)
	if !ok || !p.Release(holder.MAC, freed, start) {
		t.Fatalf("nobody has %v: %+v", freed, holder)
	}
	if a, ok := p.Offer(mac(5000), netip.Addr{}, netip.Addr{}, start.Add(60*time.Second-1)); ok {
		t.Errorf("%v is given within 60 s", a)
	}
	if a, ok := p.Offer(mac(5000), netip.Addr{}, netip.Addr{}, start.Add(60*time.Second)); !ok || a != freed {
		t.Errorf("after 60 s: %v, %t", a, ok)
	}
}
