// Package failure is the one form of error that crosses a boundary: a kind, a stable reason, a message that a
// client may read, and whether trying again can help. ToStatus and the server interceptors turn it into gRPC,
// From turns it back.
package failure

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Kind is the class of an error. Each has exactly one gRPC code.
type Kind uint8

// The kinds. Canceled and Deadline exist for the caller who went away or ran out of time; nothing else makes them.
const (
	KindInternal Kind = iota
	KindNotFound
	KindInvalid
	KindAlreadyExists
	KindPrecondition
	KindUnauthenticated
	KindDenied
	KindUnavailable
	KindExhausted
	KindAborted
	KindUnimplemented
	KindCanceled
	KindDeadline
)

// Field is one fault of a request.
type Field struct {
	// Path in the request message, such as "spec.mac_addresses[0]".
	Path string
	// Description is one sentence for the sender of the request.
	Description string
}

// Error is a failure that may be shown to a client. Reason, Message, Fields and Metadata leave the process; the
// wrapped cause does not: it appears in Error(), for logs, and never in ToStatus.
//
// The With methods and Wrap return a changed copy, so an Error may be kept in a package variable.
type Error struct {
	Kind Kind
	// Reason is one of the names of baremetal.v1.Reason; empty only for KindCanceled and KindDeadline.
	Reason  string
	Message string
	// Retryable is set when the same call may succeed later without anything else being changed.
	Retryable bool
	// RetryAfter is sent as google.rpc.RetryInfo where Retryable and the kind is Unavailable or Exhausted;
	// zero stands for DefaultRetryAfter.
	RetryAfter time.Duration
	Fields     []Field
	// Metadata goes into ErrorInfo. Keys are lower_snake (google.rpc.ErrorInfo).
	Metadata map[string]string

	cause error
}

// DefaultRetryAfter is how long a client must wait when an Error names no time.
const DefaultRetryAfter = time.Second

// Error returns reason, message, faulty fields and cause.
func (e *Error) Error() string {
	s := e.Message
	if e.Reason != "" {
		s = e.Reason + ": " + s
	}
	for _, f := range e.Fields {
		s += "; " + f.Path + ": " + f.Description
	}
	if e.cause != nil {
		s += ": " + e.cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// Is matches another *Error of the same kind and reason, so that errors.Is works with package variables.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind && t.Reason == e.Reason
}

// WithField adds the fault of one field.
func (e *Error) WithField(path, description string) *Error {
	c := e.clone()
	c.Fields = append(c.Fields, Field{Path: path, Description: description})
	return c
}

// WithMeta adds a key to the metadata.
func (e *Error) WithMeta(key, value string) *Error {
	c := e.clone()
	if c.Metadata == nil {
		c.Metadata = map[string]string{}
	}
	c.Metadata[key] = value
	return c
}

// WithRetry makes it retryable after d.
func (e *Error) WithRetry(d time.Duration) *Error {
	c := e.clone()
	c.Retryable, c.RetryAfter = true, d
	return c
}

// Wrap keeps err as the cause: for logs and errors.Is, never for clients.
func (e *Error) Wrap(err error) *Error {
	c := e.clone()
	c.cause = err
	return c
}

func (e *Error) clone() *Error {
	c := *e
	c.Fields = slices.Clone(e.Fields)
	c.Metadata = maps.Clone(e.Metadata)
	return &c
}

// HasReason reports whether err is or wraps an *Error with this reason.
func HasReason(err error, reason string) bool {
	var e *Error
	return errors.As(err, &e) && e.Reason == reason
}

// KindOf is the kind of From(err). It must not be called with nil.
func KindOf(err error) Kind { return From(err).Kind }

// ReasonOf is the reason of From(err), and empty for nil.
func ReasonOf(err error) string {
	if err == nil {
		return ""
	}
	return From(err).Reason
}

// Retryable reports whether From(err) is retryable; false for nil.
func Retryable(err error) bool { return err != nil && From(err).Retryable }

func newError(k Kind, reason, format string, args []any) *Error {
	return &Error{Kind: k, Reason: reason, Message: fmt.Sprintf(format, args...), Retryable: kinds[k].retryable}
}
