package repave_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/executor/repave"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// simulated is a simulated machine whose disk may be unreadable, and which may refuse to be written.
type simulated struct {
	*sim.Host
	read, refuses error
	// wrote is called when a write has ended; it may be nil.
	wrote  func()
	writes int
}

func (s *simulated) DiskImage(ctx context.Context) (host.DiskImage, error) {
	d, err := s.Host.DiskImage(ctx)
	return d, errors.Join(err, s.read)
}

func (s *simulated) Repave(
	ctx context.Context, e effect.Cause, r host.RepaveRequest, p func(host.RepaveProgress),
) (host.RepaveEvidence, error) {
	s.writes++
	if s.refuses != nil {
		return host.RepaveEvidence{}, s.refuses
	}
	got, err := s.Host.Repave(ctx, e, r, p)
	if s.wrote != nil {
		s.wrote()
	}
	return got, err
}

type simRig struct {
	t        *testing.T
	host     *simulated
	exec     *repave.Executor
	spec     *fleetv1.CommandSpec
	progress []string
	// during is called at each step of a write; it may be nil.
	during func()
}

func newSimRig(t *testing.T, cfg sim.Config) *simRig {
	t.Helper()
	cfg.Dir, cfg.MachineID, cfg.NoSync = t.TempDir(), "m-1", true
	h, err := sim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() }) // nothing is owed to it
	r := &simRig{t: t, host: &simulated{Host: h}}
	r.exec = repave.New(r.host, true)
	r.spec = &fleetv1.CommandSpec{CommandId: "cmd-1", TargetId: "m-1",
		Action: &fleetv1.CommandSpec_Repave{Repave: &fleetv1.RepaveAction{
			ImageRef: "debian-12", Sha256Raw: strings.ToUpper(digest),
		}}}
	return r
}

// job prepares the command.
func (r *simRig) job(ctx context.Context) executor.Job {
	r.t.Helper()
	in, settled, err := r.exec.Prepare(r.t.Context(), r.spec)
	if err != nil || settled != nil {
		r.t.Fatalf("prepare: %+v, %v", settled, err)
	}
	b, err := json.Marshal(in)
	if err != nil {
		r.t.Fatal(err)
	}
	return executor.Job{Spec: r.spec, Intent: b, Hard: ctx, Logf: r.t.Logf, Progress: func(p int, m string) {
		r.progress = append(r.progress, fmt.Sprint(p, " ", m))
		if r.during != nil {
			r.during()
		}
	}}
}

// TestTheEndsOfASimulatedRepave: the disk's content decides, whatever the write returned and however it was stopped.
func TestTheEndsOfASimulatedRepave(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script  string
		during  error // ends it at each step
		waiting error // ends it before its first step
		after   error // ends it when the write has ended
		outcome fleetv1.CommandResult_Outcome
		reason  baremetalv1.Reason
		retry   bool
		message string
	}{
		"written":                {outcome: fleetv1.CommandResult_SUCCEEDED},
		"written, with an error": {script: "repave:fail-after", outcome: fleetv1.CommandResult_SUCCEEDED},
		"written, then canceled": {after: executor.ErrCanceled, outcome: fleetv1.CommandResult_SUCCEEDED},
		"failed": {script: "repave:fail-before", outcome: fleetv1.CommandResult_FAILED,
			reason: baremetalv1.Reason_EXECUTION_FAILED, retry: true,
			message: "at 0% ()"},
		"said to be written": {script: "repave:lie", outcome: fleetv1.CommandResult_UNKNOWN,
			reason: baremetalv1.Reason_EVIDENCE_MISSING},
		"said to be written, then canceled": {script: "repave:late=1h", after: executor.ErrCanceled,
			outcome: fleetv1.CommandResult_UNKNOWN,
			reason:  baremetalv1.Reason_EVIDENCE_MISSING},
		"canceled": {during: executor.ErrCanceled, outcome: fleetv1.CommandResult_CANCELED,
			reason:  baremetalv1.Reason_CANCELED_BY_REQUEST,
			message: "stopped at 100% (verify)"},
		"the time is up": {waiting: executor.ErrTimeout, outcome: fleetv1.CommandResult_FAILED,
			reason: baremetalv1.Reason_STEP_TIMEOUT, retry: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			cfg := sim.Config{Script: c.script}
			if c.waiting != nil {
				cfg.Clock, cfg.RepaveTime = endless{clock.Real(), func() { cancel(c.waiting) }}, time.Hour
			}
			r := newSimRig(t, cfg)
			if c.after != nil {
				r.host.wrote = func() { cancel(c.after) }
			}
			job := r.job(ctx)
			if c.during != nil {
				r.during = func() { cancel(c.during) }
			}
			got, err := r.exec.Execute(ctx, job)
			if err != nil || got.Outcome != c.outcome || got.Reason != c.reason || got.Retryable != c.retry ||
				!strings.Contains(got.Message, c.message) {
				t.Fatalf("%+v, %v", got, err)
			}
			holds := ""
			if c.outcome == fleetv1.CommandResult_SUCCEEDED {
				holds = "sha256:" + digest
				if r.progress[len(r.progress)-1] != "100 verify" {
					t.Errorf("progress %q", r.progress)
				}
			}
			if got.Evidence[evidence.ImageDigest] != holds || got.Evidence["disk"] == "" && c.script == "" {
				t.Errorf("evidence %v, want %q", got.Evidence, holds)
			}
		})
	}
}

// TestASimulatedRepaveAfterARestart is done when the disk holds what this very command has written.
func TestASimulatedRepaveAfterARestart(t *testing.T) {
	t.Parallel()
	r := newSimRig(t, sim.Config{})
	job := r.job(t.Context())
	scope := failpoint.NewScope()
	scope.Set(executor.AfterEffect.Name(), failpoint.Error())
	if got, err := r.exec.Execute(failpoint.With(t.Context(), scope), job); !errors.Is(err, failpoint.ErrInjected) {
		t.Fatalf("%+v, %v", got, err)
	}
	wants := func(what string, job executor.Job, outcome fleetv1.CommandResult_Outcome) {
		t.Helper()
		v, err := r.exec.Resume(t.Context(), job)
		if err != nil || v.Settled == nil || v.Settled.Outcome != outcome ||
			v.Settled.Retryable != (outcome == fleetv1.CommandResult_FAILED) ||
			v.Settled.Evidence[evidence.ImageDigest] != "sha256:"+digest {
			t.Errorf("%s: %+v, %v", what, v.Settled, err)
		}
	}
	wants("its own write", job, fleetv1.CommandResult_SUCCEEDED)
	r.spec.CommandId = "cmd-2"
	wants("the same image, by another command", r.job(t.Context()), fleetv1.CommandResult_FAILED)
	r.spec.CommandId, r.spec.GetRepave().Sha256Raw = "cmd-1", strings.Repeat("b", 64)
	wants("another image", r.job(t.Context()), fleetv1.CommandResult_FAILED)
	r.host.read = errBroken
	if v, err := r.exec.Resume(t.Context(), job); !errors.Is(err, errBroken) {
		t.Errorf("an unreadable disk: %+v, %v", v.Settled, err)
	}
}

// TestASimulatedRepaveThatIsNotWritten: without a grant, by a refusal, at a stop, or with a disk that cannot be read.
func TestASimulatedRepaveThatIsNotWritten(t *testing.T) {
	t.Parallel()
	r := newSimRig(t, sim.Config{})
	refusal := executor.Failed(baremetalv1.Reason_GRANT_REFUSED, "BUDGET_REQUIRED")
	for want, leave := range map[baremetalv1.Reason]func(context.Context) (*executor.Result, error){
		baremetalv1.Reason_GRANT_REFUSED: func(context.Context) (*executor.Result, error) { return &refusal, nil },
		baremetalv1.Reason_CANCELED_BY_REQUEST: func(context.Context) (*executor.Result, error) {
			return nil,
				executor.ErrCanceled
		},
	} {
		job := r.job(t.Context())
		job.Leave = leave
		if got, err := r.exec.Execute(t.Context(), job); err != nil || got.Reason != want || r.host.writes != 0 {
			t.Errorf("%+v, %v after %d writes, want %v", got, err, r.host.writes, want)
		}
	}
	r.host.refuses = &effect.Refusal{Kind: effect.ErrNotWired}
	if got, err := r.exec.Execute(t.Context(), r.job(t.Context())); err != nil ||
		got.Reason != baremetalv1.Reason_REPAVE_NOT_WIRED {
		t.Errorf("refused: %+v, %v", got, err)
	}
	r.host.refuses = nil
	ctx, cancel := context.WithCancelCause(t.Context())
	r.during = func() { cancel(executor.ErrShutdown) }
	if got, err := r.exec.Execute(ctx, r.job(ctx)); !errors.Is(err, executor.ErrInterrupted) {
		t.Errorf("at a stop: %+v, %v", got, err)
	}
	r.during = nil
	job := r.job(t.Context())
	r.host.read = errBroken
	if got, err := r.exec.Execute(t.Context(), job); !errors.Is(err, errBroken) {
		t.Errorf("not read back: %+v, %v", got, err)
	}
	if in, settled, err := r.exec.Prepare(t.Context(), r.spec); !errors.Is(err, errBroken) {
		t.Errorf("prepared %v, %+v, %v", in, settled, err)
	}
	r.host.read = &effect.Refusal{Kind: effect.ErrUnsupported}
	if _, settled, err := r.exec.Prepare(t.Context(), r.spec); err != nil || settled == nil ||
		settled.Reason != baremetalv1.Reason_REPAVE_NOT_WIRED {
		t.Errorf("prepared %+v, %v", settled, err)
	}
}

// TestWhichDigestIsVerified: a SHA-256 in any case, and one of its name for a simulated image without any. Nothing else
// will do.
func TestWhichDigestIsVerified(t *testing.T) {
	t.Parallel()
	const made = "made of the name"
	for name, c := range map[string]struct {
		ref, digest string
		real        bool
		want        string // empty for a refusal
	}{
		"upper case":         {"debian", "sha256:" + strings.ToUpper(digest), false, "sha256:" + digest},
		"of a machine":       {"debian", digest, true, "sha256:" + digest},
		"none":               {"debian", "", false, made},
		"none, of a machine": {"debian", "", true, ""},
		"none, and no name":  {"", "", false, ""},
		"too short":          {"debian", digest[2:], false, ""},
		"too long":           {"debian", digest + "aa", false, ""},
		"no hex":             {"debian", strings.Repeat("z", 64), false, ""},
		"no hex after 64":    {"debian", digest + "zz", false, ""},
	} {
		r := newSimRig(t, sim.Config{})
		r.exec = repave.New(r.host, !c.real)
		r.spec.GetRepave().ImageRef, r.spec.GetRepave().Sha256Raw = c.ref, c.digest
		in, settled, err := r.exec.Prepare(t.Context(), r.spec)
		if err != nil || (settled != nil) != (c.want == "") || settled != nil &&
			settled.Reason != baremetalv1.Reason_INVALID_FIELD {
			t.Errorf("%s: %+v, %v", name, settled, err)
			continue
		}
		b, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var got struct{ Digest string }
		if err := json.Unmarshal(b, &got); err != nil || c.want != made && got.Digest != c.want ||
			c.want == made && (len(got.Digest) != len("sha256:")+64 || got.Digest == "sha256:"+digest) {
			t.Errorf("%s: %q, want %q", name, got.Digest, c.want)
		}
	}
}

func TestKilledAtEachEffectOfASimulatedMachine(t *testing.T) {
	t.Parallel()
	executortest.Run(t, repave.Declaration, func(t *testing.T) executortest.World {
		r := newSimRig(t, sim.Config{})
		return executortest.World{
			Spec: r.spec, Executor: func() executor.Executor { return r.exec }, Effects: func() int { return r.host.writes },
		}
	})
}
