package bmc

import (
	"maps"
	"slices"
	"time"
)

// What the budget allows.
const (
	// backoffFirst doubles with each failure in a row, up to backoffMost.
	backoffFirst = time.Second
	backoffMost  = time.Minute
	// wrongMost refusals within wrongWithin stop everything until the oldest of them is that old: a BMC that locks out
	// after five tries within some minutes never sees the fourth.
	wrongMost   = 3
	wrongWithin = 30 * time.Minute
	// againFirst after a 401 the same credentials are tried once more, then after twice as long, up to againMost: some
	// BMCs say 401 while they start, and none counts failures over such a time.
	againFirst = wrongWithin
	againMost  = 24 * time.Hour
	// secondTry after a 401, credentials that were accepted last are tried once more: GB200 and iLO answer so while they
	// restart. A BMC that was silent just before is starting, and gets startingTry.
	secondTry   = 30 * time.Second
	startingTry = 2 * time.Minute
	// forgetAfter silences in a row, a protocol that was found by probing is looked for again.
	forgetAfter = 3
)

// Budget is what a BMC may still be asked. It holds no secret and is a value: Ask and After decide, and change
// nothing.
type Budget struct {
	// Parked are the credentials that were refused, as ref@version.
	Parked []string `json:"parked,omitempty"`
	// Again is when those of them that were refused with 401 are tried once more, and how long they waited for it.
	Again map[string]Again `json:"again,omitempty"`
	// Wrong are the times of the refusals that still count, and of log-ins that may have been refused.
	Wrong []time.Time `json:"wrong,omitempty"`
	// Silences in a row, and when it may be asked again.
	Silences  int       `json:"-"`
	NotBefore time.Time `json:"-"`
}

// Again is the next careful try of refused credentials.
type Again struct {
	At    time.Time     `json:"at"`
	After time.Duration `json:"after"`
}

// second reports whether it is the second try of credentials that were accepted before.
func (a Again) second() bool { return a.After < againFirst }

// SecondTry returns when credentials that were accepted before their refusal are tried once more; zero where they are
// not.
func (b Budget) SecondTry(credentials string) time.Time {
	if again, will := b.Again[credentials]; will && again.second() {
		return again.At
	}
	return time.Time{}
}

// Permission is the answer of Budget.Ask.
type Permission int

// The answers.
const (
	Go Permission = iota
	// ParkedLeave: these credentials were refused; only others help.
	ParkedLeave
	// LockoutLeave: too many were refused lately, or may have been.
	LockoutLeave
	// BackoffLeave: it was silent just now.
	BackoffLeave
)

// Ask returns whether the BMC may be asked with these credentials; if it may be later, until is that time.
func (b Budget) Ask(now time.Time, credentials string) (leave Permission, until time.Time) {
	if slices.Contains(b.Parked, credentials) {
		again, will := b.Again[credentials]
		switch {
		case will && now.Before(again.At) && again.second():
			return BackoffLeave, again.At
		case !will || now.Before(again.At):
			return ParkedLeave, again.At
		}
	}
	if recent := b.recent(now); len(recent) >= wrongMost {
		return LockoutLeave, recent[0].Add(wrongWithin)
	}
	if now.Before(b.NotBefore) {
		return BackoffLeave, b.NotBefore
	}
	return Go, time.Time{}
}

func (b Budget) recent(now time.Time) []time.Time {
	return slices.DeleteFunc(slices.Clone(b.Wrong), func(t time.Time) bool { return now.Sub(t) >= wrongWithin })
}

// Outcome of one exchange with a BMC.
type Outcome int

// The outcomes.
const (
	Answered     Outcome = iota // well or not: it answered
	Refused                     // it refused the credentials
	Unauthorized                // it refused them with 401
	Doubtful                    // it refused with 401 what it accepted last
	Silent                      // it did not answer
	Unanswered                  // it did not answer a log-in with credentials that it has not taken before
)

// After is the budget after an exchange.
func (b Budget) After(now time.Time, credentials string, o Outcome) Budget {
	b.Wrong = b.recent(now)
	switch o {
	case Answered:
		b.Silences, b.NotBefore = 0, time.Time{}
		b.Parked = slices.DeleteFunc(slices.Clone(b.Parked), func(c string) bool { return c == credentials })
		b.Again = maps.Clone(b.Again)
		delete(b.Again, credentials)
	case Refused, Unauthorized, Doubtful:
		silences := b.Silences
		b.Silences, b.NotBefore = 0, time.Time{}
		b.Wrong = append(b.Wrong, now)
		if b.Parked = slices.Clone(b.Parked); !slices.Contains(b.Parked, credentials) {
			b.Parked = append(b.Parked, credentials)
		}
		before, waited := b.Again[credentials]
		b.Again = maps.Clone(b.Again)
		delete(b.Again, credentials)
		if o != Refused {
			after := againFirst
			switch {
			case o == Doubtful && !waited && silences > 0:
				after = startingTry
			case o == Doubtful && !waited:
				after = secondTry
			case waited && !before.second():
				after = min(2*before.After, againMost)
			}
			if b.Again == nil {
				b.Again = map[string]Again{}
			}
			b.Again[credentials] = Again{At: now.Add(after), After: after}
		}
	case Silent:
		b.NotBefore = now.Add(backoff(b.Silences))
		b.Silences++
	case Unanswered:
		b.Wrong = append(b.Wrong, now)
		b.NotBefore = now.Add(backoffMost)
		b.Silences++
	}
	return b
}

// Pause is the budget of a BMC that asks not to be asked before a time.
func (b Budget) Pause(now time.Time, d time.Duration) Budget {
	b.NotBefore = now.Add(min(d, backoffMost))
	return b
}

// Without is the budget of a BMC that takes no more of some credentials, or takes others that it refused before: it has
// another password now. Refusals count on.
func (b Budget) Without(gone, taken string) Budget {
	b.Parked = slices.DeleteFunc(slices.Clone(b.Parked), func(c string) bool { return c == gone || c == taken })
	b.Again = maps.Clone(b.Again)
	delete(b.Again, gone)
	delete(b.Again, taken)
	if gone != "" {
		b.Parked = append(b.Parked, gone)
	}
	return b
}

// backoff after so many silences before this one.
func backoff(before int) time.Duration {
	d := backoffFirst
	for range before {
		if d *= 2; d >= backoffMost {
			return backoffMost
		}
	}
	return d
}

// stale reports whether the protocol should be looked for again.
func (b Budget) stale() bool { return b.Silences >= forgetAfter }
