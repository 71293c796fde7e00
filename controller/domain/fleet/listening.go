package fleet

import "time"

// Listening is when the controllers of a fleet could hear its agents. No silence counts for the time in which they
// could not. The zero value is a fleet whose controllers have always listened.
type Listening struct {
	// AwaySince is where the last gap began. Zero: there was none.
	AwaySince time.Time
	// CaughtUpAt is when all agents have had the time to come back after that gap.
	CaughtUpAt time.Time
}

// CatchingUp reports whether agents still have time to come back: that one is not heard proves nothing yet.
func (l Listening) CatchingUp(now time.Time) bool { return now.Before(l.CaughtUpAt) }

// CatchingUpUntil returns the end of that time; zero where it is over.
func (l Listening) CatchingUpUntil(now time.Time) time.Time {
	if !l.CatchingUp(now) {
		return time.Time{}
	}
	return l.CaughtUpAt
}

// SilentFrom is the time from which the silence of the agent counts.
func (c *Candidate) SilentFrom() time.Time {
	if c.NotHeardUntil.After(c.LastSeen) {
		return c.NotHeardUntil
	}
	return c.LastSeen
}

// Silence returns for how long an agent has been silent. silentFrom is the time from which its silence counts: its last
// heartbeat, or later where it could not be heard since. Every decision on silence uses it.
func Silence(silentFrom, now time.Time) time.Duration { return max(now.Sub(silentFrom), 0) }
