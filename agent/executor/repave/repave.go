// Package repave writes an image to a machine's disk. It is done when the digest read back from the disk is the one
// that was ordered. New is for simulated machines, and refuses on a machine's own running system with REPAVE_NOT_WIRED;
// NewDisk is for real machines that run the installer.
package repave

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Declaration of the action.
var Declaration = executor.Declaration{Action: "repave", Harm: executor.Destroys}

// Executor is the repave executor of simulated machines.
type Executor struct {
	host      host.Host
	simulated bool
}

var _ executor.Executor = (*Executor)(nil)

// New makes the executor for one machine. simulated is set for a simulated machine.
func New(h host.Host, simulated bool) *Executor { return &Executor{host: h, simulated: simulated} }

type intent struct {
	ImageRef string `json:"image_ref"`
	URL      string `json:"url"`
	Digest   string `json:"digest"`
	Nonce    string `json:"nonce"` // distinguishes this write from one of the same image by another command
	Before   string `json:"digest_before"`
}

// Prepare refuses what could not be verified afterwards.
func (e *Executor) Prepare(ctx context.Context, spec *fleetv1.CommandSpec) (any, *executor.Result, error) {
	before, err := e.host.DiskImage(ctx)
	if r, ok := executor.FromRefusal(err, baremetalv1.Reason_REPAVE_NOT_WIRED); ok {
		return nil, &r, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read disk: %w", err)
	}
	a := spec.GetRepave()
	digest, refused := e.digestOf(a)
	if refused != nil {
		return nil, refused, nil
	}
	return intent{
		ImageRef: a.GetImageRef(), URL: a.GetImageUrl(), Digest: digest, Nonce: spec.GetCommandId(), Before: before.Digest,
	}, nil, nil
}

// digestOf returns the digest to verify against. A simulated disk holds no bytes, so that an image without a digest
// gets one made from its name.
func (e *Executor) digestOf(a *fleetv1.RepaveAction) (string, *executor.Result) {
	hexed := strings.TrimPrefix(a.GetSha256Raw(), "sha256:")
	if b, err := hex.DecodeString(hexed); err == nil && len(b) == sha256.Size {
		return "sha256:" + strings.ToLower(hexed), nil
	}
	if hexed == "" && e.simulated && a.GetImageRef() != "" {
		sum := sha256.Sum256([]byte("simulated image " + a.GetImageRef()))
		return "sha256:" + hex.EncodeToString(sum[:]), nil
	}
	r := executor.Refused(baremetalv1.Reason_INVALID_FIELD, "image %q has no usable SHA-256", a.GetImageRef())
	return "", &r
}

// Execute writes and reads back. A cancel stops the write, and the disk then holds no image.
func (e *Executor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Result{}, err
	}
	if r, err := job.MayDestroy(ctx); r != nil || err != nil {
		return executor.Stopped(ctx, r, err)
	}
	job.Logf("writing image %s (%s)", in.ImageRef, in.Digest)
	var last host.RepaveProgress
	_, wrote := e.host.Repave(ctx, job.Effect(), host.RepaveRequest{
		ImageRef: in.ImageRef, URL: in.URL, Digest: in.Digest, Nonce: in.Nonce,
	}, func(p host.RepaveProgress) {
		last = p
		job.Progress(p.Percent, p.Stage)
	})
	if r, ok := executor.FromRefusal(wrote, baremetalv1.Reason_REPAVE_NOT_WIRED); ok {
		return r, nil
	}
	if err := executor.AfterEffect.HitCtx(ctx); err != nil {
		return executor.Result{}, err
	}
	if executor.Interrupted(ctx) {
		return executor.Result{}, executor.ErrInterrupted
	}
	// The reading back needs a context that still works after a cancel or time-out.
	got, err := e.host.DiskImage(context.WithoutCancel(ctx))
	if err != nil {
		return executor.Result{}, fmt.Errorf("read back disk: %w", errors.Join(err, wrote))
	}
	r := in.judge(got, wrote, last)
	if errors.Is(context.Cause(ctx), executor.ErrCanceled) && r.Outcome == fleetv1.CommandResult_FAILED {
		return executor.Canceled("stopped at %d%% (%s); the disk holds no image", last.Percent, last.Stage).
			WithEvidence(readBack(got)), nil
	}
	return r, nil
}

// judge compares the disk with what was ordered.
func (in intent) judge(got host.DiskImage, wrote error, last host.RepaveProgress) executor.Result {
	switch {
	case in.on(got):
		return executor.Succeeded(readBack(got))
	case errors.Is(wrote, executor.ErrTimeout):
		return executor.Failed(baremetalv1.Reason_STEP_TIMEOUT, "the time was up at %d%% (%s); the disk holds no image",
			last.Percent, last.Stage).
			AndRetry().WithEvidence(readBack(got))
	case wrote != nil:
		return executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, "write image, at %d%% (%s): %v", last.Percent, last.Stage,
			wrote).
			AndRetry().WithEvidence(readBack(got))
	}
	// The write succeeded and the disk reads back differently: something may still be writing.
	r := executor.Unknown("the disk reads back as %q, ordered was %q", got.Digest, in.Digest).WithEvidence(readBack(got))
	r.Reason = baremetalv1.Reason_EVIDENCE_MISSING
	return r
}

// Resume reads the disk. An interrupted write is never gone on with: another attempt starts from the top.
func (e *Executor) Resume(ctx context.Context, job executor.Job) (executor.Verdict, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Verdict{}, err
	}
	got, err := e.host.DiskImage(ctx)
	if err != nil {
		return executor.Verdict{}, fmt.Errorf("read disk: %w", err)
	}
	if in.on(got) {
		return executor.Settle(executor.Succeeded(readBack(got))), nil
	}
	return executor.Settle(executor.Failed(baremetalv1.Reason_EXECUTION_FAILED,
			"the agent was restarted during the write; the disk holds %q", got.Digest).AndRetry().WithEvidence(readBack(got))),
		nil
}

// on reports whether the disk holds what this very command wrote.
func (in intent) on(d host.DiskImage) bool { return d.Digest == in.Digest && d.Nonce == in.Nonce }

func readBack(d host.DiskImage) map[string]string {
	return map[string]string{evidence.ImageDigest: d.Digest, "disk": d.Disk}
}
