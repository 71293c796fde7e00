package sim

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/ingot-metal/ingot/internal/clock"
)

// worldClock tells the time of the world by the system's clock itself (clock_gettime(2)), also in a program whose own
// clock is made to be wrong: a machine whose clock is set wrong does not move the world.
type worldClock struct{ clock.Clock }

func (worldClock) Now() time.Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &ts); err != nil {
		panic("read CLOCK_REALTIME: " + err.Error()) // only with a bad pointer
	}
	return time.Unix(ts.Unix())
}
