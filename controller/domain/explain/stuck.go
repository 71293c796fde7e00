package explain

import "time"

// Limits of what counts as stuck.
const (
	// StuckFactor is how many times its normal p95 a step may take.
	StuckFactor = 3
	// StuckFloor is what every step may take, and StuckBlind one whose normal duration is not known.
	StuckFloor = 2 * time.Minute
	StuckBlind = 15 * time.Minute
	// soon is how far off an automatic action may be to count as in sight.
	soon = time.Minute
)

// Stuck decides over a step that has run for some time. next is when something automatic happens at the latest, or the
// zero time.
func Stuck(ran time.Duration, n Baseline, now, next time.Time) bool {
	inSight := !next.IsZero() && !next.Before(now) && next.Sub(now) <= max(soon, n.P95)
	return Overlong(ran, n) && !inSight
}

// Overlong reports whether a step has taken longer than its kind should.
func Overlong(ran time.Duration, n Baseline) bool { return ran > bound(n) }

// bound is how long a step may take before an operator should look.
func bound(n Baseline) time.Duration {
	if n.Samples == 0 {
		return StuckBlind
	}
	return max(StuckFactor*n.P95, StuckFloor)
}
