package ratelimit

import (
	"math/rand/v2"
	"net/netip"
	"testing"
)

// TestPlacesWhateverHappens draws connections that come, make progress and go, and holds the books against a count of
// its own.
func TestPlacesWhateverHappens(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 21))
		limits := ConnectionLimits{All: 5 + rng.IntN(20), Unproven: 4 + rng.IntN(12), PerAddress: 1 + rng.IntN(6),
			PerCaller: 1}
		b := newSlots(limits)
		var live []*slot
		drop := func(p *slot) {
			for i := range live {
				if live[i] == p {
					live = append(live[:i], live[i+1:]...)
					return
				}
			}
			t.Fatalf("seed %d: what gives way is not there", seed)
		}
		for step := range 400 {
			switch n := rng.IntN(4); {
			case n < 2 || len(live) == 0:
				p := &slot{address: netip.AddrFrom4([4]byte{127, 0, 0, byte(rng.IntN(5))})}
				victims, ok := b.add(p)
				for _, v := range victims {
					if v.stage != gone {
						t.Fatalf("seed %d step %d: what gives way is at stage %d", seed, step, v.stage)
					}
					drop(v)
				}
				if ok {
					live = append(live, p)
				}
			case n == 2:
				p := live[rng.IntN(len(live))]
				if victim := b.advance(p, min(p.stage+1, proven)); victim != nil {
					drop(victim)
				}
			default:
				p := live[rng.IntN(len(live))]
				b.remove(p)
				drop(p)
			}
			checkPlaces(t, b, live, limits)
		}
	}
}

func checkPlaces(t *testing.T, b *slots, live []*slot, limits ConnectionLimits) {
	t.Helper()
	var at [gone]int
	of := map[netip.Addr]int{}
	for _, p := range live {
		at[p.stage]++
		if p.stage < proven {
			of[p.address]++
		}
	}
	if b.open != len(live) || b.open > limits.All {
		t.Fatalf("%d are open, the books say %d of %d", len(live), b.open, limits.All)
	}
	for s := range b.stages {
		if b.stages[s].Len() != at[s] || at[s] > limits.most(stage(s)) {
			t.Fatalf("%d at stage %d, the books say %d of %d", at[s], s, b.stages[s].Len(), limits.most(stage(s)))
		}
	}
	if len(of) != len(b.addresses) {
		t.Fatalf("%d addresses, the books say %d", len(of), len(b.addresses))
	}
	for a, n := range of {
		if b.addresses[a].Len() != n || n > limits.PerAddress {
			t.Fatalf("%d of %s, the books say %d of %d", n, a, b.addresses[a].Len(), limits.PerAddress)
		}
	}
}

func TestAHostHasAWholePrefixOfIPv6(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8:1:2:3::4": "2001:db8:1:2::",
		"fe80::1%eth0": "fe80::",
	} {
		if got := shareOf(netip.MustParseAddr(in)); got.String() != want {
			t.Errorf("%s counts as %s, want %s", in, got, want)
		}
	}
}
