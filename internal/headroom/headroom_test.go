package headroom

import "testing"

func TestPercent(t *testing.T) {
	t.Parallel()
	for alive, want := range map[uint64]int{
		0: 400, 1 << 20: 400, 20 << 20: 320, 64 << 20: 100, 128 << 20: 50, 160 << 20: 40, 1 << 30: 40, 1 << 40: 40,
	} {
		if got := Percent(alive); got != want {
			t.Errorf("of %d bytes: %d%%, want %d%%", alive, got, want)
		}
	}
}

func TestOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set, want int
		is        bool
	}{{0, 400, true}, {400, 400, false}, {100, 109, false}, {100, 112, true}, {100, 50, true}} {
		if got := off(c.set, c.want); got != c.is {
			t.Errorf("set %d, wanted %d: %t", c.set, c.want, got)
		}
	}
}

func TestTheRuntimeTellsWhatIsAlive(t *testing.T) {
	t.Parallel()
	// The globals alone are more than nothing; a metric that was renamed would read as nothing.
	if got := alive(); got == 0 {
		t.Error("nothing is alive")
	}
}
