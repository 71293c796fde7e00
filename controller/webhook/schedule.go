package webhook

import (
	"net/http"
	"strconv"
	"time"

	"github.com/ingot-metal/ingot/internal/when"
)

// Schedule is how often and how long a delivery is tried.
type Schedule struct {
	// MaxAttempts ends the tries; 0 means 12.
	MaxAttempts int
	// Base is the wait after the first failure. Each further one is three times as long, up to Cap. 0 means 10 s and 5 h,
	// which with 12 tries makes 23 h.
	Base, Cap time.Duration
	// PauseAfterEvents in a row that were given up pause a webhook, when it has failed for PauseAfter too; 0 means 10 and
	// 3 days.
	PauseAfterEvents int
	PauseAfter       time.Duration
}

// Filled has the defaults where nothing is said.
func (s Schedule) Filled() Schedule {
	if s.MaxAttempts == 0 {
		s.MaxAttempts = 12
	}
	if s.Base == 0 {
		s.Base = 10 * time.Second
	}
	if s.Cap == 0 {
		s.Cap = 5 * time.Hour
	}
	if s.PauseAfterEvents == 0 {
		s.PauseAfterEvents = 10
	}
	if s.PauseAfter == 0 {
		s.PauseAfter = 72 * time.Hour
	}
	return s
}

const factor = 3

// Wait is the time between the end of a try that failed, counted from 1, and the next. jitter is from 0 to 1 and moves
// it by a fifth up or down, so that what failed together is not tried together.
func (s Schedule) Wait(attempt int, jitter float64) time.Duration {
	d := s.Base
	for i := 1; i < attempt && d < s.Cap; i++ {
		d *= factor
	}
	d = min(d, s.Cap)
	return time.Duration(float64(d) * (0.8 + 0.4*jitter))
}

// ShouldPause reports whether a webhook has failed enough to be left alone.
func (s Schedule) ShouldPause(failedEvents int, failingSince, now time.Time) bool {
	return failedEvents >= s.PauseAfterEvents && !failingSince.IsZero() && now.Sub(failingSince) >= s.PauseAfter
}

// Result is what one request has come to.
type Result struct {
	// Status is 0 where no answer came.
	Status int
	// Problem is in a few words why it failed; empty for success.
	Problem string
	// Gone is set when the receiver wants no more events.
	Gone bool
	// RetryAfter is how long the receiver asks to be left alone, bounded; 0 when it does not ask.
	RetryAfter time.Duration
}

// OK reports whether the receiver has taken the event.
func (r Result) OK() bool { return r.Problem == "" }

// The states of a delivery.
const (
	Pending   = "pending"
	Delivered = "delivered"
	Dead      = "dead"
)

// The states of a webhook.
const (
	Active   = "active"
	Paused   = "paused"
	Disabled = "disabled"
)

// Why a webhook is not active.
const (
	ReasonOperator = "OPERATOR"
	ReasonFailing  = "FAILING"
	ReasonBacklog  = "BACKLOG"
	ReasonGone     = "GONE"
)

// Verdict is what becomes of a delivery.
type Verdict struct {
	State string
	// Wait is the time to the next try, where it is Pending.
	Wait time.Duration
}

// Decide returns the state of a delivery after its attempt, counted from 1. A ping has one try: an operator waits for
// it.
func (s Schedule) Decide(eventType string, attempt int, r Result, jitter float64) Verdict {
	switch {
	case r.OK():
		return Verdict{State: Delivered}
	case r.Gone, attempt >= s.MaxAttempts, eventType == Ping:
		return Verdict{State: Dead}
	}
	return Verdict{State: Pending, Wait: max(s.Wait(attempt, jitter), r.RetryAfter)}
}

// maxRetryAfter bounds what a receiver may ask for.
const maxRetryAfter = time.Hour

// Judge returns the result of an answer.
func Judge(status int, retryAfter string, now time.Time) Result {
	r := Result{Status: status}
	switch {
	case status >= 200 && status < 300:
		return r
	case status >= 300 && status < 400:
		r.Problem = statusText(status) + " (redirects are not followed)"
	default:
		r.Problem = statusText(status)
	}
	r.Gone = status == http.StatusGone
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		r.RetryAfter = when.RetryAfter(retryAfter, now, maxRetryAfter)
	}
	return r
}

func statusText(status int) string {
	text := "HTTP " + strconv.Itoa(status)
	if t := http.StatusText(status); t != "" {
		text += " " + t
	}
	return text
}
