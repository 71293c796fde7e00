package client

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Reason is the closed reason that an error carries: of a refused call, or of an *OperationError. It is
// REASON_UNSPECIFIED where there is none, or one that this client is too old to know.
func Reason(err error) baremetalv1.Reason {
	var ended *OperationError
	if errors.As(err, &ended) {
		return baremetalv1.Reason(baremetalv1.Reason_value[ended.Operation.GetError().GetCode()])
	}
	return baremetalv1.Reason(baremetalv1.Reason_value[Info(err).GetReason()])
}

// Info is the error's google.rpc.ErrorInfo, nil where it has none.
func Info(err error) *errdetails.ErrorInfo { return detail[*errdetails.ErrorInfo](err) }

// Violations are the fields that the server finds fault with.
func Violations(err error) []*errdetails.BadRequest_FieldViolation {
	return detail[*errdetails.BadRequest](err).GetFieldViolations()
}

// RetryAfter is how long the server asks to wait; 0 where it does not say.
func RetryAfter(err error) time.Duration {
	return detail[*errdetails.RetryInfo](err).GetRetryDelay().AsDuration()
}

func detail[D any](err error) (none D) {
	for _, d := range status.Convert(err).Details() {
		if found, ok := d.(D); ok {
			return found
		}
	}
	return none
}

// passing are the reasons that a moment cures.
var passing = map[baremetalv1.Reason]bool{
	baremetalv1.Reason_RATE_LIMITED: true, baremetalv1.Reason_TOO_MANY_STREAMS: true,
	baremetalv1.Reason_CONTROLLER_OVERLOADED: true, baremetalv1.Reason_SLOW_READER: true,
	baremetalv1.Reason_DATABASE_UNAVAILABLE: true, baremetalv1.Reason_CONTROLLER_DRAINING: true,
	baremetalv1.Reason_CONTROLLER_LEASE_LOST: true, baremetalv1.Reason_DATABASE_IN_DOUBT: true,
	baremetalv1.Reason_ROLES_CHANGED: true,
}

// Transient reports whether an error speaks of the connection or the moment rather than of the request.
func Transient(err error) bool {
	if errors.Is(err, io.EOF) {
		return true
	}
	st, ok := status.FromError(err)
	if !ok {
		return false
	}
	switch st.Code() {
	case codes.Unavailable:
		// A certificate that does not verify now will not verify in a second either. A handshake that only breaks off is a
		// controller that goes, behind something that still takes connections for it.
		return !strings.Contains(st.Message(), "authentication handshake failed") || brokenOff(st.Message())
	case codes.ResourceExhausted, codes.Aborted:
		// gRPC uses RESOURCE_EXHAUSTED for oversized messages too, which stay oversized.
		return passing[Reason(err)]
	case codes.Unauthenticated:
		// The next call brings a renewed token, or an error that there is none.
		return Reason(err) == baremetalv1.Reason_SIGN_ON_EXPIRED
	case codes.Internal, codes.Unknown:
		return strings.Contains(st.Message(), "RST_STREAM") || strings.Contains(st.Message(), "unexpected EOF")
	}
	return false
}

// brokenOff reports whether a handshake failed as its connection ended, which gRPC reports as text only.
func brokenOff(message string) bool {
	for _, end := range []string{"EOF", "connection reset", "broken pipe", "i/o timeout", "deadline exceeded"} {
		if strings.Contains(message, end) {
			return true
		}
	}
	return false
}

// OperationError is the error of an operation that has ended without success.
type OperationError struct{ Operation *baremetalv1.Operation }

func (e *OperationError) Error() string {
	o := e.Operation
	return fmt.Sprintf("operation %s on %s is %s: %s: %s", o.GetOperationId(), o.GetMachineId(), o.GetPhase(),
		o.GetError().GetCode(), o.GetError().GetMessage())
}

// Retryable reports whether a new operation, under another request id, may succeed as things are.
func (e *OperationError) Retryable() bool { return e.Operation.GetError().GetRetryable() }
