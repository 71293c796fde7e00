// Package bmcpassword changes the password of a BMC's account. The controller makes and stores it before the BMC
// receives it, and a log-in with it is the evidence. After a crash the new password is tried first, then the old one.
package bmcpassword

import (
	"context"
	"errors"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/bmc"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Declaration of the action.
var Declaration = executor.Declaration{Action: "bmc_password", Harm: executor.Changes}

// BeforeSettle is passed when the proof is durable here, and the controller does not know of it.
var BeforeSettle = failpoint.Register("bmc.before-settle")

// Order is the change as the controller has stored it.
type Order struct {
	bmc.PasswordChange
	// InForce: the controller knows already that the BMC takes the command's password, which is the current one.
	InForce bool
}

// Config is what the executor needs.
type Config struct {
	BMCs *bmc.Provider
	// Order asks the controller to make and keep the new password of a command.
	Order func(ctx context.Context, commandID string) (Order, error)
	// Settle reports to the controller which password the BMC accepts.
	Settle func(ctx context.Context, commandID string, version int64, accepted bool) error
	Clock  clock.Clock
}

// Executor is the executor. It keeps no password.
type Executor struct{ cfg Config }

var _ executor.Executor = (*Executor)(nil)

// New makes the executor.
func New(cfg Config) *Executor { return &Executor{cfg: cfg} }

// Intent is how far it got.
type Intent struct {
	// Told is set before the BMC is given the new password.
	Told bool `json:"told,omitempty"`
	// At is when the BMC has taken a log-in with it, in Protocol.
	At       time.Time    `json:"at,omitzero"`
	Protocol bmc.Protocol `json:"protocol,omitempty"`
}

// Prepare checks the order. Nothing is asked of the BMC.
func (e *Executor) Prepare(_ context.Context, spec *fleetv1.CommandSpec) (any, *executor.Result, error) {
	var r executor.Result
	switch {
	case spec.GetProvider() != "" && spec.GetProvider() != e.cfg.BMCs.Name():
		r = executor.Refused(baremetalv1.Reason_CAPABILITY_MISSING, "provider %q keeps the passwords of its BMCs itself",
			spec.GetProvider())
	case spec.GetBmcEndpoint() == "" || spec.GetBmcCredentialsRef() == "":
		r = executor.Refused(baremetalv1.Reason_NO_BMC, "the machine has no BMC, or no credentials for it")
	default:
		return Intent{}, nil, nil
	}
	return nil, &r, nil
}

// Execute goes on from the point that the intent records.
func (e *Executor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	r, out, err := e.newRun(ctx, job)
	if r == nil {
		return out, err
	}
	if errors.Is(context.Cause(ctx), executor.ErrCanceled) {
		return executor.Canceled("canceled before the BMC was told"), nil
	}
	proof, err := e.cfg.BMCs.ChangePassword(job.Hard, r.target(), r.order.PasswordChange)
	if err != nil {
		return r.failed(err)
	}
	return r.accepted(proof)
}

// Resume checks whether the BMC accepts the new password, if it was sent. It changes nothing there.
func (e *Executor) Resume(ctx context.Context, job executor.Job) (executor.Verdict, error) {
	r, _, err := e.newRun(ctx, job)
	switch {
	case err != nil:
		return executor.Verdict{}, err
	case r == nil || !r.in.Told:
		return executor.GoOn(), nil // Execute returns the refusal
	}
	proof := bmc.PasswordProof{At: r.in.At, Protocol: r.in.Protocol}
	if proof.At.IsZero() {
		if proof, err = e.cfg.BMCs.TryPassword(job.Hard, r.target(), r.order.PasswordChange); err != nil {
			if executor.Interrupted(job.Hard) {
				return executor.Verdict{}, executor.ErrInterrupted
			}
			return executor.GoOn(), nil // Execute finds out more
		}
	}
	out, err := r.accepted(proof)
	if err != nil {
		return executor.Verdict{}, err
	}
	return executor.Settle(out), nil
}

// run is one command.
type run struct {
	e     *Executor
	job   executor.Job
	in    Intent
	order Order
}

// newRun asks for the order. Without a run the result has the reason.
func (e *Executor) newRun(ctx context.Context, job executor.Job) (*run, executor.Result, error) {
	r := &run{e: e, job: job}
	if err := job.DecodeIntent(&r.in); err != nil {
		return nil, executor.Result{}, err
	}
	var err error
	if r.order, err = e.cfg.Order(job.Hard, job.Spec.GetCommandId()); err != nil {
		if executor.Interrupted(ctx) || executor.Interrupted(job.Hard) {
			return nil, executor.Result{}, executor.ErrInterrupted
		}
		if out, ok := executor.FromFailure(err); ok {
			return nil, out, nil
		}
		return nil, executor.Failed(baremetalv1.Reason_EXECUTION_FAILED,
			"the controller made no password; the BMC was not told: %v", err).AndRetry(), nil
	}
	if r.order.InForce {
		r.order.New = r.order.Current
	}
	r.order.Tried = r.order.Tried || r.in.Told || r.order.InForce
	r.order.Begin = func(ctx context.Context) error {
		r.in.Told = true
		return job.UpdateIntent(ctx, r.in)
	}
	return r, executor.Result{}, nil
}

func (r *run) target() provider.Target {
	s := r.job.Spec
	return provider.Target{MachineID: s.GetTargetId(), BMCEndpoint: s.GetBmcEndpoint(),
		CredentialsRef: s.GetBmcCredentialsRef(), MACs: s.GetMacAddresses()}
}

// accepted keeps the proof, reports it to the controller, and makes it the evidence.
func (r *run) accepted(proof bmc.PasswordProof) (executor.Result, error) {
	r.in.Told, r.in.At, r.in.Protocol = true, proof.At, proof.Protocol
	if err := r.job.UpdateIntent(r.job.Hard, r.in); err != nil {
		return executor.Result{}, err
	}
	if err := BeforeSettle.HitCtx(r.job.Hard); err != nil {
		return executor.Result{}, err
	}
	r.job.Logf("the BMC takes the new password (%s)", proof.Protocol)
	if out, err := r.settle(true); out != nil || err != nil {
		return pick(out), err
	}
	return executor.Succeeded(map[string]string{
		evidence.BMCPasswordAcceptedAt: proof.At.UTC().Format(time.RFC3339Nano),
		evidence.BMCProtocol:           string(proof.Protocol),
	}), nil
}

func pick(r *executor.Result) executor.Result {
	if r == nil {
		return executor.Result{}
	}
	return *r
}

const settleEvery = time.Second

// settle reports to the controller until it has acknowledged. The password itself is in its keeping already.
func (r *run) settle(accepted bool) (*executor.Result, error) {
	if r.order.InForce {
		return nil, nil
	}
	ctx := r.job.Hard
	for {
		err := r.e.cfg.Settle(ctx, r.job.Spec.GetCommandId(), r.order.New.Version, accepted)
		switch {
		case err == nil:
			return nil, nil
		case executor.Interrupted(ctx):
			return nil, executor.ErrInterrupted
		case ctx.Err() != nil || !failure.Retryable(err):
			out := executor.Failed(baremetalv1.Reason_EXECUTION_FAILED,
				"the controller could not be told which password the BMC takes: %v", err).AndRetry()
			return &out, nil
		}
		select {
		case <-ctx.Done():
		case <-r.e.cfg.Clock.After(settleEvery):
		}
	}
}

// failed returns the result of an error. The new password stays with the controller unless the BMC was seen to refuse
// it.
func (r *run) failed(err error) (executor.Result, error) {
	if executor.Interrupted(r.job.Hard) || errors.Is(err, failpoint.ErrInjected) {
		return executor.Result{}, fmt.Errorf("%w: %w", executor.ErrInterrupted, err)
	}
	out, ok := executor.FromRefusal(err, baremetalv1.Reason_CAPABILITY_MISSING)
	if !ok {
		if out, ok = executor.FromFailure(err); !ok {
			out = executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, "%v", err).AndRetry()
		}
	}
	if out.Reason == baremetalv1.Reason_BMC_PASSWORD_REFUSED {
		if other, err := r.settle(false); other != nil || err != nil {
			return pick(other), err
		}
	}
	return out, nil
}
