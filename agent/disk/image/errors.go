package image

import (
	"errors"
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Error is why an image was not written.
type Error struct {
	Reason baremetalv1.Reason
	// Retryable is set when another attempt from the top may succeed.
	Retryable bool
	err       error
}

// Error returns the cause.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.err }

func unavailable(format string, args ...any) error {
	return &Error{Reason: baremetalv1.Reason_IMAGE_UNAVAILABLE, Retryable: true, err: fmt.Errorf(format, args...)}
}

func mismatch(format string, args ...any) error {
	return &Error{Reason: baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, err: fmt.Errorf(format, args...)}
}

func tooLarge(format string, args ...any) error {
	return &Error{Reason: baremetalv1.Reason_IMAGE_TOO_LARGE, err: fmt.Errorf(format, args...)}
}

func notSupported(format string, args ...any) error {
	return &Error{Reason: baremetalv1.Reason_IMAGE_UNSUPPORTED, err: fmt.Errorf(format, args...)}
}

func otherInstallation(format string, args ...any) error {
	return &Error{Reason: baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH, err: fmt.Errorf(format, args...)}
}

func diskError(format string, args ...any) error {
	return &Error{Reason: baremetalv1.Reason_DISK_WRITE_ERROR, Retryable: true, err: fmt.Errorf(format, args...)}
}

// orUnexplained makes sure that there is a reason; a cancel keeps its cause.
func orUnexplained(err error) error {
	var e *Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return &Error{Reason: baremetalv1.Reason_EXECUTION_FAILED, Retryable: true, err: err}
}
