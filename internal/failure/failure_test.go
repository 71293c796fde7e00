package failure_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ingot-metal/ingot/internal/failure"
)

// everyKind has one failure of each kind that has a constructor.
var everyKind = []struct {
	err       *failure.Error
	code      codes.Code
	retryable bool
}{
	{failure.NotFound("MACHINE_NOT_FOUND", "no machine %q", "m-1"), codes.NotFound, false},
	{failure.Invalid("INVALID_FIELD", "bad"), codes.InvalidArgument, false},
	{failure.AlreadyExists("REQUEST_ID_REUSED", "taken"), codes.AlreadyExists, false},
	{failure.Precondition("MACHINE_BUSY", "busy"), codes.FailedPrecondition, false},
	{failure.Unauthenticated("BEARER_MISSING", "who"), codes.Unauthenticated, false},
	{failure.Denied("SCOPE_TOO_SMALL", "no"), codes.PermissionDenied, false},
	{failure.Unavailable("CONTROLLER_DRAINING", "later"), codes.Unavailable, true},
	{failure.Exhausted("RATE_LIMITED", "slower"), codes.ResourceExhausted, true},
	{failure.Aborted("SESSION_SUPERSEDED", "newer"), codes.Aborted, true},
	{failure.Unimplemented("EXPLAIN_NOT_WIRED", "not yet"), codes.Unimplemented, false},
	{failure.Internal("INTERNAL", "sorry"), codes.Internal, false},
}

func TestStatusAndBack(t *testing.T) {
	for _, c := range everyKind {
		t.Run(c.err.Kind.String(), func(t *testing.T) {
			sent := c.err.WithField("spec.rack", "is too long").WithMeta("machine_id", "m-1").Wrap(errors.New("SECRET"))
			st := failure.ToStatus(fmt.Errorf("load machine: %w", sent))
			if st.Code() != c.code || st.Message() != c.err.Message {
				t.Fatalf("status is %v %q", st.Code(), st.Message())
			}
			if strings.Contains(st.Proto().String(), "SECRET") {
				t.Fatalf("the cause went out: %v", st.Proto())
			}
			got := failure.From(st.Err())
			if got.Kind != sent.Kind || got.Reason != sent.Reason || got.Message != sent.Message ||
				got.Retryable != c.retryable {
				t.Errorf("came back as %+v", got)
			}
			if !reflect.DeepEqual(got.Fields, sent.Fields) || !reflect.DeepEqual(got.Metadata, sent.Metadata) {
				t.Errorf("details came back as %+v %+v", got.Fields, got.Metadata)
			}
		})
	}
}

func TestRetryInfoOnlyWhereWaitingHelps(t *testing.T) {
	for _, c := range everyKind {
		want := c.err.Kind == failure.KindUnavailable || c.err.Kind == failure.KindExhausted
		if got := retryDelay(failure.ToStatus(c.err)); (got > 0) != want {
			t.Errorf("%s: retry delay %v", c.err.Kind, got)
		}
	}
	if got := retryDelay(failure.ToStatus(everyKind[6].err.WithRetry(7 * time.Second))); got != 7*time.Second {
		t.Errorf("a named delay went out as %v", got)
	}
}

func retryDelay(st *status.Status) time.Duration {
	for _, d := range st.Details() {
		if r, ok := d.(*errdetails.RetryInfo); ok {
			return r.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

func TestErrorInfoDomain(t *testing.T) {
	info, ok := failure.ToStatus(everyKind[0].err).Details()[0].(*errdetails.ErrorInfo)
	if !ok || info.GetDomain() != "ingot.dev" || info.GetReason() != "MACHINE_NOT_FOUND" {
		t.Fatalf("first detail is %v", info)
	}
}

func TestUnknownErrorsGiveNothingAway(t *testing.T) {
	err := errors.New(`relation "machines" does not exist`)
	st := failure.ToStatus(fmt.Errorf("list machines: %w", err))
	if st.Code() != codes.Internal || strings.Contains(st.Proto().String(), "machines") {
		t.Fatalf("client sees %v", st.Proto())
	}
	if !errors.Is(failure.From(err), err) {
		t.Error("the cause is lost to logs")
	}
}

func TestFromOtherOrigins(t *testing.T) {
	cases := []struct {
		name   string
		err    error
		kind   failure.Kind
		reason string
	}{
		{"canceled", fmt.Errorf("wait: %w", context.Canceled), failure.KindCanceled, ""},
		{"deadline", fmt.Errorf("wait: %w", context.DeadlineExceeded), failure.KindDeadline, ""},
		{"foreign status", status.Error(codes.NotFound, "x"), failure.KindNotFound, ""},
		{"wrapped status", fmt.Errorf("call: %w", status.Error(codes.Unavailable, "x")), failure.KindUnavailable, ""},
		{"unknown code", status.Error(codes.DataLoss, "x"), failure.KindInternal, failure.ReasonInternal},
		{"out of range", status.Error(codes.OutOfRange, "x"), failure.KindInvalid, ""},
	}
	for _, c := range cases {
		if got := failure.From(c.err); got.Kind != c.kind || got.Reason != c.reason {
			t.Errorf("%s: %v %q", c.name, got.Kind, got.Reason)
		}
	}
}

func TestNilStaysNil(t *testing.T) {
	if failure.From(nil) != nil || failure.ToStatus(nil) != nil || failure.ReasonOf(nil) != "" || failure.Retryable(nil) {
		t.Fatal("nil became a failure")
	}
}

func TestWithMethodsDoNotChangeTheOriginal(t *testing.T) {
	base := failure.Invalid("INVALID_FIELD", "bad").WithMeta("a", "1").WithField("x", "y")
	_ = base.WithMeta("b", "2").WithField("z", "w").Wrap(errors.New("c")).WithRetry(time.Second)
	if len(base.Metadata) != 1 || len(base.Fields) != 1 || base.Retryable || base.Unwrap() != nil {
		t.Fatalf("original is now %+v", base)
	}
}

func TestIsMatchesKindAndReason(t *testing.T) {
	busy := failure.Precondition("MACHINE_BUSY", "any")
	err := fmt.Errorf("start: %w", failure.Precondition("MACHINE_BUSY", "machine m-1 is busy").Wrap(context.Canceled))
	if !errors.Is(err, busy) || !failure.HasReason(err, "MACHINE_BUSY") {
		t.Error("not recognised by reason")
	}
	if errors.Is(err, failure.Precondition("WRONG_PHASE", "any")) {
		t.Error("recognised by another reason")
	}
	if got := failure.From(err).Kind; got != failure.KindPrecondition {
		t.Errorf("the cause decided the kind: %v", got)
	}
}
