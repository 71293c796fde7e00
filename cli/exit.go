package cli

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// The exit codes. They are part of the interface: scripts branch on them.
const (
	exitOK              = 0
	exitUnexpected      = 1
	exitInvalid         = 2
	exitNotFound        = 3
	exitRefused         = 4
	exitFailed          = 5
	exitCanceled        = 6
	exitUnauthenticated = 7
	exitUnavailable     = 8
	exitTimeout         = 9
	exitUnimplemented   = 10
	exitInterrupted     = 130
)

const exitCodesHelp = `Exit codes of every command:

    0  success; an operation that was waited for SUCCEEDED
    1  wrong usage, or something unexpected
    2  invalid argument: the server found fault with a field
    3  not found
    4  refused: the state of things does not allow it (FAILED_PRECONDITION, ALREADY_EXISTS)
    5  the operation FAILED; "audit verify" found a history that is not as it was written; a receiver did not take
       the ping of "webhook test"
    6  the operation was CANCELED
    7  unauthenticated, or the token's scope is too small
    8  the server cannot be reached, or is overloaded
    9  timed out waiting (--timeout); an operation that was started goes on
   10  not implemented by this server
  130  interrupted; an operation that was started goes on

With --no-wait the code says whether the operation was accepted, not how it ended.`

// exitError is an error that knows its exit code.
type exitError struct {
	code int
	err  error // nil when everything has been said
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usagef is a mistake in the command line itself.
func usagef(format string, args ...any) error {
	return &exitError{code: exitUnexpected, err: fmt.Errorf(format, args...)}
}

// invalidf is a bad value in a file or an argument, found before the server saw it.
func invalidf(format string, args ...any) error {
	return &exitError{code: exitInvalid, err: fmt.Errorf(format, args...)}
}

func exitCode(err error) int {
	var own *exitError
	switch {
	case errors.As(err, &own):
		return own.code
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitByStatus(status.Code(err))
}

func exitByStatus(code codes.Code) int {
	switch code {
	case codes.InvalidArgument, codes.OutOfRange:
		return exitInvalid
	case codes.NotFound:
		return exitNotFound
	case codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted:
		return exitRefused
	case codes.Unauthenticated, codes.PermissionDenied:
		return exitUnauthenticated
	case codes.Unavailable, codes.ResourceExhausted:
		return exitUnavailable
	case codes.DeadlineExceeded:
		return exitTimeout
	case codes.Canceled:
		return exitInterrupted
	case codes.Unimplemented:
		return exitUnimplemented
	}
	return exitUnexpected
}

// exitByPhase is nil for an operation that succeeded. The words have been printed by then.
func exitByPhase(phase pb.Operation_Phase) error {
	switch phase {
	case pb.Operation_SUCCEEDED:
		return nil
	case pb.Operation_FAILED:
		return &exitError{code: exitFailed}
	case pb.Operation_CANCELED:
		return &exitError{code: exitCanceled}
	}
	return &exitError{code: exitUnexpected, err: fmt.Errorf("operation ended in phase %s", phase)}
}
