package failure

import "google.golang.org/grpc/codes"

type kindInfo struct {
	name      string
	code      codes.Code
	retryable bool
}

// kinds is indexed by Kind.
var kinds = [...]kindInfo{
	KindInternal:        {"Internal", codes.Internal, false},
	KindNotFound:        {"NotFound", codes.NotFound, false},
	KindInvalid:         {"Invalid", codes.InvalidArgument, false},
	KindAlreadyExists:   {"AlreadyExists", codes.AlreadyExists, false},
	KindPrecondition:    {"Precondition", codes.FailedPrecondition, false},
	KindUnauthenticated: {"Unauthenticated", codes.Unauthenticated, false},
	KindDenied:          {"Denied", codes.PermissionDenied, false},
	KindUnavailable:     {"Unavailable", codes.Unavailable, true},
	KindExhausted:       {"Exhausted", codes.ResourceExhausted, true},
	KindAborted:         {"Aborted", codes.Aborted, true},
	KindUnimplemented:   {"Unimplemented", codes.Unimplemented, false},
	KindCanceled:        {"Canceled", codes.Canceled, false},
	KindDeadline:        {"Deadline", codes.DeadlineExceeded, true},
}

// String is the kind's name.
func (k Kind) String() string { return kinds[k].name }

// Code is the kind's gRPC code.
func (k Kind) Code() codes.Code { return kinds[k].code }

// kindOfCode maps codes that no kind has (OutOfRange, DataLoss, Unknown) to Internal.
func kindOfCode(c codes.Code) Kind {
	for k, info := range kinds {
		if info.code == c {
			return Kind(k)
		}
	}
	if c == codes.OutOfRange {
		return KindInvalid
	}
	return KindInternal
}

// NotFound is for a thing that does not exist, or not any more.
func NotFound(reason, format string, args ...any) *Error {
	return newError(KindNotFound, reason, format, args)
}

// Invalid is for a request that would be wrong in any state of the system. Name the field with WithField.
func Invalid(reason, format string, args ...any) *Error {
	return newError(KindInvalid, reason, format, args)
}

// AlreadyExists is for a name, key or request id that is taken.
func AlreadyExists(reason, format string, args ...any) *Error {
	return newError(KindAlreadyExists, reason, format, args)
}

// Precondition is for a request that is right in itself and wrong in the present state.
func Precondition(reason, format string, args ...any) *Error {
	return newError(KindPrecondition, reason, format, args)
}

// Unauthenticated is for a caller who has not shown who they are.
func Unauthenticated(reason, format string, args ...any) *Error {
	return newError(KindUnauthenticated, reason, format, args)
}

// Denied is for a caller who is known and may not.
func Denied(reason, format string, args ...any) *Error {
	return newError(KindDenied, reason, format, args)
}

// Unavailable is for something that is down now and expected back; it is retryable.
func Unavailable(reason, format string, args ...any) *Error {
	return newError(KindUnavailable, reason, format, args)
}

// Exhausted is for a limit that was hit; it is retryable.
func Exhausted(reason, format string, args ...any) *Error {
	return newError(KindExhausted, reason, format, args)
}

// Aborted is for a race that was lost or a session that was superseded; it is retryable.
func Aborted(reason, format string, args ...any) *Error {
	return newError(KindAborted, reason, format, args)
}

// Unimplemented is for a surface that is there without the work behind it.
func Unimplemented(reason, format string, args ...any) *Error {
	return newError(KindUnimplemented, reason, format, args)
}

// Internal is for a bug or a broken invariant. The message is shown to clients: keep details in Wrap.
func Internal(reason, format string, args ...any) *Error {
	return newError(KindInternal, reason, format, args)
}
