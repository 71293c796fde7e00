package lease_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/segment"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func mac(n int) segment.MAC { return segment.MAC{2, 0, 0, 0, byte(n >> 8), byte(n)} }

func small(first, last string) segment.Segment {
	return segment.Segment{
		Name: "rack1", Interface: "eth1", Address: netip.MustParsePrefix("10.1.0.1/24"), Router: addr("10.1.0.254"),
		DNS: []netip.Addr{addr("10.1.0.11")}, PoolStart: addr(first), PoolEnd: addr(last), LeaseTime: time.Hour,
		Mode: segment.ModeDHCP, Discovery: segment.DiscoveryReport, HTTPPort: 80,
	}
}

// dora is a client that asks and takes what it is offered.
func dora(t *testing.T, p *lease.Pool, m segment.MAC, now time.Time) netip.Addr {
	t.Helper()
	a, ok := p.Offer(m, netip.Addr{}, netip.Addr{}, now)
	if !ok {
		t.Fatalf("%v gets no offer", m)
	}
	l, v := p.Request(lease.Ask{MAC: m, Address: a}, now)
	if v != lease.Granted || l.Address != a || l.MAC != m || !l.Ends.Equal(now.Add(time.Hour)) {
		t.Fatalf("%v asks for the offered %v: %v, %+v", m, a, v, l)
	}
	return a
}

func TestAddressesOfOthersAreNotGiven(t *testing.T) {
	t.Parallel()
	whole := small("10.1.0.0", "10.1.0.255")
	p := lease.New(lease.Config{Segment: whole}, nil)
	seen := map[netip.Addr]bool{}
	for i := range 251 { // 256 without network, broadcast, us, router, name server
		a := dora(t, p, mac(i), start)
		if seen[a] {
			t.Fatalf("%v given twice", a)
		}
		seen[a] = true
	}
	for _, never := range []string{"10.1.0.0", "10.1.0.255", "10.1.0.1", "10.1.0.254", "10.1.0.11"} {
		if seen[addr(never)] {
			t.Errorf("%s was given to a client", never)
		}
	}
	if a, ok := p.Offer(mac(999), netip.Addr{}, netip.Addr{}, start); ok {
		t.Errorf("a full pool gives %v", a)
	}
}

func TestLeasesAreSticky(t *testing.T) {
	t.Parallel()
	p := lease.New(lease.Config{Segment: small("10.1.0.20", "10.1.0.29")}, nil)
	first, second := dora(t, p, mac(1), start), dora(t, p, mac(2), start)
	later := start.Add(48 * time.Hour)
	if l, ok := p.Holder(first, start.Add(time.Hour-1)); !ok || l.MAC != mac(1) {
		t.Errorf("the holder of %v is %+v, %v", first, l, ok)
	}
	if l, ok := p.Holder(first, start.Add(time.Hour)); ok {
		t.Errorf("after its end the holder of %v is %+v", first, l)
	}
	if got := dora(t, p, mac(2), later); got != second {
		t.Errorf("two days later the second client gets %v instead of %v", got, second)
	}
	if got := dora(t, p, mac(3), later); got == first {
		t.Errorf("a new client gets %v, which an old one had, though others were never used", got)
	}
	if got := dora(t, p, mac(1), later); got != first {
		t.Errorf("two days later the first client gets %v instead of %v", got, first)
	}
}

func TestCooldown(t *testing.T) {
	t.Parallel()
	one := small("10.1.0.20", "10.1.0.20")
	for what, end := range map[string]func(*lease.Pool, netip.Addr) time.Time{
		"released": func(p *lease.Pool, a netip.Addr) time.Time {
			at := start.Add(time.Minute)
			if !p.Release(mac(1), a, at) {
				t.Error("the release of one's own address is refused")
			}
			return at
		},
		"run out": func(*lease.Pool, netip.Addr) time.Time { return start.Add(time.Hour) },
	} {
		p := lease.New(lease.Config{Segment: one}, nil)
		ended := end(p, dora(t, p, mac(1), start))
		if a, ok := p.Offer(mac(2), netip.Addr{}, netip.Addr{}, ended.Add(time.Minute-1)); ok {
			t.Errorf("%s: another client is offered %v within a minute", what, a)
		}
		if _, v := p.Request(lease.Ask{MAC: mac(2), Address: addr("10.1.0.20")},
			ended.Add(time.Minute-1)); v != lease.Refused {
			t.Errorf("%s: another client asks for it within a minute: %v", what, v)
		}
		if _, ok := p.Offer(mac(2), netip.Addr{}, netip.Addr{}, ended.Add(time.Minute)); !ok {
			t.Errorf("%s: after a minute another client still is not offered it", what)
		}
		if _, ok := p.Offer(mac(1), netip.Addr{}, netip.Addr{}, ended.Add(time.Minute+1)); ok {
			t.Errorf("%s: it is offered to two clients", what)
		}
	}
}

func TestItsOwnAddressHasNoCooldown(t *testing.T) {
	t.Parallel()
	p := lease.New(lease.Config{Segment: small("10.1.0.20", "10.1.0.20")}, nil)
	a := dora(t, p, mac(1), start)
	p.Release(mac(1), a, start.Add(time.Second))
	if got := dora(t, p, mac(1), start.Add(2*time.Second)); got != a {
		t.Errorf("got %v", got)
	}
}

func TestOffersLapse(t *testing.T) {
	t.Parallel()
	p := lease.New(lease.Config{Segment: small("10.1.0.20", "10.1.0.20")}, nil)
	if _, ok := p.Offer(mac(1), netip.Addr{}, netip.Addr{}, start); !ok {
		t.Fatal("no offer")
	}
	if _, ok := p.Offer(mac(2), netip.Addr{}, netip.Addr{}, start.Add(29*time.Second)); ok {
		t.Error("offered to two at once")
	}
	if len(p.Changes()) != 0 || len(p.Snapshot(start)) != 0 {
		t.Error("an offer counts as a lease")
	}
	if _, ok := p.Offer(mac(2), netip.Addr{}, netip.Addr{}, start.Add(30*time.Second)); !ok {
		t.Error("an offer that nobody took is kept for ever")
	}
	p.ChoseAnother(mac(2))
	if _, ok := p.Offer(mac(3), netip.Addr{}, netip.Addr{}, start.Add(31*time.Second)); !ok {
		t.Error("an offer is kept for a client that chose another server")
	}
}

func TestRequests(t *testing.T) {
	t.Parallel()
	p := lease.New(lease.Config{Segment: small("10.1.0.20", "10.1.0.29")}, nil)
	a := dora(t, p, mac(1), start)
	for what, c := range map[string]struct {
		ask  lease.Ask
		want lease.Verdict
	}{
		"renewal":                          {lease.Ask{MAC: mac(1), Address: a}, lease.Granted},
		"another's":                        {lease.Ask{MAC: mac(2), Address: a}, lease.Refused},
		"another network":                  {lease.Ask{MAC: mac(2), Address: addr("10.2.0.20")}, lease.Refused},
		"no address at all":                {lease.Ask{MAC: mac(2)}, lease.Refused},
		"outside the pool, unknown":        {lease.Ask{MAC: mac(2), Address: addr("10.1.0.200")}, lease.Silent},
		"outside the pool, known":          {lease.Ask{MAC: mac(1), Address: addr("10.1.0.200")}, lease.Refused},
		"a free one, but it has another":   {lease.Ask{MAC: mac(1), Address: addr("10.1.0.29")}, lease.Refused},
		"ours":                             {lease.Ask{MAC: mac(2), Address: addr("10.1.0.1")}, lease.Silent},
		"a free one, unknown after a loss": {lease.Ask{MAC: mac(3), Address: addr("10.1.0.28")}, lease.Granted},
		"not the fixed one": {lease.Ask{MAC: mac(4), Address: addr("10.1.0.27"), Fixed: addr("10.1.0.40")},
			lease.Refused},
		"the fixed one": {lease.Ask{MAC: mac(5), Address: addr("10.1.0.41"), Fixed: addr("10.1.0.41")},
			lease.Granted},
		"the fixed one in another's hands":   {lease.Ask{MAC: mac(6), Address: a, Fixed: a}, lease.Refused},
		"a free one for want of a fixed one": {lease.Ask{MAC: mac(7), Address: addr("10.1.0.26"), Fixed: a}, lease.Granted},
	} {
		l, v := p.Request(c.ask, start.Add(time.Minute))
		if v != c.want || v == lease.Granted && l.Address != c.ask.Address {
			t.Errorf("%s: %v, %+v; want %v", what, v, l, c.want)
		}
	}
}

func TestFixedAddresses(t *testing.T) {
	t.Parallel()
	fixed := addr("10.1.0.20")
	reserved := false
	p := lease.New(lease.Config{
		Segment:  small("10.1.0.20", "10.1.0.22"),
		Reserved: func(a netip.Addr) (segment.MAC, bool) { return mac(9), reserved && a == fixed },
	}, nil)
	if got := dora(t, p, mac(1), start); got != fixed {
		t.Fatalf("got %v", got)
	}
	reserved = true
	a, ok := p.Offer(mac(9), fixed, netip.Addr{}, start)
	if !ok || a == fixed {
		t.Errorf("a fixed address that another still has: offered %v, %v", a, ok)
	}
	if _, v := p.Request(lease.Ask{MAC: mac(1), Address: fixed}, start.Add(time.Minute)); v != lease.Refused {
		t.Errorf("a renewal of an address that was fixed to another since: %v", v)
	}
	if got := dora(t, p, mac(1), start.Add(time.Minute)); got == fixed {
		t.Error("it gets it again")
	}
	later := start.Add(2*time.Minute + time.Second)
	if a, ok = p.Offer(mac(9), fixed, netip.Addr{}, later); !ok || a != fixed {
		t.Fatalf("once it is free its machine is offered %v, %v", a, ok)
	}
	l, v := p.Request(lease.Ask{MAC: mac(9), Address: fixed, Fixed: fixed, Hostname: "n9"}, later)
	if v != lease.Granted || !l.Fixed || l.Hostname != "n9" {
		t.Errorf("%v, %+v", v, l)
	}
}

func TestANewFixedAddressEndsTheOldLease(t *testing.T) {
	t.Parallel()
	p := lease.New(lease.Config{Segment: small("10.1.0.20", "10.1.0.22")}, nil)
	old := dora(t, p, mac(1), start)
	fixed := addr("10.1.0.99")
	if a, ok := p.Offer(mac(1), fixed, netip.Addr{}, start); !ok || a != fixed {
		t.Fatalf("offered %v, %v", a, ok)
	}
	if _, v := p.Request(lease.Ask{MAC: mac(1), Address: fixed, Fixed: fixed},
		start.Add(time.Second)); v != lease.Granted {
		t.Fatal(v)
	}
	all := p.Snapshot(start.Add(2 * time.Second))
	if len(all) != 2 || all[0].Address != old || all[0].State != lease.Ended || all[1].State != lease.Bound {
		t.Errorf("%+v", all)
	}
	if len(p.Changes()) != 2 {
		t.Errorf("%d changes to save, want both addresses", len(p.Changes()))
	}
}

func TestDecline(t *testing.T) {
	t.Parallel()
	p := lease.New(lease.Config{Segment: small("10.1.0.20", "10.1.0.20")}, nil)
	a := dora(t, p, mac(1), start)
	if p.Decline(mac(2), a, start) || p.Release(mac(2), a, start) {
		t.Fatal("a client declines or releases what another has")
	}
	if !p.Decline(mac(1), a, start) {
		t.Fatal("declining one's own is refused")
	}
	for _, m := range []segment.MAC{mac(1), mac(2)} {
		if _, ok := p.Offer(m, netip.Addr{}, netip.Addr{}, start.Add(9*time.Minute)); ok {
			t.Errorf("%v is offered an address that a stranger uses", m)
		}
	}
	if p.Decline(mac(1), a, start.Add(5*time.Minute)) {
		t.Error("declined twice")
	}
	if _, ok := p.Offer(mac(2), netip.Addr{}, netip.Addr{}, start.Add(10*time.Minute)); !ok {
		t.Error("set aside for ever")
	}
	if !p.Decline(mac(2), a, start.Add(10*time.Minute)) {
		t.Error("declining an offer is refused")
	}
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	p := lease.New(lease.Config{Segment: small("10.1.0.20", "10.1.0.21")}, nil)
	until := start.Add(10 * time.Minute)
	if !p.MarkInUse(addr("10.1.0.20"), mac(50), until) || p.MarkInUse(addr("10.1.0.99"), mac(50), until) {
		t.Error("only strangers on addresses of the pool count")
	}
	if got := dora(t, p, mac(1), start); got != addr("10.1.0.21") {
		t.Errorf("the client gets %v, which somebody uses", got)
	}
	if _, ok := p.Offer(mac(2), netip.Addr{}, netip.Addr{}, start); ok {
		t.Error("the client is offered an address that somebody uses")
	}
	if p.MarkInUse(addr("10.1.0.21"), mac(1), until) {
		t.Error("a client on its own address is a stranger")
	}
	if got, ok := p.Offer(mac(50), netip.Addr{}, addr("10.1.0.20"), start); !ok || got != addr("10.1.0.20") {
		t.Errorf("the one that has it already is offered %v, %v", got, ok)
	}
	if got := p.Upcoming(5, start); len(got) != 0 {
		t.Errorf("upcoming in a full pool: %v", got)
	}
}

func TestUpcomingAreThoseThatComeNext(t *testing.T) {
	t.Parallel()
	p := lease.New(lease.Config{Segment: small("10.1.0.10", "10.1.0.29")}, nil)
	next := p.Upcoming(3, start)
	if len(next) != 3 {
		t.Fatalf("%v", next)
	}
	for i, want := range next {
		if got := dora(t, p, mac(i), start); got != want {
			t.Errorf("client %d gets %v, upcoming was %v", i, got, want)
		}
	}
	for i := range 30 {
		p.Offer(mac(i), netip.Addr{}, netip.Addr{}, start)
	}
	if next = p.Upcoming(100, start.Add(time.Minute)); len(next) != 16 { // 20 less the name server's and three leases
		t.Errorf("after the offers lapsed %d are upcoming: %v", len(next), next)
	}
}
