package kexec_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/executor/kexec"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/clock"
)

func sum(s string) string {
	b := sha256.Sum256([]byte(s))
	return hex.EncodeToString(b[:])
}

// machine is one that enters another kernel on request.
type machine struct {
	support, load, enter error
	// stays: entering is accepted and nothing comes of it.
	stays bool
	// silent: its boot id cannot be read; opaque: nor whether a kernel is loaded; stuck: the kernel cannot be unloaded.
	silent, opaque, stuck error

	reads                   int
	files                   []*os.File
	boot                    string
	kernel, initrd, cmdline string
	loaded                  bool
	loads, enters, unloads  int
}

func (m *machine) KexecSupport() error { return m.support }

func (m *machine) Identity(context.Context) (host.Identity, error) {
	m.reads++
	if m.silent != nil {
		return host.Identity{}, m.silent
	}
	return host.Identity{BootID: m.boot}, nil
}

func (m *machine) LoadKernel(_ effect.Cause, kernel, initrd *os.File, cmdline string) error {
	m.loads++
	m.files = []*os.File{kernel, initrd}
	if m.load != nil {
		return m.load
	}
	m.kernel, m.initrd, m.cmdline, m.loaded = all(kernel), all(initrd), cmdline, true
	return nil
}

func all(f *os.File) string {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
	if err != nil {
		panic(err)
	}
	return string(b)
}

func (m *machine) UnloadKernel() error {
	m.unloads++
	m.loaded = false
	return m.stuck
}

func (m *machine) KernelLoaded() (bool, error) { return m.loaded, m.opaque }

func (m *machine) EnterKernel(context.Context, effect.Cause) error {
	m.enters++
	if m.enter == nil && !m.stays {
		m.boot = fmt.Sprintf("boot-%d", m.enters+1)
	}
	return m.enter
}

type rig struct {
	m     *machine
	blobs map[string]string
	fetch error
	spec  *fleetv1.CommandSpec
}

func newRig() *rig {
	return &rig{
		m: &machine{boot: "boot-1"}, blobs: map[string]string{sum("kernel"): "kernel", sum("initrd"): "initrd"},
		spec: &fleetv1.CommandSpec{CommandId: "c", Action: &fleetv1.CommandSpec_Installer{Installer: &fleetv1.InstallerAction{
			KernelSha256: sum("kernel"), InitrdSha256: sum("initrd"), Cmdline: "ingot.role=installer",
		}}},
	}
}

func (r *rig) executor() *kexec.Executor { return r.patient(50*time.Millisecond, time.Millisecond) }

func (r *rig) patient(settle, poll time.Duration) *kexec.Executor {
	return kexec.New(kexec.Config{
		Machine: r.m, Clock: clock.Real(), Settle: settle, Poll: poll,
		Fetch: func(_ context.Context, digest string, w io.Writer) error {
			if r.fetch != nil {
				return r.fetch
			}
			_, err := io.WriteString(w, r.blobs[digest])
			return err
		},
	})
}

func (r *rig) job(t *testing.T, hard context.Context) executor.Job {
	t.Helper()
	intent, settled, err := r.executor().Prepare(t.Context(), r.spec)
	if err != nil || settled != nil {
		t.Fatalf("%+v, %v", settled, err)
	}
	b, err := json.Marshal(intent)
	if err != nil {
		t.Fatal(err)
	}
	return executor.Job{Spec: r.spec, Intent: b, Hard: hard, Progress: func(int, string) {}, Logf: func(string, ...any) {}}
}

// TestKexecThatComesBackInItsOwnSystemIsNoSuccess: the agent that executes a kexec runs in the system that is left, so
// that another boot id proves that this system is back.
func TestKexecThatComesBackInItsOwnSystemIsNoSuccess(t *testing.T) {
	t.Parallel()
	r := newRig()
	got, err := r.executor().Execute(t.Context(), r.job(t, t.Context()))
	if err != nil || got.Reason != baremetalv1.Reason_WRONG_SYSTEM_BOOTED || !got.Retryable ||
		got.Evidence["boot_id_before"] != "boot-1" || got.Evidence["boot_id_after"] != "boot-2" {
		t.Fatalf("%+v, %v", got, err)
	}
	if r.m.kernel != "kernel" || r.m.initrd != "initrd" || r.m.cmdline != "ingot.role=installer" || r.m.enters != 1 {
		t.Errorf("%+v", r.m)
	}
}

func TestKexecFailsBeforeItsEffect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change    func(r *rig)
		reason    baremetalv1.Reason
		retryable bool
	}{
		"substituted kernel": {func(r *rig) { r.blobs[sum("kernel")] = "evil" }, baremetalv1.Reason_IMAGE_DIGEST_MISMATCH,
			false},
		"empty initramfs": {func(r *rig) { delete(r.blobs, sum("initrd")) }, baremetalv1.Reason_IMAGE_DIGEST_MISMATCH,
			false},
		"no controller": {func(r *rig) { r.fetch = errors.New("gone") }, baremetalv1.Reason_IMAGE_UNAVAILABLE, true},
		"bad kernel": {func(r *rig) { r.m.load = errors.New("exec format error") },
			baremetalv1.Reason_EXECUTION_FAILED, false},
		"locked down since": {func(r *rig) { r.m.load = &effect.Refusal{Kind: effect.ErrUnsupported} },
			baremetalv1.Reason_CAPABILITY_MISSING, false},
	} {
		r := newRig()
		job := r.job(t, t.Context())
		c.change(r)
		got, err := r.executor().Execute(t.Context(), job)
		if err != nil || got.Outcome != fleetv1.CommandResult_FAILED || got.Reason != c.reason ||
			got.Retryable != c.retryable || r.m.enters != 0 {
			t.Errorf("%s: %+v, %v, entered %d times", name, got, err, r.m.enters)
		}
	}
}

func TestKexecPrepareRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(r *rig)
		want   baremetalv1.Reason
	}{
		"unsupported": {func(r *rig) { r.m.support = &effect.Refusal{Kind: effect.ErrUnsupported} },
			baremetalv1.Reason_CAPABILITY_MISSING},
		"no digest": {func(r *rig) { r.spec.GetInstaller().InitrdSha256 = "x" }, baremetalv1.Reason_INVALID_FIELD},
	} {
		r := newRig()
		c.change(r)
		_, settled, err := r.executor().Prepare(t.Context(), r.spec)
		if err != nil || settled == nil || settled.Reason != c.want {
			t.Errorf("%s: %+v, %v", name, settled, err)
		}
	}
}

func TestKexecCanceledBeforeItEnters(t *testing.T) {
	t.Parallel()
	r := newRig()
	ctx, cancel := context.WithCancelCause(t.Context())
	job := r.job(t, t.Context())
	job.Progress = func(_ int, what string) {
		if strings.Contains(what, "loading") {
			cancel(executor.ErrCanceled)
		}
	}
	got, err := r.executor().Execute(ctx, job)
	if err != nil || got.Outcome != fleetv1.CommandResult_CANCELED || r.m.enters != 0 || r.m.loaded {
		t.Errorf("%+v, %v, %+v", got, err, r.m)
	}
}

func TestKexecThatNobodyKnowsOf(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.m.enter = errors.New("systemd does not answer")
	got, err := r.executor().Execute(t.Context(), r.job(t, t.Context()))
	if err != nil || got.Outcome != fleetv1.CommandResult_UNKNOWN ||
		!strings.Contains(got.Message, "systemd does not answer") {
		t.Errorf("entering failed: %+v, %v", got, err)
	}
	r = newRig()
	r.m.stays = true
	hard, cancel := context.WithCancelCause(t.Context())
	job := r.job(t, hard)
	cancel(executor.ErrTimeout)
	got, err = r.executor().Execute(t.Context(), job)
	if err != nil || got.Outcome != fleetv1.CommandResult_UNKNOWN {
		t.Errorf("time is up: %+v, %v", got, err)
	}
	hard, cancel = context.WithCancelCause(t.Context())
	job = r.job(t, hard)
	cancel(executor.ErrShutdown)
	if _, err = r.executor().Execute(t.Context(), job); !errors.Is(err, executor.ErrInterrupted) {
		t.Errorf("the agent is stopped by it: %v", err)
	}
}

func TestKexecResumes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(m *machine)
		outcome fleetv1.CommandResult_Outcome
	}{
		"after another boot":     {func(m *machine) { m.boot = "boot-2" }, fleetv1.CommandResult_FAILED},
		"before it loaded":       {func(*machine) {}, fleetv1.CommandResult_FAILED},
		"loaded and not entered": {func(m *machine) { m.loaded = true }, fleetv1.CommandResult_UNKNOWN},
	} {
		r := newRig()
		job := r.job(t, t.Context())
		c.change(r.m)
		v, err := r.executor().Resume(t.Context(), job)
		if err != nil || v.Settled == nil || v.Settled.Outcome != c.outcome || r.m.enters != 0 {
			t.Errorf("%s: %+v, %v", name, v.Settled, err)
		}
	}
}

// TestAMachineIsWatchedForTwoMinutes: after an error it may still enter the kernel, as long as systemd stops units.
func TestAMachineIsWatchedForTwoMinutes(t *testing.T) {
	t.Parallel()
	for name, enter := range map[string]bool{"entering failed": true, "the agent was restarted": false} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig()
			r.m.stays = true
			job, begun := r.job(t, t.Context()), time.Now()
			r.m.reads = 0
			watched, first := 2*time.Minute, 0
			var got executor.Result
			var err error
			if enter {
				r.m.enter = errors.New("systemd does not answer")
				got, err = r.patient(0, 0).Execute(t.Context(), job)
			} else {
				r.m.loaded, first = true, 1
				var v executor.Verdict
				if v, err = r.patient(0, 0).Resume(t.Context(), job); v.Settled != nil {
					got = *v.Settled
				}
			}
			took, reads := time.Since(begun), int(watched/(250*time.Millisecond))+1+first
			if err != nil || got.Outcome != fleetv1.CommandResult_UNKNOWN || took != watched || r.m.reads != reads {
				t.Errorf("%s: %+v, %v after %s and %d reads, want %d", name, got, err, took, r.m.reads, reads)
			}
		})
	}
}

// TestAMachineThatCannotBeReadHasNotRestarted: silence is no other boot id.
func TestAMachineThatCannotBeReadHasNotRestarted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig()
		hard, cancel := context.WithTimeoutCause(t.Context(), time.Minute, executor.ErrTimeout)
		defer cancel()
		job := r.job(t, hard)
		r.m.stays, r.m.silent = true, errors.New("i/o")
		got, err := r.executor().Execute(t.Context(), job)
		if err != nil || got.Outcome != fleetv1.CommandResult_UNKNOWN || got.Evidence["boot_id_before"] != "boot-1" {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// TestWhatCannotBeReadIsNoResult: where the machine or the intent cannot be read, nothing is said and nothing entered.
func TestWhatCannotBeReadIsNoResult(t *testing.T) {
	t.Parallel()
	broken := errors.New("i/o")
	r := newRig()
	job := r.job(t, t.Context())
	r.m.silent = broken
	if in, settled, err := r.executor().Prepare(t.Context(), r.spec); !errors.Is(err, broken) {
		t.Errorf("prepare: %v %+v %v", in, settled, err)
	}
	if v, err := r.executor().Resume(t.Context(), job); !errors.Is(err, broken) {
		t.Errorf("resume: %+v %v", v, err)
	}
	r.m.silent, r.m.opaque = nil, broken
	if v, err := r.executor().Resume(t.Context(), job); !errors.Is(err, broken) {
		t.Errorf("whether a kernel is loaded: %+v %v", v, err)
	}
	job.Intent = job.Intent[:len(job.Intent)-1]
	if v, err := r.executor().Resume(t.Context(), job); err == nil || errors.Is(err, broken) {
		t.Errorf("resume with half an intent: %+v %v", v, err)
	}
	if got, err := r.executor().Execute(t.Context(), job); err == nil || r.m.enters+r.m.loads != 0 {
		t.Errorf("half an intent: %+v, %+v", got, r.m)
	}
}

// TestKexecIsStoppedWhileItFetches: a cancel is one, and an agent that stops leaves the command to its next life.
func TestKexecIsStoppedWhileItFetches(t *testing.T) {
	t.Parallel()
	for cause, want := range map[error]struct {
		outcome fleetv1.CommandResult_Outcome
		err     error
	}{
		executor.ErrCanceled: {fleetv1.CommandResult_CANCELED, nil}, executor.ErrShutdown: {err: executor.ErrInterrupted},
	} {
		r := newRig()
		job := r.job(t, t.Context())
		ctx, cancel := context.WithCancelCause(t.Context())
		r.fetch = context.Canceled
		cancel(cause)
		got, err := r.executor().Execute(ctx, job)
		if !errors.Is(err, want.err) || got.Outcome != want.outcome || r.m.loads+r.m.enters != 0 {
			t.Errorf("%v: %+v, %v, %+v", cause, got, err, r.m)
		}
	}
	r := newRig()
	hard, stop := context.WithCancelCause(t.Context())
	job := r.job(t, hard)
	r.m.loaded = true
	stop(executor.ErrShutdown)
	if v, err := r.executor().Resume(hard, job); !errors.Is(err, executor.ErrInterrupted) {
		t.Errorf("while it is watched: %+v %v", v, err)
	}
}

// TestAKernelThatStaysLoaded: a cancel that leaves a kernel behind is not called clean.
func TestAKernelThatStaysLoaded(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.m.stuck = errors.New("busy")
	ctx, cancel := context.WithCancelCause(t.Context())
	job := r.job(t, t.Context())
	var said []string
	job.Progress = func(percent int, what string) {
		if said = append(said, fmt.Sprint(percent, " ", what)); percent == 80 {
			cancel(executor.ErrCanceled)
		}
	}
	if got, err := r.executor().Execute(ctx, job); !errors.Is(err, r.m.stuck) || r.m.enters != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if p := strings.Join(said, ", "); p != "5 fetching the kernel, 20 fetching the initramfs, 80 loading the kernel" {
		t.Errorf("progress %q", p)
	}
	for _, f := range r.m.files {
		if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s is kept in memory: %v", f.Name(), err)
		}
	}
}

func TestKilledAtEachEffect(t *testing.T) {
	t.Parallel()
	executortest.Run(t, kexec.Declaration, func(*testing.T) executortest.World {
		r := newRig()
		return executortest.World{
			Spec: r.spec, Executor: func() executor.Executor { return r.executor() },
			Effects: func() int { return r.m.enters },
			Outcome: fleetv1.CommandResult_FAILED, // its own system is back
		}
	})
}
