package clock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func pending(c <-chan time.Time) (time.Time, bool) {
	select {
	case at := <-c:
		return at, true
	default:
		return time.Time{}, false
	}
}

func TestFakeAfterFiresOnceWhenDue(t *testing.T) {
	t.Parallel()
	f := clock.NewFake(start)
	c := f.After(time.Minute)
	f.Advance(time.Minute - 1)
	if _, ok := pending(c); ok {
		t.Fatal("fired early")
	}
	f.Advance(time.Hour)
	if at, ok := pending(c); !ok || !at.Equal(start.Add(time.Minute)) {
		t.Fatalf("fired = %v at %v, want at the due time", ok, at)
	}
	f.Advance(time.Hour)
	if _, ok := pending(c); ok || f.Waiters() != 0 {
		t.Fatal("fired twice")
	}
	if want := start.Add(2*time.Hour + time.Minute - 1); !f.Now().Equal(want) {
		t.Fatalf("Now = %v, want %v", f.Now(), want)
	}
}

func TestFakeAfterOfNothingFiresAtOnce(t *testing.T) {
	t.Parallel()
	f := clock.NewFake(start)
	for _, d := range []time.Duration{0, -time.Second} {
		if at, ok := pending(f.After(d)); !ok || !at.Equal(start) {
			t.Errorf("After(%v): fired = %v at %v", d, ok, at)
		}
	}
}

func TestFakeTickerDropsResetsStops(t *testing.T) {
	t.Parallel()
	f := clock.NewFake(start)
	tick := f.NewTicker(time.Second)
	f.Advance(3500 * time.Millisecond)
	if at, ok := pending(tick.C()); !ok || !at.Equal(start.Add(time.Second)) {
		t.Fatalf("first tick = %v %v", at, ok)
	}
	if _, ok := pending(tick.C()); ok {
		t.Fatal("missed ticks piled up")
	}
	f.Advance(500 * time.Millisecond)
	if at, ok := pending(tick.C()); !ok || !at.Equal(start.Add(4*time.Second)) {
		t.Fatalf("the period drifted: %v %v", at, ok)
	}
	tick.Reset(time.Minute)
	f.Advance(59 * time.Second)
	if _, ok := pending(tick.C()); ok {
		t.Fatal("fired by the old period after Reset")
	}
	f.Advance(time.Second)
	if _, ok := pending(tick.C()); !ok {
		t.Fatal("did not fire by the new period")
	}
	tick.Stop()
	f.Advance(time.Hour)
	if _, ok := pending(tick.C()); ok {
		t.Fatal("fired after Stop")
	}
}

func TestBlockUntil(t *testing.T) {
	t.Parallel()
	f := clock.NewFake(start)
	got := make(chan (<-chan time.Time))
	task.Background("waiter", func() { got <- f.After(time.Second) })
	if err := f.BlockUntil(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	f.Advance(time.Second)
	if _, ok := pending(<-got); !ok {
		t.Fatal("the waiter was not there when BlockUntil returned")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.BlockUntil(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Fatalf("BlockUntil = %v, want the context's error", err)
	}
}

func TestRealTickerTicks(t *testing.T) {
	t.Parallel()
	c := clock.Real()
	before := c.Now()
	tick := c.NewTicker(time.Millisecond)
	defer tick.Stop()
	<-tick.C()
	<-c.After(time.Millisecond)
	if e := c.Now().Sub(before); e < 2*time.Millisecond {
		t.Fatalf("only %v went by", e)
	}
}

func TestMisusePanics(t *testing.T) {
	t.Parallel()
	f := clock.NewFake(start)
	for name, call := range map[string]func(){
		"advance back":  func() { f.Advance(-1) },
		"ticker of 0":   func() { f.NewTicker(0) },
		"reset to zero": func() { f.NewTicker(1).Reset(0) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			call()
		}()
	}
}
