package ratelimit

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
)

// TestPlacesWhateverHappens draws connections that come, make progress and go, and holds the books against a count of
// its own.
func TestPlacesWhateverHappens(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 21))
		limits := ConnectionLimits{All: 5 + rng.IntN(20), Unproven: 4 + rng.IntN(12), PerAddress: 1 + rng.IntN(6),
			PerCaller: 1, HandshakeTime: time.Duration(rng.IntN(2)) * time.Second}
		b, now := newSlots(limits), time.Time{}
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
				before := map[*slot]stage{}
				for _, l := range live {
					before[l] = l.stage
				}
				victims, ok := b.add(p, now)
				for _, v := range victims {
					if before[v] == waiting {
						t.Fatalf("seed %d step %d: a connection that waited for its turn was closed for another", seed, step)
					}
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
				now = now.Add(time.Duration(rng.IntN(300)) * time.Millisecond)
				for _, v := range b.advance(p, min(p.stage+1, proven), now) {
					drop(v)
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
		if b.addresses[a].len() != n || n > limits.PerAddress {
			t.Fatalf("%d of %s, the books say %d of %d", n, a, b.addresses[a].len(), limits.PerAddress)
		}
	}
}

// TestAFleetThatComesBackKeepsItsTurns lets more agents of one address call at once than may wait: those that wait keep
// their turns, and the others are refused before they cost anything.
func TestAFleetThatComesBackKeepsItsTurns(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]ConnectionLimits{
		"one address":   {All: 1000, Unproven: 500, PerAddress: 100},
		"one listener":  {All: 1000, Unproven: 100, PerAddress: 500},
		"all it serves": {All: 100, Unproven: 500, PerAddress: 500},
	} {
		b := newSlots(limits)
		var fleet []*slot
		for range 300 {
			p := &slot{address: netip.MustParseAddr("192.0.2.1")}
			fleet = append(fleet, p)
			if _, ok := b.add(p, time.Time{}); ok {
				b.advance(p, waiting, time.Time{})
			}
		}
		for i, p := range fleet[:100] {
			if p.stage != waiting {
				t.Fatalf("%s: connection %d of 300 lost its turn, of 100 that may wait", name, i)
			}
		}
		if got := b.unproven(); got != 100 {
			t.Errorf("%s: %d connections, want 100", name, got)
		}
	}
}

// TestASlowHandshakeEndsForTheNext lets handshakes hang, which a later connection ends, and leaves those alone that have
// begun lately.
func TestASlowHandshakeEndsForTheNext(t *testing.T) {
	t.Parallel()
	b := newSlots(ConnectionLimits{All: 100, Unproven: 40, PerAddress: 100, HandshakeTime: time.Second})
	begin := time.Unix(1, 0)
	shakes := func(at time.Time) *slot {
		p := &slot{address: netip.MustParseAddr("192.0.2.1")}
		b.add(p, at)
		b.advance(p, waiting, at)
		b.advance(p, shaking, at)
		return p
	}
	hangs, late := shakes(begin), shakes(begin.Add(700*time.Millisecond))
	shakes(begin.Add(900 * time.Millisecond))
	if hangs.stage != shaking {
		t.Error("a handshake ended before its time")
	}
	shakes(begin.Add(1200 * time.Millisecond))
	if hangs.stage != gone || late.stage != shaking {
		t.Errorf("the handshake that hangs is at stage %d, the later one at %d", hangs.stage, late.stage)
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
