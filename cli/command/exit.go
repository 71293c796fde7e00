package command

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
	ExitOK              = 0
	ExitUnexpected      = 1
	exitInvalid         = 2
	ExitNotFound        = 3
	ExitRefused         = 4
	ExitFailed          = 5
	ExitCanceled        = 6
	exitUnauthenticated = 7
	ExitUnavailable     = 8
	exitTimeout         = 9
	exitUnimplemented   = 10
	ExitInterrupted     = 130
)

// ExitCodesHelp is the help text on exit codes.
const ExitCodesHelp = `Exit codes of every command:

    0  success; an operation that was waited for SUCCEEDED
    1  wrong usage, or something unexpected
    2  invalid argument: the server found fault with a field
    3  not found
    4  refused: the state of things does not allow it (FAILED_PRECONDITION, ALREADY_EXISTS)
    5  the operation FAILED; a rollout FAILED or COMPLETED_WITH_FAILURES; machines that were named are left out
       of work on several, or of its preview; "audit verify" found a history that is
       not as it was written; a receiver did not take the ping of "webhook test"; "doctor" found a fault;
       "certificate verify" found a false one
    6  the operation was CANCELED
    7  unauthenticated, or the token's scope is too small
    8  the server cannot be reached, or is overloaded
    9  timed out waiting (--timeout); an operation that was started goes on
   10  not implemented by this server
  130  interrupted; an operation that was started goes on

With --no-wait the code says whether the operation was accepted, not how it ended.`

// ExitError is an error that knows its exit code.
type ExitError struct {
	Code int
	Err  error // nil when everything has been said
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return ""
	}
	return e.Err.Error()
}

func (e *ExitError) Unwrap() error { return e.Err }

// Usagef is a mistake in the command line itself.
func Usagef(format string, args ...any) error {
	return &ExitError{Code: ExitUnexpected, Err: fmt.Errorf(format, args...)}
}

// Invalidf is a bad value in a file or an argument, found before the server saw it.
func Invalidf(format string, args ...any) error {
	return &ExitError{Code: exitInvalid, Err: fmt.Errorf(format, args...)}
}

// ExitCode is the exit code of an error.
func ExitCode(err error) int {
	var own *ExitError
	switch {
	case errors.As(err, &own):
		return own.Code
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	}
	return exitByStatus(status.Code(err))
}

func exitByStatus(code codes.Code) int {
	switch code {
	case codes.InvalidArgument, codes.OutOfRange:
		return exitInvalid
	case codes.NotFound:
		return ExitNotFound
	case codes.FailedPrecondition, codes.AlreadyExists, codes.Aborted:
		return ExitRefused
	case codes.Unauthenticated, codes.PermissionDenied:
		return exitUnauthenticated
	case codes.Unavailable, codes.ResourceExhausted:
		return ExitUnavailable
	case codes.DeadlineExceeded:
		return exitTimeout
	case codes.Canceled:
		return ExitInterrupted
	case codes.Unimplemented:
		return exitUnimplemented
	}
	return ExitUnexpected
}

// ExitByPhase is nil for an operation that succeeded. The words have been printed by then.
func ExitByPhase(phase pb.Operation_Phase) error {
	switch phase {
	case pb.Operation_SUCCEEDED:
		return nil
	case pb.Operation_FAILED:
		return &ExitError{Code: ExitFailed}
	case pb.Operation_CANCELED:
		return &ExitError{Code: ExitCanceled}
	}
	return &ExitError{Code: ExitUnexpected, Err: fmt.Errorf("operation ended in phase %s", phase)}
}
