package executor_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	failed   = fleetv1.CommandResult_FAILED
	canceled = fleetv1.CommandResult_CANCELED
)

// want is the part of a result that decides what the controller does next.
type want struct {
	outcome   fleetv1.CommandResult_Outcome
	reason    baremetalv1.Reason
	retryable bool
}

func of(r executor.Result) want { return want{r.Outcome, r.Reason, r.Retryable} }

func ended(t *testing.T, cause error) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	return ctx
}

func TestOnlyAnAgentThatStopsInterrupts(t *testing.T) {
	t.Parallel()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		want bool
	}{
		"nothing has ended it": {t.Context(), false},
		"a cancel":             {ended(t, fmt.Errorf("asked for: %w", executor.ErrCanceled)), false},
		"the time was up":      {ended(t, fmt.Errorf("in all: %w", executor.ErrTimeout)), false},
		"the agent stops":      {ended(t, executor.ErrShutdown), true},
		"no cause was named":   {ended(t, nil), true},
		"another deadline":     {late, true},
	} {
		if got := executor.Interrupted(c.ctx); got != c.want {
			t.Errorf("%s: interrupted %v", name, got)
		}
	}
}

// TestALeaveThatDoesNotCome: without a grant to destroy, the command ends with the cause of the missing grant.
func TestALeaveThatDoesNotCome(t *testing.T) {
	t.Parallel()
	refused := executor.Refused(baremetalv1.Reason_GRANT_REFUSED, "no")
	wrapped := func(err error) error { return fmt.Errorf("ask: %w", err) }
	for name, c := range map[string]struct {
		ctx  context.Context
		r    *executor.Result
		err  error
		want want
		open error
	}{
		"refused": {t.Context(), &refused, nil, of(refused), nil},
		"canceled": {t.Context(), nil, wrapped(executor.ErrCanceled),
			want{canceled, baremetalv1.Reason_CANCELED_BY_REQUEST, false}, nil},
		"too late": {t.Context(), nil, wrapped(executor.ErrTimeout),
			want{failed, baremetalv1.Reason_STEP_TIMEOUT, true}, nil},
		"the agent stops": {ended(t, executor.ErrShutdown), nil, errors.New("cut"), want{}, executor.ErrInterrupted},
		"no answer": {t.Context(), nil, errors.New("cut"), want{failed, baremetalv1.Reason_EXECUTION_FAILED, true},
			nil},
	} {
		job := executor.Job{Leave: func(context.Context) (*executor.Result, error) { return c.r, c.err }}
		r, err := job.MayDestroy(c.ctx)
		if r == nil && err == nil {
			t.Fatalf("%s: there is leave", name)
		}
		got, err := executor.Stopped(c.ctx, r, err)
		if of(got) != c.want || !errors.Is(err, c.open) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if r, err := (executor.Job{}).MayDestroy(t.Context()); r != nil || err != nil {
		t.Errorf("nobody has to give leave: %+v, %v", r, err)
	}
}

// TestEvidenceIsAddedToACopy: what was said before stays, the later word counts, and no other result changes.
func TestEvidenceIsAddedToACopy(t *testing.T) {
	t.Parallel()
	first := executor.Succeeded(map[string]string{"a": "1", "b": "1"})
	second := first.WithEvidence(map[string]string{"b": "2", "c": "2"})
	if !maps.Equal(second.Evidence, map[string]string{"a": "1", "b": "2", "c": "2"}) {
		t.Errorf("together: %v", second.Evidence)
	}
	if !maps.Equal(first.Evidence, map[string]string{"a": "1", "b": "1"}) {
		t.Errorf("the first one has become %v", first.Evidence)
	}
	bare := executor.Unknown("nobody knows").WithEvidence(map[string]string{"a": "1"})
	if !maps.Equal(bare.Evidence, map[string]string{"a": "1"}) {
		t.Errorf("without any before: %v", bare.Evidence)
	}
	if bare.Retryable || !bare.AndRetry().Retryable {
		t.Error("another attempt helps where that was said, and nowhere else")
	}
}

func TestRefusalsOfTheHost(t *testing.T) {
	t.Parallel()
	for kind, reason := range map[error]baremetalv1.Reason{
		effect.ErrUnsupported: baremetalv1.Reason_NETBOOT_UNSUPPORTED,
		effect.ErrNotWired:    baremetalv1.Reason_REPAVE_NOT_WIRED,
		effect.ErrInvalid:     baremetalv1.Reason_INVALID_FIELD, effect.ErrDrift: baremetalv1.Reason_CONFIG_DRIFT,
	} {
		r, ok := executor.FromRefusal(fmt.Errorf("try: %w", &effect.Refusal{Kind: kind}),
			baremetalv1.Reason_NETBOOT_UNSUPPORTED)
		if !ok || of(r) != (want{failed, reason, false}) {
			t.Errorf("%v: %v %+v", kind, ok, r)
		}
	}
	for _, err := range []error{nil, errors.New("i/o"), host.ErrNoReset} {
		if r, ok := executor.FromRefusal(err, baremetalv1.Reason_NETBOOT_UNSUPPORTED); ok {
			t.Errorf("%v is no refusal, and became %+v", err, r)
		}
	}
}

// TestFailuresBecomeResults: a failure is one whether it was made here or has come over gRPC; other errors stay open.
func TestFailuresBecomeResults(t *testing.T) {
	t.Parallel()
	gone := failure.NotFound("CLUSTER_NOT_FOUND", "no such cluster").WithMeta("cluster", "prod")
	later := failure.Unavailable("SSH_UNREACHABLE", "silent")
	for name, c := range map[string]struct {
		err  error
		want want
		meta map[string]string
	}{
		"made here": {fmt.Errorf("ask: %w", gone), want{failed, baremetalv1.Reason_CLUSTER_NOT_FOUND, false},
			gone.Metadata},
		"over gRPC": {fmt.Errorf("ask: %w", failure.ToStatus(gone).Err()),
			want{failed, baremetalv1.Reason_CLUSTER_NOT_FOUND, false}, gone.Metadata},
		"retryable": {later, want{failed, baremetalv1.Reason_SSH_UNREACHABLE, true}, nil},
		"an unknown cause": {failure.Invalid("OF_TOMORROW", "x"), want{failed, baremetalv1.Reason_EXECUTION_FAILED, false},
			nil},
	} {
		r, ok := executor.FromFailure(c.err)
		if !ok || of(r) != c.want || !maps.Equal(r.Evidence, c.meta) || r.Message == "" {
			t.Errorf("%s: %v %+v", name, ok, r)
		}
	}
	for _, err := range []error{nil, errors.New("i/o"), status.Error(codes.NotFound, "of another server"),
		status.Error(codes.DataLoss, "x")} {
		if r, ok := executor.FromFailure(err); ok {
			t.Errorf("%v says nothing of a command, and became %+v", err, r)
		}
	}
}

func TestAnIntentIsReadBack(t *testing.T) {
	t.Parallel()
	type intent struct {
		Boot string `json:"boot"`
	}
	var in intent
	if err := (executor.Job{Intent: json.RawMessage(`{"boot":"b-1"}`)}).DecodeIntent(&in); err != nil || in.Boot != "b-1" {
		t.Errorf("%+v, %v", in, err)
	}
	var broken *json.SyntaxError
	if err := (executor.Job{Intent: json.RawMessage(`{"boot"`)}).DecodeIntent(&in); !errors.As(err, &broken) {
		t.Errorf("half an intent: %v", err)
	}
}
