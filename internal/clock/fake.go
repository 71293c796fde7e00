package clock

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Fake is a clock that moves only when Advance is called. It is safe for concurrent use.
type Fake struct {
	mu      sync.Mutex
	now     time.Time
	waiters []*waiter
	changed chan struct{} // closed and replaced whenever waiters grows
}

type waiter struct {
	clock  *Fake
	at     time.Time
	period time.Duration // 0 for After
	ch     chan time.Time
}

// NewFake makes a clock that stands at t.
func NewFake(t time.Time) *Fake {
	return &Fake{now: t, changed: make(chan struct{})}
}

// Now is the time the clock stands at.
func (f *Fake) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// After implements Clock.
func (f *Fake) After(d time.Duration) <-chan time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &waiter{clock: f, at: f.now.Add(d), ch: make(chan time.Time, 1)}
	if d <= 0 {
		w.ch <- f.now
		return w.ch
	}
	f.add(w)
	return w.ch
}

// NewTicker implements Clock.
func (f *Fake) NewTicker(d time.Duration) Ticker {
	mustBePositive(d)
	f.mu.Lock()
	defer f.mu.Unlock()
	w := &waiter{clock: f, at: f.now.Add(d), period: d, ch: make(chan time.Time, 1)}
	f.add(w)
	return w
}

// Advance moves the clock by d and fires what falls due, in order of time. A ticker that is due several
// times fires for each, but its channel holds one tick, as a real one's does. d must not be negative.
func (f *Fake) Advance(d time.Duration) {
	if d < 0 {
		panic("clock: Advance by a negative duration")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	end := f.now.Add(d)
	for {
		w := f.earliest()
		if w == nil || w.at.After(end) {
			break
		}
		f.now = w.at
		f.fire(w)
	}
	f.now = end
}

// Waiters is the number of timers and tickers that are running.
func (f *Fake) Waiters() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.waiters)
}

// BlockUntil returns when at least n timers and tickers are running. Then the code under test waits, and the test may
// call Advance. It returns ctx's error when that ends first.
func (f *Fake) BlockUntil(ctx context.Context, n int) error {
	for {
		f.mu.Lock()
		have, changed := len(f.waiters), f.changed
		f.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *Fake) add(w *waiter) {
	f.waiters = append(f.waiters, w)
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *Fake) remove(w *waiter) {
	f.waiters = slices.DeleteFunc(f.waiters, func(x *waiter) bool { return x == w })
}

func (f *Fake) earliest() *waiter {
	var first *waiter
	for _, w := range f.waiters {
		if first == nil || w.at.Before(first.at) {
			first = w
		}
	}
	return first
}

func (f *Fake) fire(w *waiter) {
	select {
	case w.ch <- w.at:
	default: // a tick that was not taken yet stands for this one too
	}
	if w.period == 0 {
		f.remove(w)
		return
	}
	w.at = w.at.Add(w.period)
}

// C implements Ticker.
func (w *waiter) C() <-chan time.Time { return w.ch }

// Stop implements Ticker.
func (w *waiter) Stop() {
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	w.clock.remove(w)
}

// Reset implements Ticker.
func (w *waiter) Reset(d time.Duration) {
	mustBePositive(d)
	w.clock.mu.Lock()
	defer w.clock.mu.Unlock()
	w.clock.remove(w)
	w.period, w.at = d, w.clock.now.Add(d)
	w.clock.add(w)
}

func mustBePositive(d time.Duration) {
	if d <= 0 {
		panic("clock: ticker period must be positive")
	}
}
