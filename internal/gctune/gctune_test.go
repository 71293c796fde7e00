package gctune

import (
	"runtime"
	"testing"
)

func TestPercent(t *testing.T) {
	t.Parallel()
	const much = 1 << 40
	for alive, want := range map[uint64]int{
		0: 400, 1 << 20: 400, 20 << 20: 120, 48 << 20: 50, 64 << 20: 40, 160 << 20: 40, 1 << 30: 40, 1 << 40: 40,
	} {
		if got := Percent(alive, much); got != want {
			t.Errorf("of %d bytes: %d%%, want %d%%", alive, got, want)
		}
	}
}

func TestALargeHeapThatIsNotBusyGetsLittleRoom(t *testing.T) {
	t.Parallel()
	for perSecond, want := range map[uint64]int{0: 10, 1 << 20: 10, 10 << 20: 14, 20 << 20: 29, 100 << 20: 40} {
		if got := Percent(1<<30, perSecond); got != want {
			t.Errorf("at %d bytes a second: %d%%, want %d%%", perSecond, got, want)
		}
	}
	if got := Percent(20<<20, 0); got != 120 {
		t.Errorf("a small one gets %d%%", got)
	}
}

func TestOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set, want int
		is        bool
	}{{0, 400, true}, {400, 400, false}, {100, 109, false}, {100, 116, true}, {100, 50, true}} {
		if got := off(c.set, c.want); got != c.is {
			t.Errorf("set %d, wanted %d: %t", c.set, c.want, got)
		}
	}
}

func TestTheRuntimeTellsWhatIsAlive(t *testing.T) {
	t.Parallel()
	// The globals alone are more than nothing; a metric that was renamed would read as nothing.
	if alive, allocated := look(); alive == 0 || allocated == 0 {
		t.Errorf("%d alive, %d allocated", alive, allocated)
	}
}

// TestEachCollectionIsNoticed: the room of a heap that grows quickly follows it from one collection to the next.
func TestEachCollectionIsNoticed(t *testing.T) {
	t.Parallel()
	collected := make(chan struct{}, 1)
	onCollection(t.Context(), collected)
	for range 3 {
		runtime.GC()
		<-collected
	}
}
