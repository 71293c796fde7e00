package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/obs/traces"
	"github.com/ingot-metal/ingot/internal/task"
)

// job is the life of one command that is not done.
type job struct {
	id      string
	spec    *fleetv1.CommandSpec
	stored  state.Command
	answers chan grantAnswer
	// asked are the asks of the last GrantWindow, newest last. An answer to any of them may still be acted on.
	asked []ask
	turn  <-chan struct{}
	leave func()

	cancelOnce sync.Once
	canceled   chan struct{}
}

func newJob(c state.Command, spec *fleetv1.CommandSpec) *job {
	return &job{id: c.ID, spec: spec, stored: c, answers: make(chan grantAnswer, 8), canceled: make(chan struct{})}
}

func (j *job) cancel() { j.cancelOnce.Do(func() { close(j.canceled) }) }

func (j *job) isCanceled() bool {
	select {
	case <-j.canceled:
		return true
	default:
		return false
	}
}

// run takes a command from where it stands to its result. It returns nil at shutdown too.
func (d *Dispatcher) run(ctx context.Context, j *job, bad error) error {
	// An executor that does not come back keeps the lane; see execute.
	leave := true
	defer func() {
		if leave {
			j.leave()
		}
	}()
	if bad != nil {
		return d.finish(ctx, j, malformed(bad))
	}
	r, err := d.settle(ctx, j)
	if errors.Is(err, errStuck) {
		leave, err = false, nil
	}
	if err != nil {
		return d.stopped(ctx, err)
	}
	return d.finish(ctx, j, r)
}

// stopped distinguishes an ordinary stop from an error that the agent must end with.
func (d *Dispatcher) stopped(ctx context.Context, err error) error {
	if errors.Is(err, failpoint.ErrInjected) || errors.Is(err, state.ErrRolledBack) {
		return err
	}
	if ctx.Err() != nil || errors.Is(err, executor.ErrInterrupted) {
		return nil
	}
	return err
}

// settle returns the result of the command. An error means that there is none yet.
func (d *Dispatcher) settle(ctx context.Context, j *job) (executor.Result, error) {
	select {
	case <-j.turn:
	case <-j.canceled:
		if j.stored.State == state.Received {
			return executor.Canceled("canceled before it was started"), nil
		}
		<-j.turn
	case <-ctx.Done():
		return executor.Result{}, context.Cause(ctx)
	}
	exec, refused := d.cfg.Resolve(j.spec)
	if refused != nil && j.stored.State == state.Received {
		return *refused, nil
	}
	if refused != nil {
		return executor.Unknown("started before, and now: %s", refused.Message), nil
	}
	if j.stored.State == state.Started {
		began := d.cfg.Clock.Now()
		r, err := d.resume(ctx, j, exec)
		d.trace(j, traces.Resume, began, deref(r), err)
		if r != nil || err != nil {
			return deref(r), err
		}
		return d.continueJob(ctx, j, exec)
	}
	return d.begin(ctx, j, exec)
}

func deref(r *executor.Result) executor.Result {
	if r == nil {
		return executor.Result{}
	}
	return *r
}

// begin takes a received command through its grant, intent and execution.
func (d *Dispatcher) begin(ctx context.Context, j *job, exec executor.Executor) (executor.Result, error) {
	for {
		began := d.cfg.Clock.Now()
		a, r, err := d.acquireGrant(ctx, j)
		d.trace(j, traces.Grant, began, deref(r), err)
		if r != nil || err != nil {
			return deref(r), err
		}
		intent, r, err := d.prepare(ctx, j, exec)
		if r != nil || err != nil {
			return deref(r), err
		}
		started, err := d.start(ctx, j, intent, a)
		if err != nil {
			return executor.Result{}, err
		}
		if started {
			return d.executeTraced(ctx, j, exec, a)
		}
	}
}

// prepare has no effect, so that whatever goes wrong in it is a known failure.
func (d *Dispatcher) prepare(ctx context.Context, j *job, exec executor.Executor) ([]byte, *executor.Result, error) {
	var intent any
	var settled *executor.Result
	ctx, cancel := context.WithTimeout(ctx, timeout(j.spec))
	defer cancel()
	err := task.Run(ctx, "prepare "+j.id, func(ctx context.Context) (err error) {
		intent, settled, err = exec.Prepare(ctx, j.spec)
		return err
	})
	switch {
	case isPanic(err):
		d.cfg.Log.Error("executor panicked", "command_id", j.id, "error", err)
		r := executor.Failed(baremetalv1.Reason_EXECUTOR_PANICKED, "panic before anything was begun")
		return nil, &r, nil
	case err != nil && executor.Interrupted(ctx) && !errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return nil, nil, executor.ErrInterrupted
	case err != nil:
		r := executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, "nothing was begun: %v", err).AndRetry()
		return nil, &r, nil
	case settled != nil:
		return nil, settled, nil
	}
	b, err := json.Marshal(intent)
	if err != nil {
		return nil, nil, fmt.Errorf("encode intent of command %s: %w", j.id, err)
	}
	return b, nil, nil
}

// start writes STARTED with the intent and then looks at the grant's window for the last time. With false the
// command is RECEIVED again and needs another grant.
func (d *Dispatcher) start(ctx context.Context, j *job, intent []byte, a ask) (bool, error) {
	now := d.cfg.Clock.Now()
	err := d.cfg.Store.Start(ctx, j.id, intent, a.held, now)
	if errors.Is(err, state.ErrStorageFull) {
		d.cfg.Log.Error("command waits for disk space", "command_id", j.id, "error", err)
		return false, d.pause(ctx, storageRetry)
	}
	if err != nil {
		return false, err
	}
	j.stored.State, j.stored.Intent, j.stored.StartedAt = state.Started, intent, now
	if err := afterIntent.HitCtx(ctx); err != nil {
		return false, err
	}
	if !a.fresh(d.cfg.Boottime()) || j.isCanceled() {
		d.cfg.Log.Warn("not started: the grant is too old or the command is canceled", "command_id", j.id)
		j.stored.State, j.stored.Intent = state.Received, nil
		return false, d.cfg.Store.Unstart(ctx, j.id)
	}
	return true, nil
}

func (d *Dispatcher) pause(ctx context.Context, t time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.cfg.Clock.After(t):
		return nil
	}
}

// resume lets the executor read the world. Both nil: nothing has happened and the command can go on.
func (d *Dispatcher) resume(ctx context.Context, j *job, exec executor.Executor) (*executor.Result, error) {
	var v executor.Verdict
	scope := d.newScope(ctx, j, remaining(j.spec, j.stored.StartedAt, d.cfg.Clock.Now()))
	defer scope.end()
	err := task.Run(scope.ctx, "resume "+j.id, func(ctx context.Context) (err error) {
		v, err = exec.Resume(ctx, d.jobFor(scope, j))
		return err
	})
	switch {
	case errors.Is(err, failpoint.ErrInjected), err != nil && ctx.Err() != nil:
		return nil, err
	case isPanic(err):
		d.cfg.Log.Error("executor panicked", "command_id", j.id, "error", err)
		r := executor.Unknown("panic while reading the world after a restart")
		r.Reason = baremetalv1.Reason_EXECUTOR_PANICKED
		return &r, nil
	case err != nil:
		r := executor.Unknown("the world could not be read after a restart: %v", err)
		return &r, nil
	case v.Settled == nil && !v.GoOn:
		r := executor.Unknown("the executor gave no verdict")
		return &r, nil
	}
	return v.Settled, nil
}

// continueJob executes a command whose effect has provably not happened, with a new grant.
func (d *Dispatcher) continueJob(ctx context.Context, j *job, exec executor.Executor) (executor.Result, error) {
	a, r, err := d.acquireGrant(ctx, j)
	if err != nil {
		return executor.Result{}, err
	}
	if r != nil {
		return *afterStart(r, "interrupted by a restart before its effect, and not gone on with: "), nil
	}
	if !a.fresh(d.cfg.Boottime()) {
		return d.continueJob(ctx, j, exec)
	}
	return d.executeTraced(ctx, j, exec, a)
}

func isPanic(err error) bool {
	var p *task.PanicError
	return errors.As(err, &p) && !errors.Is(err, failpoint.ErrInjected)
}
