package clock

import (
	"sync"
	"time"
)

// tolerated is how far a Steered clock may be from the one that it follows before it is set: as two machines with time
// synchronization.
const tolerated = 250 * time.Millisecond

// Steered is a clock that runs by monotonic time since it was last set. It is set by a clock elsewhere that several
// programs share, such as their database's. The wall clock of this machine does not affect it.
type Steered struct {
	own Clock

	mu sync.Mutex
	// base is what it showed when own showed mark.
	base, mark time.Time
}

// NewSteered begins with the time of own, whose times must carry a monotonic reading or never be set back.
func NewSteered(own Clock) *Steered {
	now := own.Now()
	return &Steered{own: own, base: now.Round(0), mark: now}
}

// Now is the current time, without a monotonic reading.
func (s *Steered) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at(s.own.Now())
}

func (s *Steered) at(own time.Time) time.Time { return s.base.Add(own.Sub(s.mark)) }

// Follow asks for the time elsewhere, and sets the clock where the difference exceeds the time that the answer took. It
// returns how far the clock was behind, and reports whether it was set.
func (s *Steered) Follow(ask func() (time.Time, error)) (behind time.Duration, set bool, err error) {
	asked := s.own.Now()
	theirs, err := ask()
	if err != nil {
		return 0, false, err
	}
	half := s.own.Now().Sub(asked) / 2
	s.mu.Lock()
	defer s.mu.Unlock()
	then := asked.Add(half)
	behind = theirs.Sub(s.at(then))
	if behind.Abs() <= tolerated+half {
		return behind, false, nil
	}
	s.base, s.mark = theirs.Local(), then
	return behind, true, nil
}

// After delivers the time once, d from now.
func (s *Steered) After(d time.Duration) <-chan time.Time { return s.own.After(d) }

// NewTicker delivers the time every d. What it delivers is the own clock's.
func (s *Steered) NewTicker(d time.Duration) Ticker { return s.own.NewTicker(d) }
