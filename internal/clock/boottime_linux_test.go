package clock_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
)

func TestBoottimeMovesForward(t *testing.T) {
	t.Parallel()
	a := clock.Boottime()
	<-time.After(2 * time.Millisecond)
	if b := clock.Boottime(); b-a < 2*time.Millisecond || a <= 0 {
		t.Fatalf("boot time went from %v to %v", a, b)
	}
}
