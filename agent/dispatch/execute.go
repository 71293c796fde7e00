package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/failpoint"
	"github.com/ingot-metal/ingot/internal/task"
)

// errStuck: the executor did not come back; the result stands, and the lane stays taken until it does.
var errStuck = errors.New("executor does not end")

// scope holds the two contexts of an executor: hard ends at shutdown and time-out, ctx at a cancel too.
type scope struct {
	ctx, hard context.Context //nolint:containedctx // lives as long as one call
	end       func()
}

func (d *Dispatcher) newScope(ctx context.Context, j *job, limit time.Duration) scope {
	hard, stopHard := context.WithCancelCause(ctx)
	soft, stopSoft := context.WithCancelCause(hard)
	s := scope{ctx: soft, hard: hard, end: func() { stopHard(context.Canceled) }}
	d.group.Go("watch "+j.id, func(context.Context) error {
		up := d.cfg.Clock.After(limit)
		canceled := j.canceled
		for {
			select {
			case <-up:
				stopHard(executor.ErrTimeout)
			case <-canceled:
				stopSoft(executor.ErrCanceled)
				canceled = nil
			case <-hard.Done():
				return nil
			}
		}
	})
	return s
}

type executed struct {
	result executor.Result
	err    error
}

// execute runs the executor and always comes back with a result, unless the agent stops.
func (d *Dispatcher) execute(ctx context.Context, j *job, exec executor.Executor, a ask) (executor.Result, error) {
	if err := commandAgain.HitCtx(ctx); err != nil {
		d.markRepeated(j)
	}
	s := d.newScope(ctx, j, timeout(j.spec))
	done := make(chan executed, 1)
	d.group.Go("execute "+j.id, func(context.Context) error {
		defer s.end()
		var out executed
		out.err = task.Run(s.ctx, "execute "+j.id, func(ctx context.Context) (err error) {
			own := d.jobFor(s, j)
			own.Leave = func(ctx context.Context) (*executor.Result, error) { return d.renewGrant(ctx, j, a) }
			out.result, err = exec.Execute(ctx, own)
			return err
		})
		done <- out
		return nil
	})
	select {
	case out := <-done:
		return d.conclude(ctx, j, out)
	case <-s.hard.Done():
	}
	select {
	case out := <-done:
		return d.conclude(ctx, j, out)
	case <-d.cfg.Clock.After(d.cfg.StopGrace):
	}
	if ctx.Err() != nil {
		return executor.Result{}, executor.ErrInterrupted
	}
	d.group.Go("await "+j.id, func(context.Context) error {
		<-done
		j.leave()
		return nil
	})
	return executor.Unknown("the executor did not end when its time was up, and may still act"), errStuck
}

// conclude turns what an executor returned into the result.
func (d *Dispatcher) conclude(ctx context.Context, j *job, out executed) (executor.Result, error) {
	switch {
	case out.err == nil && out.result.Outcome != fleetv1.CommandResult_OUTCOME_UNSPECIFIED:
		return out.result, nil
	case errors.Is(out.err, failpoint.ErrInjected):
		return executor.Result{}, out.err
	case isPanic(out.err):
		d.cfg.Log.Error("executor panicked", "command_id", j.id, "error", out.err)
		r := executor.Unknown("the executor panicked after it had begun")
		r.Reason = baremetalv1.Reason_EXECUTOR_PANICKED
		return r, nil
	case ctx.Err() != nil:
		return executor.Result{}, executor.ErrInterrupted
	case out.err == nil:
		return executor.Unknown("the executor gave no outcome"), nil
	}
	return executor.Unknown("the outcome is open: %v", out.err), nil
}

func (d *Dispatcher) jobFor(s scope, j *job) executor.Job {
	return executor.Job{
		Spec: j.spec, Intent: j.stored.Intent, Hard: s.hard, StartedAt: j.stored.StartedAt,
		Progress: d.progressOf(s.ctx, j),
		Logf:     func(format string, args ...any) { d.logLine(s.ctx, j, fmt.Sprintf(format, args...)) },
		Output:   func(stream string, data []byte) { d.logData(s.hard, j, stream, data) },
		UpdateIntent: func(ctx context.Context, intent any) error {
			b, err := json.Marshal(intent)
			if err != nil {
				return fmt.Errorf("encode intent: %w", err)
			}
			j.stored.Intent = b
			return d.cfg.Store.UpdateIntent(ctx, j.id, b)
		},
	}
}

const progressEvery = time.Second

// progressOf sends progress live at most once a second; without a session it goes into the event buffer.
func (d *Dispatcher) progressOf(ctx context.Context, j *job) func(int, string) {
	var last time.Time
	return func(percent int, message string) {
		now := d.cfg.Clock.Now()
		if now.Sub(last) < progressEvery && percent < 100 {
			return
		}
		last = now
		d.mu.Lock()
		link := d.link
		d.mu.Unlock()
		if link != nil {
			link.Send(&fleetv1.AgentMessage{Message: &fleetv1.AgentMessage_Progress{Progress: &fleetv1.Progress{
				CommandId: j.id, Percent: int32(percent), Message: message,
			}}})
			return
		}
		d.emit(ctx, &fleetv1.Event{Body: &fleetv1.Event_Progress{Progress: &fleetv1.ProgressReport{
			CommandId: j.id, OperationId: j.spec.GetOperationId(), Percent: int32(percent), Message: message,
		}}})
	}
}

func (d *Dispatcher) logLine(ctx context.Context, j *job, line string) {
	if !d.cfg.Quiet {
		d.logData(ctx, j, "agent", []byte(line+"\n"))
	}
}

func (d *Dispatcher) logData(ctx context.Context, j *job, stream string, data []byte) {
	d.emit(ctx, &fleetv1.Event{Body: &fleetv1.Event_Log{Log: &fleetv1.LogLines{
		CommandId: j.id, OperationId: j.spec.GetOperationId(), Stream: stream, Data: data,
	}}})
}

// emit buffers an event. Its loss is logged and stops nothing: events are not results.
func (d *Dispatcher) emit(ctx context.Context, e *fleetv1.Event) {
	err := d.cfg.Store.Append(ctx, e, d.cfg.Clock.Now())
	if err != nil && !errors.Is(err, state.ErrFenced) {
		d.cfg.Log.Error("event lost", "error", err)
	}
}
