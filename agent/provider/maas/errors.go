package maas

import (
	"fmt"
	"net/http"

	"github.com/ingot-metal/ingot/internal/failure"
)

// Effect is the possible effect of a request that ended in an error.
type Effect int

// The effects.
const (
	// NotSent: it never reached MAAS.
	NotSent Effect = iota + 1
	// Refused: MAAS has read it and said no.
	Refused
	// Busy: MAAS, or what stands before it, had no time for it and did nothing.
	Busy
	// Open: its effect is unknown.
	Open
	// Doubtful: MAAS answers that it has no time, and it may have failed after it had acted. The request has ended: the
	// state in MAAS shows whether it acted.
	Doubtful
)

// Error is an error of a request to MAAS.
type Error struct {
	Effect Effect
	// Status of the answer; 0 when there was none.
	Status int
	// Why is the error that MAAS's answer, or its absence, stands for.
	Why *failure.Error
}

func (e *Error) Error() string { return e.Why.Message }

// Unwrap returns the failure, with its Reason.
func (e *Error) Unwrap() error { return e.Why }

// reasons of refusals, by HTTP status; any other is MAAS_REFUSED.
var reasons = map[int]string{
	http.StatusUnauthorized: "MAAS_AUTH_FAILED", http.StatusNotFound: "MAAS_MACHINE_GONE",
	http.StatusGone: "MAAS_MACHINE_GONE", http.StatusConflict: "MAAS_STATUS_CONFLICT",
}

// judged returns the Error of an exchange. what names the request; writes marks one that changes something.
func (x *exchange) judged(what string, writes bool, err error) *Error {
	switch s := x.status; {
	case s == http.StatusServiceUnavailable:
		return unreachable(Doubtful, s, "%s: MAAS has no time now (HTTP %d) %s", what, s, x.body).unless(writes)
	case s == http.StatusTooManyRequests || s == http.StatusConflict && x.again:
		return unreachable(Busy, s, "%s: MAAS has no time now (HTTP %d) %s", what, s, x.body)
	case s >= 400 && s < 500:
		return x.refused(what)
	case s >= 300 && s < 400:
		return &Error{Refused, s, failure.Precondition("MAAS_REFUSED", "%s: %v", what, errRedirected)}
	case !x.connected.Load():
		return unreachable(NotSent, s, "%s: MAAS cannot be reached: %v", what, err)
	case s >= 500:
		return unreachable(Open, s, "%s: MAAS answers HTTP %d %s", what, s, x.body).unless(writes)
	case s >= 200:
		return unreachable(Open, s, "%s: the answer of MAAS makes no sense: %v", what, err).unless(writes)
	}
	return unreachable(Open, 0, "%s: no answer of MAAS: %v", what, err).unless(writes)
}

// unless: what changes nothing can have had no effect, whatever became of it.
func (e *Error) unless(writes bool) *Error {
	if !writes {
		e.Effect = Busy
	}
	return e
}

func (x *exchange) refused(what string) *Error {
	reason := reasons[x.status]
	if reason == "" {
		reason = "MAAS_REFUSED"
	}
	why := failure.Precondition(reason, "%s: MAAS refuses (HTTP %d): %s", what, x.status, x.body)
	if x.status == http.StatusForbidden {
		why = failure.Precondition(reason, "%s: MAAS does not permit it (HTTP 403): the machine is locked there, or "+
			"is not the key user's to change %s", what, x.body)
	}
	return &Error{Refused, x.status, why}
}

func unreachable(e Effect, status int, format string, args ...any) *Error {
	why := failure.Unavailable("MAAS_UNREACHABLE", "%s", fmt.Sprintf(format, args...))
	why.Retryable = true
	return &Error{e, status, why}
}
