package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// Boottime is the time since this machine booted, suspend included (CLOCK_BOOTTIME, clock_gettime(2)). It never goes
// back and cannot be set, so it measures windows such as the life of a grant. It means nothing across a reboot or on
// another machine.
func Boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		// The call fails only on a kernel older than 2.6.39 or with a bad pointer.
		panic("read CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
