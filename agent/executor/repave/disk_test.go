package repave_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/executor/repave"
	"github.com/ingot-metal/ingot/agent/host/disks"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

const digest = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

var sda = disk.Device{Path: "/dev/sda", Serial: "S1", Size: 1 << 30}

// machine counts its calls and answers as scripted.
type machine struct {
	choose error
	second disk.Device
	dev    disk.Device
	write  func(ctx context.Context, w disks.WriteImage) error
	check  error

	probe    error
	firmware string

	writes, checks, probes int
	asked                  disks.WriteImage
	evidence               image.Evidence
}

func (m *machine) FirmwareKind() string { return m.firmware }

func (m *machine) ProbeImage(_ context.Context, w disks.WriteImage, _ int) error {
	m.probes++
	m.asked = w
	return m.probe
}

func (m *machine) ChooseDisk(string, []string) (disk.Device, error) { return m.dev, m.choose }

func (m *machine) ChoosePair(string, string, []string) (disk.Pair, error) {
	return disk.Pair{First: m.dev, Second: m.second}, m.choose
}

func (m *machine) WriteImage(
	ctx context.Context, _ effect.Cause, w disks.WriteImage,
) (disk.Device, image.Evidence, error) {
	m.writes++
	m.asked = w
	err := m.write(ctx, w)
	return m.dev, image.Evidence{
		Mounts:  m.evidence.Mounts,
		Digest:  [32]byte{0xaa},
		Bytes:   w.RawSize,
		Written: 12345,
		Write:   time.Second,
		Verify:  2 * time.Second,
		StateID: "p-1",
	}, err
}

func (m *machine) CheckImage(_ context.Context, w disks.WriteImage, _ image.Commit) error {
	m.asked = w
	m.checks++
	return m.check
}

// whole is a write without a fault.
func whole(ctx context.Context, w disks.WriteImage) error {
	if err := w.Begin(ctx); err != nil {
		return err
	}
	w.Progress(image.Progress{Stage: image.StageWrite, Percent: 30, Done: 1 << 20, Total: 2 << 20})
	if _, err := w.Identity(ctx); err != nil {
		return err
	}
	return w.Committing(ctx, image.Commit{Head: "h", StateID: "p-1"})
}

type rig struct {
	m        *machine
	exec     *repave.Disk
	spec     *fleetv1.CommandSpec
	identity func() (map[string][]byte, error)
	intent   json.RawMessage
	forgets  error // why no intent can be written down
	lines    []string
	progress []string
}

func newRig() *rig {
	r := &rig{m: &machine{dev: sda, write: whole}}
	r.spec = &fleetv1.CommandSpec{CommandId: "cmd-1", OperationId: "op-1",
		Action: &fleetv1.CommandSpec_Repave{Repave: &fleetv1.RepaveAction{
			ImageRef: "debian-12", Sha256Raw: digest, BlobSha256: strings.Repeat("b", 64), Format: "raw.zst", RawSize: 64 << 20,
			FileSize: 9, DiskRule: "serial=S1",
			Arch: runtime.GOARCH,
		}}}
	r.identity = func() (map[string][]byte, error) { return map[string][]byte{"x": nil}, nil }
	r.exec = repave.NewDisk(repave.DiskConfig{
		Installer: r.m, Site: "http://site:8080", Clock: soon{clock.Real()},
		Identity: func(context.Context, *fleetv1.CommandSpec) (n disks.NextSystem, err error) {
			n.Files, err = r.identity()
			return n, err
		},
	})
	return r
}

// soon does not wait.
type soon struct{ clock.Clock }

func (s soon) After(time.Duration) <-chan time.Time { return s.Clock.After(0) }

func (r *rig) prepare(t *testing.T) *executor.Result {
	t.Helper()
	intent, settled, err := r.exec.Prepare(t.Context(), r.spec)
	if err != nil {
		t.Fatal(err)
	}
	if r.intent, err = json.Marshal(intent); err != nil {
		t.Fatal(err)
	}
	return settled
}

func (r *rig) job(ctx context.Context) executor.Job {
	return executor.Job{
		Spec: r.spec, Intent: r.intent, Hard: ctx,
		Progress: func(p int, m string) { r.progress = append(r.progress, fmt.Sprint(p, " ", m)) },
		Logf:     func(f string, a ...any) { r.lines = append(r.lines, fmt.Sprintf(f, a...)) },
		UpdateIntent: func(_ context.Context, in any) (err error) {
			if r.forgets != nil {
				return r.forgets
			}
			r.intent, err = json.Marshal(in)
			return err
		},
	}
}

// TestDiskRepaveWithoutLeave: the answer right before the first byte ends the command.
func TestDiskRepaveWithoutLeave(t *testing.T) {
	t.Parallel()
	r := newRig()
	if settled := r.prepare(t); settled != nil {
		t.Fatalf("settled: %+v", settled)
	}
	r.m.write = func(ctx context.Context, w disks.WriteImage) error {
		if err := w.Begin(ctx); err != nil {
			return err
		}
		t.Error("written without leave")
		return whole(ctx, w)
	}
	refusal := executor.Failed(baremetalv1.Reason_GRANT_REFUSED, "BUDGET_REQUIRED")
	for name, c := range map[string]struct {
		said *executor.Result
		err  error
		want baremetalv1.Reason
	}{
		"refused":  {said: &refusal, want: baremetalv1.Reason_GRANT_REFUSED},
		"canceled": {err: executor.ErrCanceled, want: baremetalv1.Reason_CANCELED_BY_REQUEST},
		"too late": {err: executor.ErrTimeout, want: baremetalv1.Reason_STEP_TIMEOUT},
	} {
		job := r.job(t.Context())
		job.Leave = func(context.Context) (*executor.Result, error) { return c.said, c.err }
		if got, err := r.exec.Execute(t.Context(), job); err != nil || got.Reason != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	stopping, stop := context.WithCancelCause(t.Context())
	stop(executor.ErrShutdown)
	job := r.job(stopping)
	job.Leave = func(context.Context) (*executor.Result, error) { return nil, executor.ErrShutdown }
	if got, err := r.exec.Execute(stopping, job); !errors.Is(err, executor.ErrInterrupted) {
		t.Errorf("at shutdown: %+v, %v", got, err)
	}
}

func TestDiskRepaveSucceeds(t *testing.T) {
	t.Parallel()
	r := newRig()
	if settled := r.prepare(t); settled != nil {
		t.Fatalf("settled: %+v", settled)
	}
	got, err := r.exec.Execute(t.Context(), r.job(t.Context()))
	if err != nil || got.Outcome != fleetv1.CommandResult_SUCCEEDED {
		t.Fatalf("%+v, %v", got, err)
	}
	for key, want := range map[string]string{
		evidence.ImageDigest: "sha256:aa" + strings.Repeat("00", 31), "disk": "S1", "disk_path": "/dev/sda",
		"bytes":           "67108864",
		"state_partition": "p-1", "write_bytes_per_second": "67108864", "verify_bytes_per_second": "33554432",
		"verify_seconds": "2.00",
	} {
		if got.Evidence[key] != want {
			t.Errorf("evidence %s is %q, want %q", key, got.Evidence[key], want)
		}
	}
	if r.m.asked.URL != "http://site:8080/blob/"+strings.Repeat("b", 64) || r.m.asked.Disk.ID != "S1" ||
		r.m.asked.Digest != "sha256:"+digest {
		t.Errorf("asked for %+v", r.m.asked)
	}
	if !strings.Contains(string(r.intent), `"commit"`) || len(r.progress) != 1 || r.progress[0] != "30 write 1/2 MiB" {
		t.Errorf("intent %s, progress %q", r.intent, r.progress)
	}
}

func TestDiskRepavePrepareRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(r *rig, a *fleetv1.RepaveAction)
		want   baremetalv1.Reason
	}{
		"no digest":     {func(_ *rig, a *fleetv1.RepaveAction) { a.Sha256Raw = "" }, baremetalv1.Reason_INVALID_FIELD},
		"no size":       {func(_ *rig, a *fleetv1.RepaveAction) { a.RawSize = 0 }, baremetalv1.Reason_INVALID_FIELD},
		"negative size": {func(_ *rig, a *fleetv1.RepaveAction) { a.FileSize = -1 }, baremetalv1.Reason_INVALID_FIELD},
		"no blob":       {func(_ *rig, a *fleetv1.RepaveAction) { a.BlobSha256 = "../x" }, baremetalv1.Reason_INVALID_FIELD},
		"another architecture": {func(_ *rig, a *fleetv1.RepaveAction) { a.Arch = "not-" + runtime.GOARCH },
			baremetalv1.Reason_IMAGE_UNSUPPORTED},
		"another firmware": {func(r *rig, a *fleetv1.RepaveAction) { r.m.firmware, a.Firmware = "bios", []string{"uefi"} },
			baremetalv1.Reason_IMAGE_UNSUPPORTED},
		"no unique disk": {func(r *rig, _ *fleetv1.RepaveAction) { r.m.choose = &disk.NoUniqueMatch{} },
			baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH},
		"disk too small": {func(r *rig, _ *fleetv1.RepaveAction) { r.m.dev.Size = 127 << 20 },
			baremetalv1.Reason_IMAGE_TOO_LARGE},
		"below minimum": {func(_ *rig, a *fleetv1.RepaveAction) { a.MinimumDisk = 2 << 30 },
			baremetalv1.Reason_IMAGE_TOO_LARGE},
		"bad rule": {func(r *rig, _ *fleetv1.RepaveAction) { r.m.choose = &effect.Refusal{Kind: effect.ErrInvalid} },
			baremetalv1.Reason_INVALID_FIELD},
		"not an installer": {func(r *rig, _ *fleetv1.RepaveAction) {
			r.m.choose = &effect.Refusal{Kind: effect.ErrUnsupported}
		},
			baremetalv1.Reason_CAPABILITY_MISSING},
	} {
		r := newRig()
		c.change(r, r.spec.GetRepave())
		got := r.prepare(t)
		if got == nil || got.Reason != c.want || got.Outcome != fleetv1.CommandResult_FAILED || got.Retryable ||
			r.m.writes != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestDiskRepaveFailures(t *testing.T) {
	t.Parallel()
	fails := func(err error) func(context.Context, disks.WriteImage) error {
		return func(context.Context, disks.WriteImage) error { return err }
	}
	for name, c := range map[string]struct {
		write     func(context.Context, disks.WriteImage) error
		identity  error
		outcome   fleetv1.CommandResult_Outcome
		reason    baremetalv1.Reason
		retryable bool
	}{
		"digest": {fails(&image.Error{Reason: baremetalv1.Reason_IMAGE_DIGEST_MISMATCH}), nil, fleetv1.CommandResult_FAILED,
			baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, false},
		"disk": {fails(&image.Error{Reason: baremetalv1.Reason_DISK_WRITE_ERROR, Retryable: true}), nil,
			fleetv1.CommandResult_FAILED,
			baremetalv1.Reason_DISK_WRITE_ERROR, true},
		"canceled": {fails(executor.ErrCanceled), nil, fleetv1.CommandResult_CANCELED, baremetalv1.Reason_CANCELED_BY_REQUEST,
			false},
		"time-out": {fails(executor.ErrTimeout), nil, fleetv1.CommandResult_FAILED, baremetalv1.Reason_STEP_TIMEOUT, true},
		"second disk": {fails(&disk.NoUniqueMatch{}), nil, fleetv1.CommandResult_FAILED,
			baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH, false},
		"other disk": {fails(disks.ErrNotWritten), nil, fleetv1.CommandResult_FAILED, baremetalv1.Reason_EXECUTION_FAILED,
			true},
		"identity refused": {whole, failure.Denied("GRANT_REFUSED", "not granted"), fleetv1.CommandResult_FAILED,
			baremetalv1.Reason_EXECUTION_FAILED, true},
	} {
		r := newRig()
		if c.write != nil {
			r.m.write = c.write
		}
		r.identity = func() (map[string][]byte, error) { return nil, c.identity }
		r.prepare(t)
		got, err := r.exec.Execute(t.Context(), r.job(t.Context()))
		if err != nil || got.Outcome != c.outcome || got.Reason != c.reason || got.Retryable != c.retryable {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestDiskRepaveWaitsForTheController(t *testing.T) {
	t.Parallel()
	r := newRig()
	calls := 0
	r.identity = func() (map[string][]byte, error) {
		if calls++; calls < 5 {
			return nil, failure.Unavailable("CONTROLLER_DRAINING", "later")
		}
		return map[string][]byte{}, nil
	}
	r.prepare(t)
	got, err := r.exec.Execute(t.Context(), r.job(t.Context()))
	if err != nil || got.Outcome != fleetv1.CommandResult_SUCCEEDED || calls != 5 || r.m.writes != 1 {
		t.Errorf("%+v, %v after %d calls and %d writes", got, err, calls, r.m.writes)
	}
}

func TestDiskRepaveStoppedAgentLeavesItToResume(t *testing.T) {
	t.Parallel()
	r := newRig()
	ctx, cancel := context.WithCancelCause(t.Context())
	r.m.write = func(ctx context.Context, _ disks.WriteImage) error {
		cancel(executor.ErrShutdown)
		return context.Cause(ctx)
	}
	r.prepare(t)
	if _, err := r.exec.Execute(ctx, r.job(ctx)); !errors.Is(err, executor.ErrInterrupted) {
		t.Fatalf("%v", err)
	}
	v, err := r.exec.Resume(t.Context(), r.job(t.Context()))
	if err != nil || v.Settled == nil || v.Settled.Outcome != fleetv1.CommandResult_FAILED || !v.Settled.Retryable ||
		r.m.checks != 0 {
		t.Errorf("before the commit: %+v, %v", v.Settled, err)
	}
}

func TestDiskRepaveResumesACommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		check   error
		outcome fleetv1.CommandResult_Outcome
	}{
		"all there":      {nil, fleetv1.CommandResult_SUCCEEDED},
		"not all there":  {fmt.Errorf("%w: in its first MiB", image.ErrAnother), fleetv1.CommandResult_FAILED},
		"cannot be read": {errors.New("input/output error"), fleetv1.CommandResult_OUTCOME_UNSPECIFIED},
	} {
		r := newRig()
		r.prepare(t)
		if _, err := r.exec.Execute(t.Context(), r.job(t.Context())); err != nil {
			t.Fatal(err)
		}
		r.m.check = c.check
		v, err := r.exec.Resume(t.Context(), r.job(t.Context()))
		if c.outcome == fleetv1.CommandResult_OUTCOME_UNSPECIFIED {
			if err == nil {
				t.Errorf("%s: %+v", name, v)
			}
			continue
		}
		if err != nil || v.Settled == nil || v.Settled.Outcome != c.outcome || v.Settled.Retryable != (c.check != nil) {
			t.Errorf("%s: %+v, %v", name, v.Settled, err)
		}
		if c.check == nil && v.Settled.Evidence[evidence.ImageDigest] != "sha256:"+digest {
			t.Errorf("%s: evidence %v", name, v.Settled.Evidence)
		}
		// One command writes at most once.
		if _, err := r.exec.Execute(t.Context(), r.job(t.Context())); err == nil || r.m.writes != 1 {
			t.Errorf("%s: written %d times (%v)", name, r.m.writes, err)
		}
	}
}

func TestKilledAtEachEffectOfADisk(t *testing.T) {
	t.Parallel()
	executortest.Run(t, repave.Declaration, func(*testing.T) executortest.World {
		r := newRig()
		return executortest.World{
			Spec: r.spec, Executor: func() executor.Executor { return r.exec }, Effects: func() int { return r.m.writes },
		}
	})
}
