package executor

import (
	"errors"
	"maps"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/internal/failure"
)

// FromFailure turns a typed error into a failed result: with its reason, with its metadata as evidence, and retryable
// where it is. ok is false for other errors.
func FromFailure(err error) (r Result, ok bool) {
	var e *failure.Error
	if !errors.As(err, &e) {
		// What the controller refuses comes as a gRPC status, with its reason inside.
		if e = failure.From(err); e == nil || e.Reason == "" || e.Reason == failure.ReasonInternal {
			return Result{}, false
		}
	}
	reason, known := baremetalv1.Reason_value[e.Reason]
	if !known {
		reason = int32(baremetalv1.Reason_EXECUTION_FAILED)
	}
	r = Failed(baremetalv1.Reason(reason), "%s", e.Message)
	r.Retryable, r.Evidence = e.Retryable, maps.Clone(e.Metadata)
	return r, true
}
