package script

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/provider/ssh"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	// redial is how long to wait before a machine is tried again that does not answer.
	redial = time.Second
	// settle is how long a run may be without any process before it counts as lost: its supervisor writes the exit code
	// and then ends.
	settle = 5 * time.Second
	// killTime bounds the killing of a script whose time is up.
	killTime = 9 * time.Second
)

// run is one command towards one machine.
type run struct {
	e      *Executor
	job    executor.Job
	in     intent
	conn   *ssh.Client
	client ssh.Credentials
	out    map[string]*stream
	// ends is when the script is killed.
	ends time.Time
	// fingerprint of the host key, as of the last connection.
	fingerprint string
}

func (e *Executor) newRun(job executor.Job) (*run, error) {
	r := &run{e: e, job: job}
	if err := job.DecodeIntent(&r.in); err != nil {
		return nil, err
	}
	r.out = map[string]*stream{"stdout": newStream(job, "stdout", r.in.Stdout),
		"stderr": newStream(job, "stderr", r.in.Stderr)}
	limit := time.Duration(job.Spec.GetTimeoutMs()) * time.Millisecond
	r.ends = job.StartedAt.Add(limit - min(limit/4, killTime))
	return r, nil
}

func (r *run) id() string { return r.job.Spec.GetCommandId() }

// left is the time until the script is killed.
func (r *run) left() time.Duration { return r.ends.Sub(r.e.cfg.Clock.Now()) }

func (r *run) hangUp() {
	if r.conn != nil {
		_ = r.conn.Close() // the connection is not used again
		r.conn = nil
	}
}

// connect returns the connection, a new one where there is none.
func (r *run) connect(ctx context.Context) (*ssh.Client, error) {
	if r.conn != nil {
		return r.conn, nil
	}
	a := r.job.Spec.GetScript()
	if r.client.Username == "" {
		c, err := r.e.cfg.Credentials(ctx, r.job.Spec.GetTargetId(), a.GetCredentialsRef())
		if err != nil {
			return nil, fmt.Errorf("ask for SSH credentials: %w", err)
		}
		r.client = c
	}
	conn, err := ssh.Dial(ctx, ssh.Target{Endpoint: a.GetEndpoint(), HostKeys: a.GetHostKeys(), Base: r.e.cfg.Base},
		r.client)
	if err != nil {
		return nil, err
	}
	r.conn, r.fingerprint = conn, conn.Fingerprint()
	return conn, nil
}

// do makes one call; a connection that was cut is hung up.
func (r *run) do(ctx context.Context, call func(*ssh.Client) error) error {
	conn, err := r.connect(ctx)
	if err == nil {
		err = call(conn)
	}
	if ssh.Cut(err) {
		r.hangUp()
	}
	return err
}

// again makes a call until it is not cut any more, or the time is up.
func (r *run) again(ctx context.Context, call func(*ssh.Client) error) error {
	for {
		err := r.do(ctx, call)
		if !retries(err) || r.left() <= 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-r.e.cfg.Clock.After(redial):
		}
	}
}

// retries reports whether an error is one of the line, or of a controller that is away.
func retries(err error) bool { return err != nil && (ssh.Cut(err) || failure.Retryable(err)) }

func (r *run) firstLook(ctx context.Context) (status ssh.Status, err error) {
	err = r.again(ctx, func(c *ssh.Client) (err error) {
		status, err = c.Status(ctx, r.id())
		return err
	})
	return status, err
}

// start brings the script to the machine and starts it. maybe reports with an error that the script may have been
// started.
func (r *run) start(ctx context.Context) (maybe bool, err error) {
	a := r.job.Spec.GetScript()
	raw, err := r.e.fetch(ctx, a)
	if err != nil {
		return false, err
	}
	what := ssh.Run{ID: r.id(), Script: raw, Args: a.GetArgs(), Interpreter: a.GetInterpreter(),
		Limit: max(r.left(), time.Second)}
	if err := r.do(ctx, func(c *ssh.Client) error { return c.Put(ctx, what) }); err != nil {
		return false, err
	}
	r.job.Logf("script %s (sha256 %s) is on the machine (host key %s)", a.GetScriptRef(), a.GetSha256(), r.fingerprint)
	if err := BeforeStart.HitCtx(ctx); err != nil {
		return false, err
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	err = r.do(ctx, func(c *ssh.Client) error { return c.Start(ctx, what) })
	if ssh.Cut(err) {
		// Whether it was started or not, starting it again starts it at most once.
		err = r.again(r.job.Hard, func(c *ssh.Client) error { return c.Start(r.job.Hard, what) })
		return ssh.Cut(err), err
	}
	return false, err
}

// follow reads the output until the run has ended, and ends it when its time is up or the command is canceled.
func (r *run) follow(ctx context.Context) (executor.Result, error) {
	var lostSince time.Time
	for poll := 50 * time.Millisecond; ; poll = min(2*poll, r.e.cfg.Poll) {
		status, err := r.look(r.job.Hard)
		now := r.e.cfg.Clock.Now()
		switch {
		case err != nil && !retries(err):
			return executor.Unknown("the script was started, and the machine cannot be asked any more: %v", err), nil
		case err == nil && over(status.State):
			return r.concluded(status), nil
		case err == nil && silent(status.State):
			if lostSince.IsZero() {
				lostSince = now
			}
			if now.Sub(lostSince) >= settle {
				return r.lost(status), nil
			}
		default:
			lostSince = time.Time{}
		}
		// An error of an agent that stops is one of the line.
		if r.left() <= 0 || r.job.Hard.Err() != nil || errors.Is(context.Cause(ctx), executor.ErrCanceled) {
			return r.end(ctx)
		}
		if err := r.pause(ctx, poll); err != nil {
			return executor.Result{}, err
		}
	}
}

// over reports whether nothing more comes of a run.
func over(s ssh.State) bool { return s == ssh.Ended || s == ssh.Rebooted }

// silent reports whether there is no supervisor, or none yet.
func silent(s ssh.State) bool { return s == ssh.Starting || s == ssh.Lost || s == ssh.Absent }

func (r *run) pause(ctx context.Context, t time.Duration) error {
	select {
	case <-ctx.Done():
		if executor.Interrupted(ctx) {
			return executor.ErrInterrupted
		}
		return nil
	case <-r.e.cfg.Clock.After(min(t, max(r.left(), 0))):
		return nil
	}
}

// look reads the status and whatever output is new.
func (r *run) look(ctx context.Context) (status ssh.Status, err error) {
	err = r.do(ctx, func(c *ssh.Client) error {
		if status, err = c.Status(ctx, r.id()); err != nil {
			return err
		}
		for name, size := range map[string]int64{"stdout": status.Stdout.Kept, "stderr": status.Stderr.Kept} {
			if err := r.out[name].read(ctx, c, r.id(), size); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return status, err
	}
	now := intent{Stdout: r.out["stdout"].told, Stderr: r.out["stderr"].told}
	if now != r.in {
		r.in = now
		if err := r.job.UpdateIntent(ctx, now); err != nil {
			r.job.Logf("lines may come twice, because it could not be written down how far the log is: %v", err)
		}
	}
	return status, nil
}

// end kills the script and returns the result.
func (r *run) end(ctx context.Context) (executor.Result, error) {
	canceled := errors.Is(context.Cause(ctx), executor.ErrCanceled) && r.left() > 0
	if executor.Interrupted(r.job.Hard) {
		return executor.Result{}, executor.ErrInterrupted
	}
	r.job.Logf("killing the script")
	hard, cancel := context.WithTimeout(context.WithoutCancel(r.job.Hard), 2*killTime)
	defer cancel()
	var status ssh.Status
	err := r.do(hard, func(c *ssh.Client) error { return c.Kill(hard, r.id()) })
	if err == nil {
		status, err = r.look(hard)
	}
	switch {
	case err != nil:
		return executor.Unknown("the script was to be killed, and the machine does not answer: %v; it ends it by itself",
			err).
			WithEvidence(r.evidence(status)), nil
	case status.State != ssh.Ended && status.State != ssh.Rebooted || status.Left:
		return executor.Unknown("the script was killed, and is still there (%s)",
			status.State).WithEvidence(r.evidence(status)), nil
	case status.State == ssh.Ended && !status.Killed && !status.TimedOut:
		return r.concluded(status), nil
	case canceled:
		r.finish(status)
		out := executor.Canceled("the script was killed").WithEvidence(r.evidence(status))
		return out, nil
	}
	return r.concluded(status), nil
}

// concluded is the result of a run that is over.
func (r *run) concluded(s ssh.Status) executor.Result {
	r.finish(s)
	switch {
	case s.State == ssh.Rebooted:
		return executor.Failed(baremetalv1.Reason_EXECUTION_FAILED,
			"the machine was started again before the script had ended; it runs no more").
			WithEvidence(r.evidence(s))
	case s.Left:
		return executor.Unknown("the script's time was up, and some of its processes cannot be killed").WithEvidence(
			r.evidence(s))
	case s.TimedOut || s.Killed:
		return executor.Failed(baremetalv1.Reason_STEP_TIMEOUT,
			"the script's time was up; it was killed, with all of its process group").
			AndRetry().WithEvidence(r.evidence(s))
	case s.Code != 0:
		return executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, "the script ended with exit code %d", s.Code).
			AndRetry().WithEvidence(r.evidence(s))
	}
	return executor.Succeeded(r.evidence(s))
}

// lost is the result of a run that has no process and no exit code.
func (r *run) lost(s ssh.Status) executor.Result {
	if !s.Begun {
		return executor.Failed(baremetalv1.Reason_EXECUTION_FAILED,
			"the machine could not begin with the script; it may have no memory or no disk space left").
			AndRetry().WithEvidence(r.evidence(s))
	}
	return executor.Unknown("what watched over the script on the machine is gone, and with it the exit code").WithEvidence(
		r.evidence(s))
}

// finish logs the rest of the output, and removes the files that may hold secrets from the machine.
func (r *run) finish(s ssh.Status) {
	r.out["stdout"].flush(s.Stdout.More)
	r.out["stderr"].flush(s.Stderr.More)
	if s.State != ssh.Ended {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.job.Hard), killTime)
	defer cancel()
	if err := r.do(ctx, func(c *ssh.Client) error { return c.Forget(ctx, r.id()) }); err != nil {
		r.job.Logf("the script's files are left on the machine for a week: %v", err)
	}
}

func (r *run) evidence(s ssh.Status) map[string]string {
	out := map[string]string{
		evidence.ScriptSHA256: r.job.Spec.GetScript().GetSha256(), evidence.SSHHostKey: r.fingerprint,
		"duration_ms":  strconv.FormatInt(r.e.cfg.Clock.Now().Sub(r.job.StartedAt).Milliseconds(), 10),
		"stdout_bytes": strconv.FormatInt(s.Stdout.Kept+s.Stdout.More, 10),
		"stderr_bytes": strconv.FormatInt(s.Stderr.Kept+s.Stderr.More, 10),
	}
	if s.State == ssh.Ended {
		out[evidence.ExitCode] = strconv.Itoa(s.Code)
	}
	return out
}
