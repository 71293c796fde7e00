package reconnect_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/controller/limit/reconnect"
)

var (
	at     = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	limits = reconnect.Limits{Rate: 100, Burst: 20, Concurrent: 8}
)

func TestABurstIsTakenAndTheRestComesLater(t *testing.T) {
	var s reconnect.State
	var v reconnect.Verdict
	var last time.Duration
	admitted := 0
	for range 120 {
		if s, v = decide(limits, s, at, 0); v.Admit {
			admitted++
			s = reconnect.Opened(s)
			continue
		}
		if v.RetryAfter < last {
			t.Fatalf("told %v after %v", v.RetryAfter, last)
		}
		last = v.RetryAfter
	}
	if admitted != limits.Burst {
		t.Errorf("%d admitted at once, the burst is %d", admitted, limits.Burst)
	}
	if last != time.Second {
		t.Errorf("the last of 100 is told %v at 100 a second", last)
	}
}

func TestNoMoreInTheMakingThanMayBe(t *testing.T) {
	var s reconnect.State
	var v reconnect.Verdict
	for range limits.Concurrent {
		if s, v = decide(limits, s, at, 0); !v.Admit {
			t.Fatal("refused")
		}
	}
	if s, v = decide(limits, s, at, 0); v.Admit || v.RetryAfter != reconnect.MinRetry {
		t.Errorf("%+v", v)
	}
	s = reconnect.Opened(s)
	if _, v = decide(limits, s, at, 0); !v.Admit {
		t.Error("refused with room")
	}
}

func TestRoomComesWithTheRate(t *testing.T) {
	var s reconnect.State
	for range limits.Burst {
		var ok bool
		if s, ok = reconnect.Admit(limits, s, at); !ok {
			t.Fatal("refused")
		}
		s = reconnect.Opened(s)
	}
	s, ok := reconnect.Admit(limits, s, at)
	if ok {
		t.Fatal("more than the burst")
	}
	room := reconnect.Room(limits, s)
	if room != 10*time.Millisecond {
		t.Errorf("room in %v, at 100 a second", room)
	}
	if _, ok = reconnect.Admit(limits, s, at.Add(room-time.Millisecond)); ok {
		t.Error("room before its time")
	}
	if _, ok = reconnect.Admit(limits, s, at.Add(room)); !ok {
		t.Error("no room in its time")
	}
	if room := reconnect.Room(limits, reconnect.State{Opening: limits.Concurrent, At: at}); room != 0 {
		t.Errorf("time alone makes no room among those in the making: %v", room)
	}
}

func TestAClockThatGoesBackAndOneThatJumps(t *testing.T) {
	var s reconnect.State
	var v reconnect.Verdict
	for range limits.Burst {
		s, _ = decide(limits, s, at, 0)
		s = reconnect.Opened(s)
	}
	if s, v = decide(limits, s, at.Add(-time.Hour), 0); v.Admit {
		t.Error("the past has made room")
	}
	if s, v = decide(limits, s, at.Add(time.Hour), 0); !v.Admit {
		t.Error("an hour has made no room")
	}
	if s.Spent != 1 || s.Queued != 0 {
		t.Errorf("%+v", s)
	}
}

// A fleet that comes back at one moment, each at its time, is in as fast as the rate allows, and never faster.
func TestAFleetComesBackAtTheRate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := reconnect.Limits{
			Rate: float64(rapid.IntRange(50, 2000).Draw(t, "rate")), Burst: rapid.IntRange(10, 500).Draw(t, "burst"),
			Concurrent: 1000,
		}
		n := rapid.IntRange(1, 800).Draw(t, "agents")
		seed := rapid.Uint64().Draw(t, "seed")
		due := map[int][]int{0: make([]int, n)} // by millisecond
		var s reconnect.State
		in, attempts, now := 0, 0, 0
		for ; in < n; now++ {
			for range due[now] {
				seed = seed*6364136223846793005 + 1442695040888963407
				jitter := float64(seed>>40) / float64(1<<24)
				var v reconnect.Verdict
				s, v = decide(l, s, at.Add(time.Duration(now)*time.Millisecond), jitter)
				attempts++
				if v.Admit {
					s = reconnect.Opened(s)
					in++
					continue
				}
				if v.RetryAfter < reconnect.MinRetry || v.RetryAfter > reconnect.MaxRetry {
					t.Fatalf("told %v", v.RetryAfter)
				}
				next := now + int(v.RetryAfter.Milliseconds()) + 1
				due[next] = append(due[next], 0)
			}
			delete(due, now)
			if most := float64(l.Burst) + l.Rate*float64(now)/1000 + 1; float64(in) > most {
				t.Fatalf("%d in after %d ms, at most %.0f should be", in, now, most)
			}
		}
		ideal := float64(max(n-l.Burst, 0)) / l.Rate * 1000
		if limit := 2*ideal + 2000; float64(now) > limit {
			t.Fatalf("the last of %d came in after %d ms; the rate allows %.0f", n, now, ideal)
		}
		if attempts > 4*n+100 {
			t.Fatalf("%d attempts of %d agents", attempts, n)
		}
	})
}

func TestSpread(t *testing.T) {
	for _, c := range []struct {
		sessions, others int
		limit, want      time.Duration
	}{
		{0, 2, time.Minute, 0},
		{1000, 1, time.Minute, 10 * time.Second},
		{1000, 2, time.Minute, 5 * time.Second},
		{1000, 0, time.Minute, 10 * time.Second},
		{100_000, 1, 11 * time.Second, 11 * time.Second},
	} {
		if got := reconnect.Spread(c.sessions, limits, c.others, c.limit); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

func TestHeartbeat(t *testing.T) {
	for _, c := range []struct {
		configured            time.Duration
		sessions, controllers int
		want                  time.Duration
	}{
		{10 * time.Second, 0, 1, 10 * time.Second},
		{10 * time.Second, 15_000, 1, 10 * time.Second},
		{10 * time.Second, 15_001, 1, 11 * time.Second},
		{10 * time.Second, 45_000, 1, 30 * time.Second},
		{10 * time.Second, 45_000, 3, 10 * time.Second},
		{time.Second, 3000, 1, 2 * time.Second},
		{time.Minute, 45_000, 1, time.Minute},
		{10 * time.Second, 5, 0, 10 * time.Second},
	} {
		if got := reconnect.Heartbeat(c.configured, c.sessions, c.controllers); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// decide answers one hello that cannot wait. jitter is a random number from 0 up to 1.
func decide(l reconnect.Limits, s reconnect.State, now time.Time, jitter float64) (reconnect.State, reconnect.Verdict) {
	if s, ok := reconnect.Admit(l, s, now); ok {
		return s, reconnect.Verdict{Admit: true}
	}
	return reconnect.Refuse(l, s, now, jitter)
}
