// Package executor defines what an executor is: the part of the agent that turns one command into one effect and
// can say afterwards, even after a crash, whether it happened.
package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// AfterEffect is passed by every executor right after its effect, before anybody knows of it.
var AfterEffect = failpoint.Register("agent.after-effect")

// Executor executes one kind of command. The dispatcher calls Prepare, writes its intent durably, and then
// calls Execute. After a restart it calls Resume with the stored intent instead.
type Executor interface {
	// Prepare reads the world and returns the intent: what Execute is about to do and how it will be recognized
	// afterwards. It has no effect. A Result ends the command without any.
	Prepare(ctx context.Context, spec *fleetv1.CommandSpec) (intent any, settled *Result, err error)
	// Execute has the effect and reads it back. ctx ends with one of the causes below. An error means that the
	// outcome is open: it becomes UNKNOWN. ErrInterrupted leaves the command to Resume.
	Execute(ctx context.Context, job Job) (Result, error)
	// Resume reads the world after a restart. It never has the effect itself.
	Resume(ctx context.Context, job Job) (Verdict, error)
}

// The causes that end an executor's context (context.Cause).
var (
	// ErrCanceled: it must stop at the next safe point.
	ErrCanceled = errors.New("the command was canceled")
	// ErrTimeout: the time for the command is up.
	ErrTimeout = errors.New("the command's time is up")
	// ErrShutdown: the agent stops; the command goes on after its next start.
	ErrShutdown = errors.New("the agent is stopping")
)

// ErrInterrupted is returned by Execute and Resume when the agent stops before the outcome is known.
var ErrInterrupted = errors.New("interrupted before the outcome was known")

// Job is what an executor is given.
type Job struct {
	Spec   *fleetv1.CommandSpec
	Intent json.RawMessage
	// Hard ends at shutdown and time-out only: for an executor that a cancel cannot stop any more.
	Hard context.Context //nolint:containedctx // a second scope beside the argument, not a stored one
	// StartedAt is when the intent was written.
	StartedAt time.Time
	// Progress reports how far it got; 0 to 100. It may be called often.
	Progress func(percent int, message string)
	// Logf adds a line to the operation's log.
	Logf func(format string, args ...any)
	// Output adds what a command has written itself, to "stdout" or "stderr", to the operation's log.
	Output func(stream string, data []byte)
	// Leave is what MayDestroy asks; nil where no grant is needed.
	Leave func(ctx context.Context) (*Result, error)
	// UpdateIntent replaces the intent, durably.
	UpdateIntent func(ctx context.Context, intent any) error
}

// MayDestroy is called right before the first effect that destroys data, after every wait since the start of the
// command. It returns nil when the grant of the start is recent enough, or once it has been renewed. A renewal may take
// as long as the command has. A Result or an error ends the command, with nothing destroyed.
func (j Job) MayDestroy(ctx context.Context) (*Result, error) {
	if j.Leave == nil {
		return nil, nil
	}
	return j.Leave(ctx)
}

// Effect names the command towards the host.
func (j Job) Effect() effect.Cause { return EffectOf(j.Spec) }

// EffectOf names a command towards the host.
func EffectOf(spec *fleetv1.CommandSpec) effect.Cause {
	return effect.Cause{
		CommandID: spec.GetCommandId(), OperationID: spec.GetOperationId(),
		MachineID: spec.GetTargetId(), Attempt: int(spec.GetAttempt()),
	}
}

// DecodeIntent reads the intent into what Prepare returned.
func (j Job) DecodeIntent(into any) error {
	if err := json.Unmarshal(j.Intent, into); err != nil {
		return fmt.Errorf("decode intent: %w", err)
	}
	return nil
}

// Result is what came of a command.
type Result struct {
	Outcome   fleetv1.CommandResult_Outcome
	Reason    baremetalv1.Reason
	Message   string
	Evidence  map[string]string
	Retryable bool
}

// Succeeded is a success with what was read back.
func Succeeded(evidence map[string]string) Result {
	return Result{Outcome: fleetv1.CommandResult_SUCCEEDED, Evidence: evidence}
}

// Failed is a known failure.
func Failed(reason baremetalv1.Reason, format string, args ...any) Result {
	return Result{Outcome: fleetv1.CommandResult_FAILED, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Refused returns the result of a command that was never started.
func Refused(reason baremetalv1.Reason, format string, args ...any) Result {
	return Result{Outcome: fleetv1.CommandResult_REFUSED, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Canceled returns the result of a command that was stopped at a safe point.
func Canceled(format string, args ...any) Result {
	return Result{
		Outcome: fleetv1.CommandResult_CANCELED, Reason: baremetalv1.Reason_CANCELED_BY_REQUEST,
		Message: fmt.Sprintf(format, args...),
	}
}

// Unknown returns the result of a command whose outcome cannot be determined.
func Unknown(format string, args ...any) Result {
	return Result{
		Outcome: fleetv1.CommandResult_UNKNOWN, Reason: baremetalv1.Reason_OUTCOME_UNKNOWN,
		Message: fmt.Sprintf(format, args...),
	}
}

// Stopped is what Execute returns when MayDestroy has not said yes.
func Stopped(ctx context.Context, r *Result, err error) (Result, error) {
	switch {
	case r != nil:
		return *r, nil
	case errors.Is(err, ErrCanceled):
		return Canceled("stopped before anything was destroyed"), nil
	case errors.Is(err, ErrTimeout):
		return Failed(baremetalv1.Reason_STEP_TIMEOUT,
			"the time was up before the grant to destroy anything had come").AndRetry(), nil
	case Interrupted(ctx):
		return Result{}, ErrInterrupted
	}
	return Failed(baremetalv1.Reason_EXECUTION_FAILED, "nothing was destroyed: %v", err).AndRetry(), nil
}

// WithEvidence adds what was read back.
func (r Result) WithEvidence(evidence map[string]string) Result {
	merged := maps.Clone(r.Evidence)
	if merged == nil {
		merged = map[string]string{}
	}
	maps.Copy(merged, evidence)
	r.Evidence = merged
	return r
}

// AndRetry returns the result marked as retryable.
func (r Result) AndRetry() Result {
	r.Retryable = true
	return r
}

// Verdict is what Resume found: a result, or that nothing has happened and the command can go on.
type Verdict struct {
	Settled *Result
	GoOn    bool
}

// Settle is the verdict that the command has ended, one way or the other.
func Settle(r Result) Verdict { return Verdict{Settled: &r} }

// GoOn is the verdict that the effect has not happened and that nothing can make it happen but us. The dispatcher asks
// for a grant again before it executes.
func GoOn() Verdict { return Verdict{GoOn: true} }

// Interrupted reports whether ctx ended because the agent stops.
func Interrupted(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return cause != nil && !errors.Is(cause, ErrCanceled) && !errors.Is(cause, ErrTimeout)
}

// FromRefusal turns a host's refusal, which has changed nothing, into a result; ok is false for other errors.
func FromRefusal(err error, unsupported baremetalv1.Reason) (r Result, ok bool) {
	switch {
	case errors.Is(err, effect.ErrUnsupported):
		return Failed(unsupported, "%v", err), true
	case errors.Is(err, effect.ErrNotWired):
		return Failed(baremetalv1.Reason_REPAVE_NOT_WIRED, "%v", err), true
	case errors.Is(err, effect.ErrInvalid):
		return Failed(baremetalv1.Reason_INVALID_FIELD, "%v", err), true
	case errors.Is(err, effect.ErrDeclined):
		return Failed(baremetalv1.Reason_EXECUTION_FAILED, "%v", err), true
	case errors.Is(err, effect.ErrDrift):
		return Failed(baremetalv1.Reason_CONFIG_DRIFT, "%v", err), true
	}
	return Result{}, false
}
