package kexec_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/command"
	"github.com/ingot-metal/ingot/agent/command/kexec"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/internal/clock"
)

func sum(s string) string {
	b := sha256.Sum256([]byte(s))
	return hex.EncodeToString(b[:])
}

// machine is one that enters another kernel when it is told to.
type machine struct {
	support, load, enter error
	// stays: entering is accepted and nothing comes of it.
	stays bool

	boot                    string
	kernel, initrd, cmdline string
	loaded                  bool
	loads, enters, unloads  int
}

func (m *machine) KexecSupport() error { return m.support }

func (m *machine) Identity(context.Context) (host.Identity, error) {
	return host.Identity{BootID: m.boot}, nil
}

func (m *machine) LoadKernel(_ host.Effect, kernel, initrd *os.File, cmdline string) error {
	m.loads++
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
	return nil
}

func (m *machine) KernelLoaded() (bool, error) { return m.loaded, nil }

func (m *machine) EnterKernel(context.Context, host.Effect) error {
	m.enters++
	if m.enter == nil && !m.stays {
		m.boot = "boot-2"
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

func (r *rig) executor() *kexec.Executor {
	return kexec.New(kexec.Config{
		Machine: r.m, Clock: clock.Real(), Settle: 50 * time.Millisecond, Poll: time.Millisecond,
		Fetch: func(_ context.Context, digest string, w io.Writer) error {
			if r.fetch != nil {
				return r.fetch
			}
			_, err := io.WriteString(w, r.blobs[digest])
			return err
		},
	})
}

func (r *rig) job(t *testing.T, hard context.Context) command.Job {
	t.Helper()
	intent, settled, err := r.executor().Prepare(t.Context(), r.spec)
	if err != nil || settled != nil {
		t.Fatalf("%+v, %v", settled, err)
	}
	b, err := json.Marshal(intent)
	if err != nil {
		t.Fatal(err)
	}
	return command.Job{Spec: r.spec, Intent: b, Hard: hard, Progress: func(int, string) {}, Logf: func(string, ...any) {}}
}

// TestKexecThatComesBackInItsOwnSystemIsNoSuccess: whoever executes a kexec lives in the system that it leaves, so that
// another boot id says that this system is back.
func TestKexecThatComesBackInItsOwnSystemIsNoSuccess(t *testing.T) {
	t.Parallel()
	r := newRig()
	got, err := r.executor().Execute(t.Context(), r.job(t, t.Context()))
	if err != nil || got.Reason != baremetalv1.Reason_WRONG_SYSTEM_BOOTED || !got.Retryable || got.Evidence["boot_id_before"] != "boot-1" || got.Evidence["boot_id_after"] != "boot-2" {
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
		"substituted kernel": {func(r *rig) { r.blobs[sum("kernel")] = "evil" }, baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, false},
		"empty initramfs":    {func(r *rig) { delete(r.blobs, sum("initrd")) }, baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, false},
		"no controller":      {func(r *rig) { r.fetch = errors.New("gone") }, baremetalv1.Reason_IMAGE_UNAVAILABLE, true},
		"bad kernel":         {func(r *rig) { r.m.load = errors.New("exec format error") }, baremetalv1.Reason_EXECUTION_FAILED, false},
		"locked down since":  {func(r *rig) { r.m.load = &host.Refusal{Kind: host.ErrUnsupported} }, baremetalv1.Reason_CAPABILITY_MISSING, false},
	} {
		r := newRig()
		job := r.job(t, t.Context())
		c.change(r)
		got, err := r.executor().Execute(t.Context(), job)
		if err != nil || got.Outcome != fleetv1.CommandResult_FAILED || got.Reason != c.reason || got.Retryable != c.retryable || r.m.enters != 0 {
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
		"unsupported": {func(r *rig) { r.m.support = &host.Refusal{Kind: host.ErrUnsupported} }, baremetalv1.Reason_CAPABILITY_MISSING},
		"no digest":   {func(r *rig) { r.spec.GetInstaller().InitrdSha256 = "x" }, baremetalv1.Reason_INVALID_FIELD},
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
			cancel(command.ErrCanceled)
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
	if err != nil || got.Outcome != fleetv1.CommandResult_UNKNOWN || !strings.Contains(got.Message, "systemd does not answer") {
		t.Errorf("entering failed: %+v, %v", got, err)
	}
	r = newRig()
	r.m.stays = true
	hard, cancel := context.WithCancelCause(t.Context())
	job := r.job(t, hard)
	cancel(command.ErrTimeout)
	got, err = r.executor().Execute(t.Context(), job)
	if err != nil || got.Outcome != fleetv1.CommandResult_UNKNOWN {
		t.Errorf("time is up: %+v, %v", got, err)
	}
	hard, cancel = context.WithCancelCause(t.Context())
	job = r.job(t, hard)
	cancel(command.ErrShutdown)
	if _, err = r.executor().Execute(t.Context(), job); !errors.Is(err, command.ErrInterrupted) {
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
