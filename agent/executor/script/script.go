package script

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/provider/ssh"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Declaration of the action: a script may do anything.
var Declaration = executor.Declaration{Action: "script", Harm: executor.Destroys}

// BeforeStart is passed when the script is on the machine and not yet started.
var BeforeStart = failpoint.Register("ssh.before-start")

// MaxScript is the largest script, in bytes.
const MaxScript = 1 << 20

// Config is what the executor needs.
type Config struct {
	// Open returns a blob by its SHA-256.
	Open func(ctx context.Context, sha256 string) (io.ReadCloser, error)
	// Credentials asks for what to log in with. They stay in memory.
	Credentials func(ctx context.Context, machineID, ref string) (ssh.Credentials, error)
	Clock       clock.Clock
	// Poll is how often a run is looked at; 0 means a second, and less at its beginning.
	Poll time.Duration
	// Base is where machines remember runs; see ssh.Target.
	Base string
}

// Executor is the script executor.
type Executor struct{ cfg Config }

var _ executor.Executor = (*Executor)(nil)

// New makes the executor.
func New(cfg Config) *Executor {
	if cfg.Poll == 0 {
		cfg.Poll = time.Second
	}
	return &Executor{cfg: cfg}
}

// intent is how much of the output is in the operation's log already.
type intent struct {
	Stdout int64 `json:"stdout,omitempty"`
	Stderr int64 `json:"stderr,omitempty"`
}

// Prepare fetches the script and compares it with its digest. It sends nothing to the machine.
func (e *Executor) Prepare(ctx context.Context, spec *fleetv1.CommandSpec) (any, *executor.Result, error) {
	a := spec.GetScript()
	refuse := func(reason baremetalv1.Reason, format string, args ...any) (any, *executor.Result, error) {
		r := executor.Refused(reason, format, args...)
		return nil, &r, nil
	}
	switch {
	case a.GetEndpoint() == "":
		return refuse(baremetalv1.Reason_SSH_NOT_CONFIGURED, "the machine names no SSH endpoint")
	case len(a.GetHostKeys()) == 0:
		return refuse(baremetalv1.Reason_SSH_HOST_KEY_UNKNOWN,
			"no SSH host key of the machine is known, and none is trusted on first use")
	case !path.IsAbs(a.GetInterpreter()):
		return refuse(baremetalv1.Reason_INVALID_FIELD, "the interpreter %.100q is not an absolute path", a.GetInterpreter())
	}
	if _, err := e.fetch(ctx, a); err != nil {
		if r, ok := executor.FromFailure(err); ok {
			r.Outcome = fleetv1.CommandResult_REFUSED
			return nil, &r, nil
		}
		return nil, nil, err
	}
	return intent{}, nil, nil
}

// fetch reads the script and checks it. A larger one than MaxScript is cut, and so not that of its digest.
func (e *Executor) fetch(ctx context.Context, a *fleetv1.ScriptAction) ([]byte, error) {
	r, err := e.cfg.Open(ctx, a.GetSha256())
	if err != nil {
		return nil, fmt.Errorf("fetch script %s: %w", a.GetScriptRef(), err)
	}
	defer r.Close() //nolint:errcheck // everything was read, or nothing more is wanted
	raw, err := io.ReadAll(io.LimitReader(r, MaxScript))
	if err != nil {
		return nil, fmt.Errorf("fetch script %s: %w", a.GetScriptRef(), err)
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != a.GetSha256() {
		return nil, failure.Invalid("SCRIPT_DIGEST_MISMATCH", "the bytes of script %s are not those of its digest",
			a.GetScriptRef())
	}
	return raw, nil
}

// Execute starts the script and follows it to its end.
func (e *Executor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	r, err := e.newRun(job)
	if err != nil {
		return executor.Result{}, err
	}
	defer r.hangUp()
	if started, err := r.start(ctx); err != nil {
		return r.notStarted(ctx, started, err)
	}
	if err := executor.AfterEffect.HitCtx(ctx); err != nil {
		return executor.Result{}, err
	}
	return r.follow(ctx)
}

// Resume asks the machine. A run that was never started can go on; any other is followed.
func (e *Executor) Resume(ctx context.Context, job executor.Job) (executor.Verdict, error) {
	r, err := e.newRun(job)
	if err != nil {
		return executor.Verdict{}, err
	}
	defer r.hangUp()
	status, err := r.firstLook(ctx)
	if err != nil && executor.Interrupted(ctx) {
		return executor.Verdict{}, executor.ErrInterrupted
	}
	if err != nil {
		return executor.Settle(executor.Unknown("the machine could not be asked after a restart of the agent: %v", err)), nil
	}
	if status.State == ssh.Absent {
		return executor.GoOn(), nil
	}
	result, err := r.follow(ctx)
	if err != nil {
		return executor.Verdict{}, err
	}
	return executor.Settle(result), nil
}

// notStarted returns the result of an error before the script was followed.
func (r *run) notStarted(ctx context.Context, maybe bool, err error) (executor.Result, error) {
	switch {
	case errors.Is(err, failpoint.ErrInjected):
		return executor.Result{}, err
	case executor.Interrupted(r.job.Hard), executor.Interrupted(ctx):
		return executor.Result{}, executor.ErrInterrupted
	case maybe:
		return executor.Unknown(
			"the connection was cut while the script was being started, and the machine could not be asked: %v", err), nil
	case errors.Is(context.Cause(ctx), executor.ErrCanceled):
		return executor.Canceled("canceled before the script was started"), nil
	}
	if out, ok := executor.FromFailure(err); ok {
		return out, nil
	}
	return executor.Failed(baremetalv1.Reason_SSH_UNREACHABLE, "nothing was started: %v", err).AndRetry(), nil
}
