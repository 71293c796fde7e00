package provideraction_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/provider/maas"
	"github.com/ingot-metal/ingot/agent/provider/maas/maastest"
	"github.com/ingot-metal/ingot/internal/failure"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// TestStoppedRightAfterARequest: what the answer left open stays open, and an agent that stops reports no result.
func TestStoppedRightAfterARequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		action, op string
		start      ms.Status
		kind       maastest.Kind
		cause      error
		outcome    fleetv1.CommandResult_Outcome
		reason     baremetalv1.Reason
		err        error
	}{
		"refused, and the agent stops": {
			"release", "POST release", ms.Deployed, maastest.Conflict, executor.ErrShutdown, 0, 0, executor.ErrInterrupted,
		},
		"open, and canceled": {
			"release", "POST release", ms.Deployed, maastest.CutBefore, executor.ErrCanceled,
			fleetv1.CommandResult_UNKNOWN, baremetalv1.Reason_OUTCOME_UNKNOWN, nil,
		},
		"open and harmless, and no time left": {
			"commission", "POST commission", ms.New, maastest.CutBefore, executor.ErrTimeout,
			fleetv1.CommandResult_FAILED, baremetalv1.Reason_MAAS_UNREACHABLE, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.add(maastest.Machine{Status: c.start})
			r.region.Fail(maastest.Fault{Op: c.op, Kind: c.kind})
			s := spec(c.action, nil)
			r.prepare(s)
			ctx, cancel := context.WithCancelCause(t.Context())
			r.written = func(n int) {
				if n == 2 { // the first is before the request
					cancel(c.cause)
				}
			}
			out, err := r.exec.Execute(ctx, r.job(s, t.Context()))
			if !errors.Is(err, c.err) || out.Outcome != c.outcome || out.Reason != c.reason {
				t.Errorf("%+v, %v", out, err)
			}
		})
	}
}

// TestACancelAbortsNoErasure: MAAS goes on with it by itself.
func TestACancelAbortsNoErasure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(maastest.Machine{Status: ms.Deployed})
	s := spec("erase", nil)
	r.prepare(s)
	ctx, cancel := context.WithCancelCause(t.Context())
	job := r.job(s, t.Context())
	job.Progress = func(int, string) { cancel(executor.ErrCanceled) }
	out, err := r.exec.Execute(ctx, job)
	if err != nil || out.Outcome != fleetv1.CommandResult_CANCELED || len(r.region.Requests("POST abort")) != 0 {
		t.Errorf("%+v, %v", out, err)
	}
}

// TestAWaitIsToldOnce, however often MAAS is looked at, and named when the time is up.
func TestAWaitIsToldOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(maastest.Machine{Status: ms.Deploying, Stuck: true})
	s := spec("wait_deployed", nil)
	r.prepare(s)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	job := r.job(s, ctx)
	var told []string
	job.Progress = func(_ int, what string) { told = append(told, what) }
	const looks = 20 // at the region, of which each wait takes one or two
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if len(r.region.Requests("")) >= looks {
				cancel(executor.ErrTimeout)
				return
			}
		}
	}()
	out, err := r.exec.Execute(ctx, job)
	if err != nil || len(told) != 1 || !strings.Contains(out.Message, "waiting for "+told[0]+" when") {
		t.Errorf("%+v, %v; told %q", out, err, told)
	}
}

// TestWhatIsWrittenOfAnErasure: the request, its answer, and that MAAS was seen to erase, once each.
func TestWhatIsWrittenOfAnErasure(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(maastest.Machine{Status: ms.Deployed})
	if out := r.do("erase", nil); out.Outcome != fleetv1.CommandResult_SUCCEEDED || r.writes > 3 {
		t.Errorf("%+v after %d writes", out, r.writes)
	}
	var p maas.Progress
	if err := json.Unmarshal(r.intent, &p); err != nil || p.Asked[maas.Release].Times != 1 ||
		!p.Asked[maas.Release].Answered {
		t.Errorf("%s, %v", r.intent, err)
	}
}

// TestAMachineThatNobodyCanSwitchIsNotMade, and a machine is made for the processor that was named.
func TestAMachineThatNobodyCanSwitchIsNotMade(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.power = failure.Precondition("MAAS_REFUSED", "no BMC")
	out := r.do("create", nil)
	if out.Outcome != fleetv1.CommandResult_FAILED || out.Reason != baremetalv1.Reason_MAAS_REFUSED ||
		r.status() != "absent" {
		t.Errorf("%+v; the machine is %s", out, r.status())
	}
	r.power = nil
	r.must("create", map[string]string{"architecture": "arm64/generic"})
	if f := r.region.Requests("POST machines")[0].Form; f.Get("architecture") != "arm64/generic" {
		t.Errorf("made with %v", f)
	}
}
