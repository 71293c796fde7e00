package transport

import (
	"math/rand/v2"
	"time"
)

// Limits of the wait between attempts. Operations move again within 5 s of a controller being up, which leaves a second
// for the session itself.
const (
	MinBackoff = 50 * time.Millisecond
	MaxBackoff = 4 * time.Second
)

// Backoff is the wait before attempt n+1, counted from 1: full jitter below an exponentially growing limit, so
// that a fleet that lost its controller at one moment doesn't come back at one moment.
func Backoff(n int) time.Duration {
	limit := MaxBackoff
	if n < 9 { // 50 ms << 8 is above the maximum; far greater shifts overflow
		limit = min(MinBackoff<<max(n-1, 0), MaxBackoff)
	}
	return Jitter(limit)
}

// Jitter is a random part of d.
func Jitter(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(rand.Int64N(int64(d)))
}
