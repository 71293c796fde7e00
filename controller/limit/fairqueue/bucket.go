package fairqueue

import "time"

// bucket holds the calls that a client may still make. It starts full.
type bucket struct {
	left  float64
	since time.Time
}

// take takes one call out, or returns how long it is until there is one.
func (b *bucket) take(r Rate, now time.Time) time.Duration {
	if b.since.IsZero() {
		b.left, b.since = float64(r.Burst), now
	}
	// A clock that was set back fills nothing.
	if passed := now.Sub(b.since); passed > 0 {
		b.left = min(float64(r.Burst), b.left+passed.Seconds()*float64(r.PerSecond))
		b.since = now
	}
	if b.left < 1 {
		return time.Duration((1 - b.left) / float64(r.PerSecond) * float64(time.Second))
	}
	b.left--
	return 0
}
