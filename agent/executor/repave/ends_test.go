package repave_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/repave"
	"github.com/ingot-metal/ingot/agent/host/disks"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

var errBroken = errors.New("input/output error")

// TestWhatAnOrderMayLeaveOpen: an image has a URL or is a blob of the site; its file's size and its disk's need not be
// known.
func TestWhatAnOrderMayLeaveOpen(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(a *fleetv1.RepaveAction)
		url    string
	}{
		"a URL and no blob": {func(a *fleetv1.RepaveAction) { a.ImageUrl, a.BlobSha256 = "http://elsewhere/image", "" },
			"http://elsewhere/image"},
		"no size of a file": {func(a *fleetv1.RepaveAction) { a.FileSize = 0 }, "http://site:8080/blob/" +
			strings.Repeat("b", 64)},
		"a single byte": {func(a *fleetv1.RepaveAction) { a.RawSize = 1 }, "http://site:8080/blob/" +
			strings.Repeat("b", 64)},
	} {
		r := newRig()
		c.change(r.spec.GetRepave())
		if settled := r.prepare(t); settled != nil {
			t.Errorf("%s: %+v", name, settled)
			continue
		}
		got, err := r.exec.Execute(t.Context(), r.job(t.Context()))
		if err != nil || got.Outcome != fleetv1.CommandResult_SUCCEEDED || r.m.asked.URL != c.url {
			t.Errorf("%s: %+v, %v from %s", name, got, err, r.m.asked.URL)
		}
	}
}

// TestDisksThatCannotBeRead: nothing is said of a machine whose disks cannot be listed, and another attempt may help.
func TestDisksThatCannotBeRead(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.m.choose = errBroken
	if intent, settled, err := r.exec.Prepare(t.Context(), r.spec); !errors.Is(err, errBroken) {
		t.Errorf("prepared %v, %+v, %v", intent, settled, err)
	}
	job := r.job(t.Context())
	job.Spec = &fleetv1.CommandSpec{Action: &fleetv1.CommandSpec_Preflight{Preflight: r.spec.GetRepave()}}
	got, err := repave.NewPreflight(repave.DiskConfig{Installer: r.m}).Execute(t.Context(), job)
	if err != nil || got.Reason != baremetalv1.Reason_EXECUTION_FAILED || !got.Retryable || r.m.probes != 0 {
		t.Errorf("preflight: %+v, %v after %d probes", got, err, r.m.probes)
	}
	r.spec.GetRepave().MinimumDisk = -1
	if settled := r.prepare(t); settled == nil || settled.Reason != baremetalv1.Reason_INVALID_FIELD {
		t.Errorf("a negative disk: %+v", settled)
	}
}

// TestAStoppedAgentLeavesAPreflightToTheNextLife, which begins it again.
func TestAStoppedAgentLeavesAPreflightToTheNextLife(t *testing.T) {
	t.Parallel()
	r := newRig()
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(executor.ErrShutdown)
	r.m.probe = context.Canceled
	job := r.job(ctx)
	job.Spec = &fleetv1.CommandSpec{Action: &fleetv1.CommandSpec_Preflight{Preflight: r.spec.GetRepave()}}
	exec := repave.NewPreflight(repave.DiskConfig{Installer: r.m})
	if got, err := exec.Execute(ctx, job); !errors.Is(err, executor.ErrInterrupted) {
		t.Errorf("%+v, %v", got, err)
	}
	if v, err := exec.Resume(t.Context(), job); err != nil || !v.GoOn {
		t.Errorf("resumed with %+v, %v", v, err)
	}
}

// TestADamagedIntentEndsNothing: what was to be written cannot be known, and no disk is touched.
func TestADamagedIntentEndsNothing(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.intent = json.RawMessage(`{"disk":`)
	if got, err := r.exec.Execute(t.Context(), r.job(t.Context())); err == nil || r.m.writes != 0 {
		t.Errorf("executed: %+v after %d writes", got, r.m.writes)
	}
	if v, err := r.exec.Resume(t.Context(), r.job(t.Context())); err == nil || r.m.checks != 0 {
		t.Errorf("resumed: %+v after %d checks", v.Settled, r.m.checks)
	}
	s := newSimRig(t, sim.Config{})
	job := s.job(t.Context())
	job.Intent = r.intent
	if got, err := s.exec.Execute(t.Context(), job); err == nil || s.host.writes != 0 {
		t.Errorf("executed: %+v after %d writes", got, s.host.writes)
	}
	if v, err := s.exec.Resume(t.Context(), job); err == nil {
		t.Errorf("resumed: %+v", v.Settled)
	}
}

// TestACommitIsWrittenDownBeforeTheDiskBoots: where that fails, the write is over.
func TestACommitIsWrittenDownBeforeTheDiskBoots(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.prepare(t)
	r.forgets = errBroken
	got, err := r.exec.Execute(t.Context(), r.job(t.Context()))
	if err != nil || got.Outcome != fleetv1.CommandResult_FAILED || !strings.Contains(got.Message, "input/output") {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestWhatAFailedWriteShows: the disk, and how much was written before.
func TestWhatAFailedWriteShows(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.prepare(t)
	r.m.write = func(_ context.Context, w disks.WriteImage) error {
		for _, stage := range []string{image.StageWrite, image.StageWrite, image.StageVerify} {
			w.Progress(image.Progress{Stage: stage})
		}
		return &image.Error{Reason: baremetalv1.Reason_DISK_WRITE_ERROR}
	}
	got, err := r.exec.Execute(t.Context(), r.job(t.Context()))
	if want := map[string]string{
		"disk":          "S1",
		"disk_path":     "/dev/sda",
		"written_bytes": "12345",
	}; err != nil ||
		!maps.Equal(got.Evidence, want) {
		t.Errorf("%+v, %v", got, err)
	}
	stages := slices.DeleteFunc(slices.Clone(r.lines), func(l string) bool { return !strings.HasPrefix(l, "stage: ") })
	if want := []string{"stage: " + image.StageWrite, "stage: " + image.StageVerify}; !slices.Equal(stages, want) {
		t.Errorf("log %q, want %q", stages, want)
	}
}

// TestAResumedCommitShowsTheSameDisk as the write would have.
func TestAResumedCommitShowsTheSameDisk(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.prepare(t)
	if _, err := r.exec.Execute(t.Context(), r.job(t.Context())); err != nil {
		t.Fatal(err)
	}
	v, err := r.exec.Resume(t.Context(), r.job(t.Context()))
	want := map[string]string{
		evidence.ImageDigest: "sha256:" + digest, "disk": "S1", "disk_path": "/dev/sda", "bytes": "67108864",
		"state_partition": "p-1",
		"verified":        "after a restart of the agent",
	}
	if err != nil || v.Settled == nil || !maps.Equal(v.Settled.Evidence, want) {
		t.Errorf("%+v, %v", v.Settled, err)
	}
}

// endless is a clock on which a wait calls began and never ends.
type endless struct {
	clock.Clock
	began func()
}

func (e endless) After(time.Duration) <-chan time.Time {
	e.began()
	return nil
}

// TestTheWaitForAnIdentity: its files are those of the new system, and an error without a reason is tried again. A
// cancel ends the wait whatever the controller's last answer was.
func TestTheWaitForAnIdentity(t *testing.T) {
	t.Parallel()
	r := newRig()
	r.prepare(t)
	calls := 0
	r.identity = func() (map[string][]byte, error) {
		if calls++; calls == 1 {
			return nil, errBroken
		}
		return map[string][]byte{"agent.key": []byte("k")}, nil
	}
	r.m.write = func(ctx context.Context, w disks.WriteImage) error {
		next, err := w.Identity(ctx)
		if err != nil || string(next.Files["agent.key"]) != "k" {
			t.Errorf("identity %q, %v", next.Files, err)
		}
		return err
	}
	if got, err := r.exec.Execute(t.Context(), r.job(t.Context())); err != nil ||
		got.Outcome != fleetv1.CommandResult_SUCCEEDED || calls != 2 {
		t.Errorf("%+v, %v after %d calls", got, err, calls)
	}
	for name, says := range map[string]error{"during a call": failure.Denied("GRANT_REFUSED", "no"),
		"between two": errBroken} {
		r := newRig()
		r.prepare(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		stop, calls := func() { cancel(executor.ErrCanceled) }, 0
		r.identity = func() (map[string][]byte, error) {
			calls++
			if !errors.Is(says, errBroken) {
				stop()
			}
			return nil, says
		}
		r.exec = repave.NewDisk(repave.DiskConfig{
			Installer: r.m, Clock: endless{clock.Real(), stop},
			Identity: func(context.Context, *fleetv1.CommandSpec) (n disks.NextSystem, err error) {
				n.Files, err = r.identity()
				return n, err
			},
		})
		got, err := r.exec.Execute(ctx, r.job(ctx))
		if err != nil || got.Outcome != fleetv1.CommandResult_CANCELED || calls != 1 {
			t.Errorf("%s: %+v, %v after %d calls", name, got, err, calls)
		}
	}
}
