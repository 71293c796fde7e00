package failure

import (
	"context"
	"errors"
	"sync/atomic"

	"google.golang.org/grpc/status"
)

// ReasonInternal is the reason of every error without another one.
const ReasonInternal = "INTERNAL"

// internalMessage is all that a client learns of an error that was not meant for clients.
const internalMessage = "internal error"

// Classifier recognises the errors of one library; it returns nil for unknown ones.
type Classifier func(error) *Error

var classifiers atomic.Pointer[[]Classifier]

// Register adds a classifier to From. It is for the init functions of packages such as pgfailure, which know a
// library that not every binary links.
func Register(c Classifier) {
	var all []Classifier
	if old := classifiers.Load(); old != nil {
		all = append(all, *old...)
	}
	all = append(all, c)
	classifiers.Store(&all)
}

// From returns the *Error in err: err itself or one that it wraps, or an error that a registered Classifier knows. The
// end of a context and a gRPC status, as a client gets it, are converted. Anything else is KindInternal with
// ReasonInternal, a generic message, and err as its cause. It returns nil for nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if e = classify(err); e != nil {
		return e
	}
	if e = fromContext(err); e != nil {
		return e
	}
	// Only a status that is the error itself or wrapped by it; status.FromError would invent one for the rest.
	var s interface{ GRPCStatus() *status.Status }
	if errors.As(err, &s) {
		return fromStatus(s.GRPCStatus())
	}
	return &Error{Kind: KindInternal, Reason: ReasonInternal, Message: internalMessage, cause: err}
}

func fromContext(err error) *Error {
	switch {
	case errors.Is(err, context.Canceled):
		return &Error{Kind: KindCanceled, Message: "canceled by the caller", cause: err}
	case errors.Is(err, context.DeadlineExceeded):
		return &Error{Kind: KindDeadline, Message: "deadline exceeded", Retryable: true, cause: err}
	}
	return nil
}

func classify(err error) *Error {
	all := classifiers.Load()
	if all == nil {
		return nil
	}
	for _, c := range *all {
		if e := c(err); e != nil {
			return e
		}
	}
	return nil
}
