// Package clock is where code that waits gets its time from, so that tests can turn the hands themselves.
package clock

import "time"

// Clock tells the time and waits for it.
type Clock interface {
	// Now is the current time.
	Now() time.Time
	// After delivers the time once, d from now; at once when d is zero or negative.
	After(d time.Duration) <-chan time.Time
	// NewTicker delivers the time every d. It panics when d is not positive, as time.NewTicker does.
	NewTicker(d time.Duration) Ticker
}

// Ticker is a repeating timer. A slow reader misses ticks instead of piling them up.
type Ticker interface {
	C() <-chan time.Time
	Stop()
	Reset(d time.Duration)
}

// Real is the clock of the operating system.
func Real() Clock { return realClock{} }

type realClock struct{}

func (realClock) Now() time.Time                         { return time.Now() }
func (realClock) After(d time.Duration) <-chan time.Time { return time.After(d) }
func (realClock) NewTicker(d time.Duration) Ticker       { return realTicker{time.NewTicker(d)} }

type realTicker struct{ t *time.Ticker }

func (r realTicker) C() <-chan time.Time   { return r.t.C }
func (r realTicker) Stop()                 { r.t.Stop() }
func (r realTicker) Reset(d time.Duration) { r.t.Reset(d) }
