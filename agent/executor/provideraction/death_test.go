package provideraction_test

import (
	"context"
	"errors"
	"testing"
	"time"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/executor/provideraction"
	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	"github.com/ingot-metal/ingot/internal/failpoint"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// TestAgentDiesAtEveryPoint kills the agent at every write of its intent, before and after the request, and lets it
// resume. The effect happens at most once; the outcome is a success where MAAS shows it, or unknown.
func TestAgentDiesAtEveryPoint(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		action, op string
		start      ms.Status
	}{
		{"deploy", "POST deploy", ms.Ready}, {"erase", "POST release", ms.Deployed}, {"erase", "POST release", ms.Ready},
		{"commission", "POST commission", ms.New}, {"delete", "DELETE machine", ms.Ready},
	} {
		died, unknown := 0, 0
		for at := 1; ; at++ {
			r := newRig(t)
			r.add(maastest.Machine{Status: c.start})
			s := spec(c.action, nil)
			r.prepare(s)
			r.dieAt = at
			out, err := r.execute(s, 30*time.Second)
			if err == nil {
				if out.Outcome != fleetv1.CommandResult_SUCCEEDED {
					t.Errorf("%s without a death: %v %q", c.action, out.Outcome, out.Message)
				}
				break
			}
			died++
			out = r.resumed(s)
			switch out.Outcome {
			case fleetv1.CommandResult_SUCCEEDED:
			case fleetv1.CommandResult_UNKNOWN, fleetv1.CommandResult_FAILED:
				unknown++
			default:
				t.Errorf("%s, dead at write %d: %v %q", c.action, at, out.Outcome, out.Message)
			}
			if n := r.region.Acted(c.op); n > 1 {
				t.Errorf("%s acted %d times", c.op, n)
			}
		}
		if died < 2 || unknown == died {
			t.Errorf("%s: %d deaths, %d of unknown end", c.action, died, unknown)
		}
		t.Logf("%s from %d: %d deaths, %d without a known success", c.action, c.start, died, unknown)
	}
}

// resumed lets the agent come back, as often as it takes.
func (r *rig) resumed(s *fleetv1.CommandSpec) executor.Result {
	r.t.Helper()
	r.dieAt = 0
	ctx, cancel := context.WithCancelCause(r.t.Context())
	defer cancel(nil)
	timer := time.AfterFunc(time.Second, func() { cancel(executor.ErrTimeout) })
	defer timer.Stop()
	v, err := r.exec.Resume(ctx, r.job(s, ctx))
	if err != nil {
		r.t.Fatal(err)
	}
	if v.Settled != nil {
		return *v.Settled
	}
	out, err := r.execute(s, 20*time.Second)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// TestFailpointBeforeTheRequest: an agent that dies there has provably not asked, but cannot know it.
func TestFailpointBeforeTheRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(maastest.Machine{Status: ms.Deployed})
	s := spec("release", nil)
	r.prepare(s)
	scope := failpoint.NewScope()
	defer scope.Set(provideraction.BeforeRequest.Name(), failpoint.Error())()
	ctx := failpoint.With(t.Context(), scope)
	if _, err := r.exec.Execute(ctx, r.job(s, ctx)); !errors.Is(err, failpoint.ErrInjected) {
		t.Fatalf("the failpoint is not passed: %v", err)
	}
	if out := r.resumed(s); out.Outcome != fleetv1.CommandResult_UNKNOWN || r.region.Acted("POST release") != 0 {
		t.Errorf("%v %q", out.Outcome, out.Message)
	}
}

// TestCancel stops what MAAS does for the command.
func TestCancel(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(maastest.Machine{Status: ms.Deploying, Stuck: true})
	s := spec("wait_deployed", nil)
	r.prepare(s)
	ctx, cancel := context.WithCancelCause(t.Context())
	job := r.job(s, t.Context())
	job.Progress = func(int, string) { cancel(executor.ErrCanceled) } // it waits for MAAS
	out, err := r.exec.Execute(ctx, job)
	if err != nil || out.Outcome != fleetv1.CommandResult_CANCELED {
		t.Errorf("%v %v %q, the machine is %s", err, out.Outcome, out.Message, r.status())
	}
	testkit.Eventually(t, patience, func() bool { return r.status() == "Allocated" }, "the deployment is not aborted")
}

// TestShutdownLeavesItToResume: an agent that stops reports no outcome.
func TestShutdownLeavesItToResume(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(maastest.Machine{Status: ms.Deploying, Stuck: true})
	s := spec("wait_deployed", nil)
	r.prepare(s)
	ctx, cancel := context.WithCancelCause(t.Context())
	job := r.job(s, ctx)
	job.Progress = func(int, string) { cancel(executor.ErrShutdown) }
	if _, err := r.exec.Execute(ctx, job); !errors.Is(err, executor.ErrInterrupted) {
		t.Errorf("%v", err)
	}
}

func TestKilledAtEachEffect(t *testing.T) {
	t.Parallel()
	executortest.Run(t, provideraction.Declaration, func(t *testing.T) executortest.World {
		r := newRig(t)
		r.add(maastest.Machine{Status: ms.Deployed})
		return executortest.World{
			Spec: spec("release", nil), Executor: func() executor.Executor { return r.exec },
			Effects: func() int { return r.region.Acted("POST release") }, ResumeWithin: time.Second,
		}
	})
}
