package lease_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/agent/site/lease"
	"github.com/ingot-metal/ingot/agent/site/segment"
)

// hold is a client's lease by the answers that it got: it may use an address until a time.
type hold struct {
	mac   segment.MAC
	until time.Time
}

type offer struct {
	address netip.Addr
	until   time.Time
}

// world drives a pool and keeps a book of its own, from nothing but the answers to clients.
type world struct {
	t     *rapid.T
	cfg   lease.Config
	pool  *lease.Pool
	now   time.Time
	saved map[netip.Addr]lease.Lease
	// told is the last client of each address; offered what each client was offered.
	told    map[netip.Addr]hold
	offered map[segment.MAC]offer
	fixed   map[netip.Addr]segment.MAC
	aside   map[netip.Addr]time.Time
}

func (w *world) fixedOf(m segment.MAC) netip.Addr {
	for a, owner := range w.fixed {
		if owner == m {
			return a
		}
	}
	return netip.Addr{}
}

// check holds an address that a client was given or offered against the book.
func (w *world) check(what string, m segment.MAC, a netip.Addr) {
	if h, ok := w.told[a]; ok && h.mac != m && w.now.Before(h.until.Add(lease.DefaultCooldown)) {
		w.t.Fatalf("%s: %v gets %v at %v, but %v may use it until %v", what, m, a, w.now, h.mac, h.until)
	}
	if owner, ok := w.fixed[a]; ok && owner != m {
		w.t.Fatalf("%s: %v gets %v, which is fixed to %v", what, m, a, owner)
	}
	if until, ok := w.aside[a]; ok && w.now.Before(until) {
		w.t.Fatalf("%s: %v gets %v, which is set aside until %v", what, m, a, until)
	}
	for other, o := range w.offered {
		if o.address == a && w.now.Before(o.until) && other != m && what == "offer" {
			w.t.Fatalf("%v is offered %v, which is kept for %v", m, a, other)
		}
	}
}

// save is what a server does before it answers.
func (w *world) save() {
	for _, l := range w.pool.Changes() {
		w.saved[l.Address] = l
	}
	w.pool.Saved()
}

func (w *world) discover(m segment.MAC, want netip.Addr) {
	a, ok := w.pool.Offer(m, w.fixedOf(m), want, w.now)
	if !ok {
		return
	}
	delete(w.offered, m)
	w.check("offer", m, a)
	w.offered[m] = offer{a, w.now.Add(lease.DefaultOfferTime)}
	w.request(m, a, true)
}

// request may come at once, or, when maybe is set, never.
func (w *world) request(m segment.MAC, a netip.Addr, maybe bool) {
	if maybe && !rapid.Bool().Draw(w.t, "takes it") {
		return
	}
	_, v := w.pool.Request(lease.Ask{MAC: m, Address: a, Fixed: w.fixedOf(m)}, w.now)
	w.save()
	if v != lease.Granted {
		return
	}
	w.check("grant", m, a)
	delete(w.offered, m)
	for other, h := range w.told { // a client that takes another address leaves the one before
		if h.mac == m && other != a && h.until.After(w.now) {
			w.told[other] = hold{m, w.now}
		}
	}
	w.told[a] = hold{m, w.now.Add(w.cfg.Segment.LeaseTime)}
}

func (w *world) restart() {
	w.offered = map[segment.MAC]offer{}
	w.pool = lease.New(w.cfg, w.stored())
}

func (w *world) stored() []lease.Lease {
	var out []lease.Lease
	for _, l := range w.saved {
		out = append(out, l)
	}
	return out
}

func (w *world) advance(d time.Duration) { w.now = w.now.Add(d) }

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, now: start, saved: map[netip.Addr]lease.Lease{}, told: map[netip.Addr]hold{},
		offered: map[segment.MAC]offer{}, fixed: map[netip.Addr]segment.MAC{}, aside: map[netip.Addr]time.Time{},
	}
	seg := small("10.1.0.18", "10.1.0.22")
	seg.LeaseTime = 5 * time.Minute
	w.cfg = lease.Config{Segment: seg, Reserved: func(a netip.Addr) (segment.MAC, bool) {
		m, ok := w.fixed[a]
		return m,
			ok
	}}
	w.pool = lease.New(w.cfg, nil)
	return w
}

func (w *world) anAddress() netip.Addr {
	return addr(fmt.Sprintf("10.1.0.%d", rapid.IntRange(16, 24).Draw(w.t, "address")))
}

// TestNoAddressHasTwoClients draws what clients, an operator and crashes do to a small pool.
func TestNoAddressHasTwoClients(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		client := func() segment.MAC { return mac(rapid.IntRange(1, 8).Draw(t, "client")) }
		t.Repeat(map[string]func(*rapid.T){
			"discover": func(*rapid.T) { w.discover(client(), netip.Addr{}) },
			"wish":     func(*rapid.T) { w.discover(client(), w.anAddress()) },
			"request":  func(*rapid.T) { w.request(client(), w.anAddress(), false) },
			"release": func(*rapid.T) {
				m, a := client(), w.anAddress()
				had := w.told[a].mac == m && w.told[a].until.After(w.now)
				if done := w.pool.Release(m, a, w.now); done != had {
					t.Fatalf("release of %v by %v: %v, though it had it: %v", a, m, done, had)
				} else if done {
					w.told[a] = hold{m, w.now}
				}
				w.save()
			},
			"decline": func(*rapid.T) {
				m, a := client(), w.anAddress()
				if w.pool.Decline(m, a, w.now) {
					w.aside[a] = w.now.Add(lease.DefaultDeclineTime)
					delete(w.told, a)
					delete(w.offered, m)
				}
				w.save()
			},
			"fix": func(*rapid.T) {
				a, m := w.anAddress(), client()
				if old := w.fixedOf(m); old.IsValid() {
					delete(w.fixed, old)
				}
				w.fixed[a] = m
			},
			"moments": func(*rapid.T) { w.advance(time.Duration(rapid.IntRange(1, 29).Draw(t, "s")) * time.Second / 30) },
			"minutes": func(*rapid.T) { w.advance(time.Duration(rapid.IntRange(30, 400).Draw(t, "s")) * time.Second) },
			"restart": func(*rapid.T) { w.restart() },
			"": func(*rapid.T) {
				for _, l := range w.pool.Snapshot(w.now) {
					if h := w.told[l.Address]; l.State == lease.Bound && (h.mac != l.MAC || !h.until.Equal(l.Ends)) {
						t.Fatalf("the list says %+v, the client was told %+v", l, h)
					}
				}
			},
		})
	})
}

// TestAFreeAddressIsFound: whatever came before, after a quiet day every address of the pool goes to a new client.
func TestAFreeAddressIsFound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(0, 40).Draw(t, "before") {
			m := mac(rapid.IntRange(1, 12).Draw(t, "client"))
			w.discover(m, netip.Addr{})
			switch a := w.anAddress(); rapid.IntRange(0, 4).Draw(t, "then") {
			case 0:
				w.pool.Release(m, a, w.now)
			case 1:
				w.pool.Decline(m, a, w.now)
			case 2:
				w.restart()
			}
			w.save()
			w.advance(time.Duration(rapid.IntRange(0, 200).Draw(t, "s")) * time.Second)
			w.told, w.aside = map[netip.Addr]hold{}, map[netip.Addr]time.Time{}
		}
		w.advance(24 * time.Hour)
		got := map[netip.Addr]bool{}
		for i := range 5 {
			a, ok := w.pool.Offer(mac(100+i), netip.Addr{}, netip.Addr{}, w.now)
			if !ok || got[a] {
				t.Fatalf("new client %d is offered %v, %v; the others have %v", i, a, ok, got)
			}
			got[a] = true
		}
	})
}
