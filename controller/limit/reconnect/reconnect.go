// Package reconnect decides how fast agents connect and how often they report. It decides which hello is admitted now
// and when to try again otherwise, and over which time a stopping controller sends its agents elsewhere. It decides how
// long an agent may stay silent.
//
// It does no I/O and reads no clock.
package reconnect

import "time"

// Limits bound how fast sessions are opened on one controller.
type Limits struct {
	// Rate is sessions a second, in the long run. It must be above 0.
	Rate float64
	// Burst is how many may be opened at once after a rest. It must be at least 1.
	Burst int
	// Concurrent is how many may be in the making at a time. It must be at least 1.
	Concurrent int
	// Waiting is how many hellos wait for their turn; those beyond are refused. It may be 0.
	Waiting int
}

// State is the state between two hellos. The zero value, with Opening kept by the caller, is a controller that has
// rested.
type State struct {
	// Spent are the sessions that have been let in beyond what the rate has made up for; 0 after a rest, the burst at
	// most.
	Spent float64
	// Queued are those that got a time to come again, as far as the rate has not made up for them since.
	Queued float64
	// At is when both were true.
	At time.Time
	// Opening are the sessions that are in the making.
	Opening int
}

// Verdict is the answer to a hello.
type Verdict struct {
	Admit bool
	// RetryAfter is when to try again where Admit is false.
	RetryAfter time.Duration
}

// The bounds of the time that an agent must wait.
const (
	MinRetry = 100 * time.Millisecond
	MaxRetry = time.Minute
)

// Admit takes a hello, if there is room for it now.
func Admit(l Limits, s State, now time.Time) (State, bool) {
	s = s.after(l, now)
	if s.Opening >= l.Concurrent || s.Spent+1 > float64(l.Burst) {
		return s, false
	}
	s.Spent++
	s.Opening++
	return s, true
}

// Room is the time until the rate has made up for one more session; 0 when only sessions in the making stand in the
// way.
func Room(l Limits, s State) time.Duration {
	return time.Duration(max(s.Spent+1-float64(l.Burst), 0) / l.Rate * float64(time.Second))
}

// Refuse returns when a refused hello may try again. The times of refused hellos are as far apart as the rate, so that
// they come back no faster than they can be admitted.
func Refuse(l Limits, s State, now time.Time, jitter float64) (State, Verdict) {
	s = s.after(l, now)
	// Who comes back has a place in what the rate makes up for; the rest of the fleet waits behind.
	s.Queued = min(s.Queued+1, l.Rate*MaxRetry.Seconds())
	wait := time.Duration(s.Queued / l.Rate * float64(time.Second))
	wait += time.Duration(jitter * float64(max(wait/4, MinRetry)))
	return s, Verdict{RetryAfter: min(max(wait, MinRetry), MaxRetry)}
}

// Opened is the state after a session has been opened, or has failed to be.
func Opened(s State) State {
	s.Opening = max(s.Opening-1, 0)
	return s
}

// after is the state at a later time. A clock that goes back changes nothing.
func (s State) after(l Limits, now time.Time) State {
	if s.At.IsZero() {
		s.At = now
	}
	if now.After(s.At) {
		made := now.Sub(s.At).Seconds() * l.Rate
		s.Spent, s.Queued = max(s.Spent-made, 0), max(s.Queued-made, 0)
		s.At = now
	}
	return s
}

// Spread is the time over which the agents of a stopping controller go elsewhere: as slowly as the others take them,
// and in no more than the limit.
func Spread(sessions int, l Limits, others int, limit time.Duration) time.Duration {
	perSecond := l.Rate * float64(max(others, 1))
	return min(time.Duration(float64(sessions)/perSecond*float64(time.Second)), limit)
}

// BeatsPerSecond is how many heartbeats one controller takes a second before it asks for fewer.
const BeatsPerSecond = 1500

// Heartbeat returns the interval of a new session: the configured one, or longer, in whole seconds, where the fleet is
// so large that its controllers would hear too many.
func Heartbeat(configured time.Duration, sessions, controllers int) time.Duration {
	share := sessions / max(controllers, 1)
	if scaled := time.Duration((share+BeatsPerSecond-1)/BeatsPerSecond) * time.Second; scaled > configured {
		return scaled
	}
	return configured
}

// What one agent may need to find that its controller is gone, and to reach it or another one again.
const (
	// noticeTime is the time after which an agent's connection counts as dead: pingAfter and pingWait of
	// agent/transport.
	noticeTime = 25 * time.Second
	// attemptTime is two attempts to connect that fail, each with the longest delay after it (MaxBackoff of
	// agent/transport).
	attemptTime = 8 * time.Second
)

// Time returns how long all agents of a fleet may take to open sessions again after their controllers were away: to
// notice it, to try, and to wait for their turn at the rate at which the controllers admit them.
func Time(l Limits, sessions, controllers int) time.Duration {
	if l.Rate <= 0 {
		return noticeTime + attemptTime
	}
	turns := float64(sessions) / (l.Rate * float64(max(controllers, 1)))
	// Refuse adds a quarter to each delay at most.
	return noticeTime + attemptTime + time.Duration(turns*1.25*float64(time.Second))
}
