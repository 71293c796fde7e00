package repave

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host/disks"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/disk"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Installer is a machine whose disks can be overwritten; *host.Linux is one.
type Installer interface {
	ChooseDisk(rule string, protected []string) (disk.Device, error)
	WriteImage(ctx context.Context, e effect.Cause, w disks.WriteImage) (disk.Device, image.Evidence, error)
	// ChoosePair is ChooseDisk for a mirror.
	ChoosePair(rule, mirror string, protected []string) (disk.Pair, error)
	CheckImage(ctx context.Context, w disks.WriteImage, c image.Commit) error
	// ProbeImage reads the image's beginning, for a disk with sectors of so many bytes, and writes nothing.
	ProbeImage(ctx context.Context, w disks.WriteImage, sector int) error
	// FirmwareKind is "bios" or "uefi", or "" where that cannot be known.
	FirmwareKind() string
}

// DiskConfig is what the executor for real disks needs. All fields are required.
type DiskConfig struct {
	Installer Installer
	// Site is the base URL of the boot server, without a slash at its end: images come from below it.
	Site string
	// Identity returns the files that the next system needs. It may be called again for the same command.
	Identity func(ctx context.Context, spec *fleetv1.CommandSpec) (disks.NextSystem, error)
	Clock    clock.Clock
}

// Disk writes images to real disks. It is done when the bytes read back from the disk have the ordered digest. The
// first MiB, which makes them bootable, must read back as written.
type Disk struct{ cfg DiskConfig }

var _ executor.Executor = (*Disk)(nil)

// NewDisk makes the executor for the machine that it runs on.
func NewDisk(cfg DiskConfig) *Disk { return &Disk{cfg: cfg} }

// diskIntent. Commit is there as soon as the disk may be bootable.
type diskIntent struct {
	ImageRef string   `json:"image_ref"`
	Digest   string   `json:"digest"`
	RawSize  int64    `json:"raw_size"`
	Disk     string   `json:"disk"`
	Seqs     []uint64 `json:"seqs,omitempty"` // see disk.Ref
	Path     string   `json:"path"`
	// Mirror is the second disk; nil: there is none.
	Mirror *mirrorIntent `json:"mirror,omitempty"`
	Commit *image.Commit `json:"commit,omitempty"`
}

type mirrorIntent struct {
	disk.Ref
	Path string `json:"path"`
}

// written is what the disk or disks were chosen for.
func (in diskIntent) written() disks.WriteImage {
	w := disks.WriteImage{Disk: disk.Ref{ID: in.Disk, Seqs: in.Seqs}, RawSize: in.RawSize, Digest: in.Digest}
	if in.Mirror != nil {
		w.Mirror = in.Mirror.Ref
	}
	return w
}

// names the disk, or both of a mirror, for people.
func (in diskIntent) names() string {
	if in.Mirror == nil {
		return fmt.Sprintf("%s, disk %s", in.Path, in.Disk)
	}
	return fmt.Sprintf("%s and %s, a mirror of the disks %s and %s", in.Path, in.Mirror.Path, in.Disk, in.Mirror.ID)
}

// held is what the disks are called in a sentence that begins with "disk".
func (in diskIntent) held() string {
	if in.Mirror == nil {
		return in.Disk
	}
	return in.Disk + " and its mirror " + in.Mirror.ID
}

// about adds the disks of the image to the evidence.
func (in diskIntent) about(e map[string]string) map[string]string {
	e["disk"], e["disk_path"] = in.Disk, in.Path
	if in.Mirror != nil {
		e[evidence.MirrorDisk], e["mirror_path"] = in.Mirror.ID, in.Mirror.Path
	}
	return e
}

// Prepare chooses the disk and refuses what could not be written or verified. It writes nothing.
func (d *Disk) Prepare(_ context.Context, spec *fleetv1.CommandSpec) (any, *executor.Result, error) {
	a := spec.GetRepave()
	to, refused, err := fitting(d.cfg.Installer, a)
	if refused != nil || err != nil {
		return nil, refused, err
	}
	in := diskIntent{
		ImageRef: a.GetImageRef(), Digest: "sha256:" + hexOf(a.GetSha256Raw()), RawSize: a.GetRawSize(),
		Disk: to.First.ID(), Seqs: to.First.Seqs, Path: to.First.Path,
	}
	if to.Second.Path != "" {
		in.Mirror = &mirrorIntent{to.Second.Ref(), to.Second.Path}
	}
	return in, nil, nil
}

func hexOf(digest string) string { return strings.ToLower(strings.TrimPrefix(digest, "sha256:")) }

// problemOf returns the error that makes an order impossible, or "".
func problemOf(a *fleetv1.RepaveAction) string {
	switch _, err := disks.ParseDigest(a.GetSha256Raw()); {
	case err != nil:
		return fmt.Sprintf("image %q: raw digest: %v", a.GetImageRef(), err)
	case a.GetRawSize() <= 0:
		return fmt.Sprintf("image %q has no size", a.GetImageRef())
	case a.GetFileSize() < 0 || a.GetMinimumDisk() < 0:
		return fmt.Sprintf("image %q has a negative size", a.GetImageRef())
	}
	if _, err := disks.ParseDigest(a.GetBlobSha256()); err != nil && a.GetImageUrl() == "" {
		return fmt.Sprintf("image %q has no URL, and as a blob: %v", a.GetImageRef(), err)
	}
	return ""
}

// chosen turns the errors of choosing a disk that trying again does not help against into results.
func chosen(err error) *executor.Result {
	var no *disk.NoUniqueMatch
	if errors.As(err, &no) {
		r := executor.Failed(baremetalv1.Reason_DISK_RULE_NO_UNIQUE_MATCH, "%v", no)
		return &r
	}
	if r, ok := executor.FromRefusal(err, baremetalv1.Reason_CAPABILITY_MISSING); ok {
		return &r
	}
	return nil
}

// fitting returns the disk that the order means, and the second one of a mirror. It refuses when the machine cannot
// start the image or has no room for it.
func fitting(m Installer, a *fleetv1.RepaveAction) (to disk.Pair, refused *executor.Result, err error) {
	if problem := problemOf(a); problem != "" {
		r := executor.Failed(baremetalv1.Reason_INVALID_FIELD, "%s", problem)
		return to, &r, nil
	}
	im := disk.Image{
		Ref: a.GetImageRef(), Arch: a.GetArch(), Firmware: a.GetFirmware(), RawSize: a.GetRawSize(),
		MinimumDisk: a.GetMinimumDisk(),
	}
	if r := misfit(im.StartsOn(runtime.GOARCH, m.FirmwareKind())); r != nil {
		return to, r, nil
	}
	if a.GetMirrorRule() == "" {
		to.First, err = m.ChooseDisk(a.GetDiskRule(), a.GetProtectedDisks())
	} else {
		to, err = m.ChoosePair(a.GetDiskRule(), a.GetMirrorRule(), a.GetProtectedDisks())
	}
	if r := chosen(err); r != nil {
		return to, r, nil
	}
	if err != nil {
		return to, nil, fmt.Errorf("choose disk: %w", err)
	}
	if a.GetMirrorRule() == "" {
		return to, misfit(im.FitsOn(to.First)), nil
	}
	return to, misfit(im.FitsOnPair(to)), nil
}

func misfit(why *disk.Misfit) *executor.Result {
	if why == nil {
		return nil
	}
	r := executor.Failed(why.Reason, "%s", why.Message)
	return &r
}

var errStopped = errors.New("no grant to write")

// Execute writes and reads back. A cancel stops it at the next 4 MiB, and the disk then holds nothing that boots.
func (d *Disk) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	var in diskIntent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Result{}, err
	}
	if in.Commit != nil {
		return executor.Result{}, errors.New("this command has written the disk before") // Resume never executes again
	}
	a := job.Spec.GetRepave()
	job.Logf("writing image %s (%s) to %s", in.ImageRef, in.Digest, in.names())
	var stop func() (executor.Result, error)
	chosen := in.written()
	_, got, err := d.cfg.Installer.WriteImage(ctx, job.Effect(), disks.WriteImage{
		DiskRule: a.GetDiskRule(), Protected: a.GetProtectedDisks(), Disk: chosen.Disk,
		MirrorRule: a.GetMirrorRule(), Mirror: chosen.Mirror, Data: a.GetDataDisks(),
		URL: d.cfg.url(a), FileSize: a.GetFileSize(), Format: image.Format(a.GetFormat()),
		RawSize: in.RawSize, Digest: in.Digest, MinimumDisk: a.GetMinimumDisk(),
		Agentless: a.GetAgentless(),
		Begin: func(ctx context.Context) error {
			r, err := job.MayDestroy(ctx)
			if r == nil && err == nil {
				return nil
			}
			end, err := executor.Stopped(ctx, r, err)
			stop = func() (executor.Result, error) { return end, err }
			return errStopped
		},
		Identity: func(ctx context.Context) (disks.NextSystem, error) { return d.identity(ctx, job) },
		Committing: func(ctx context.Context, c image.Commit) error {
			in.Commit = &c
			return job.UpdateIntent(ctx, in)
		},
		Progress: progress(job),
	})
	if hit := executor.AfterEffect.HitCtx(ctx); hit != nil {
		return executor.Result{}, hit
	}
	switch {
	case stop != nil:
		return stop()
	case err != nil:
		return concluded(ctx, job, in, got, err)
	}
	job.Logf("wrote %s: %s", in.names(), summary(got))
	for _, c := range got.Changes {
		job.Logf("added %s, mode %s, %d bytes, sha256:%s", c.Path, c.Mode, c.Size, c.SHA256)
	}
	for _, m := range got.Mounts {
		job.Logf("data disk %s for %s: %s", m.Disk, m.Path, map[bool]string{true: "made", false: "kept as it is"}[m.Made])
	}
	for _, w := range got.Warnings {
		job.Logf("warning: %s", w)
	}
	return executor.Succeeded(withChanges(diskEvidence(in, got), got.System, got.Changes, got.Mounts)), nil
}

// withChanges adds to the evidence what was added to the image, and the data disks.
func withChanges(
	e map[string]string, system string, changes []firstboot.Change, mounts []firstboot.Mount,
) map[string]string {
	if len(mounts) > 0 {
		list, _ := json.Marshal(mounts) // strings and truth values always encode
		e[evidence.DataDisks] = string(list)
	}
	if system == "" {
		return e
	}
	list, _ := json.Marshal(changes) // strings and numbers always encode
	e[evidence.AddedTo], e[evidence.AddedFiles] = system, string(list)
	return e
}

// url is where the image is. A site serves images by the digest of their files.
func (c DiskConfig) url(a *fleetv1.RepaveAction) string {
	if a.GetImageUrl() != "" {
		return a.GetImageUrl()
	}
	return c.Site + "/blob/" + hexOf(a.GetBlobSha256())
}

// progress passes each step on, and writes a line into the log when a stage begins.
func progress(job executor.Job) func(image.Progress) {
	stage := ""
	return func(p image.Progress) {
		if p.Stage != stage {
			stage = p.Stage
			job.Logf("stage: %s", stage)
		}
		job.Progress(p.Percent, p.String())
	}
}

// identityRetry is how long to wait before the controller is asked again. The image is on the disk and verified by
// then, so that it is worth waiting for as long as the command may take.
const identityRetry = 2 * time.Second

func (d *Disk) identity(ctx context.Context, job executor.Job) (disks.NextSystem, error) {
	for {
		next, err := d.cfg.Identity(ctx, job.Spec)
		if err == nil {
			return next, nil
		}
		if ctx.Err() != nil {
			return next, context.Cause(ctx)
		}
		if f := failure.From(err); !f.Retryable && f.Kind != failure.KindInternal {
			return next, fmt.Errorf("get the new system's identity: %w", err)
		}
		job.Logf("no identity for the new system yet: %v", err)
		select {
		case <-ctx.Done():
			return next, context.Cause(ctx)
		case <-d.cfg.Clock.After(identityRetry):
		}
	}
}

// concluded turns an error into a result, with the disk's state as far as that is known.
func concluded(
	ctx context.Context, job executor.Job, in diskIntent, got image.Evidence, err error,
) (executor.Result, error) {
	if r := chosen(err); r != nil {
		return *r, nil
	}
	job.Logf("not written: %v", err)
	holds := fmt.Sprintf("disk %s %s", in.held(), got.Left)
	var e *image.Error
	switch {
	case errors.As(err, &e):
		r := executor.Failed(e.Reason, "%v; %s", e, holds)
		r.Retryable = e.Retryable
		return r.WithEvidence(in.about(map[string]string{"written_bytes": strconv.FormatInt(got.Written, 10)})), nil
	case errors.Is(err, executor.ErrCanceled):
		return executor.Canceled("stopped; %s", holds), nil
	case errors.Is(err, executor.ErrTimeout):
		return executor.Failed(baremetalv1.Reason_STEP_TIMEOUT, "the time was up; %s", holds).AndRetry(), nil
	case executor.Interrupted(ctx):
		return executor.Result{}, executor.ErrInterrupted
	}
	return executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, "%v; %s", err, holds).AndRetry(), nil
}

// Resume reads the disk after a restart of the agent in the same boot. What was not committed cannot boot; what was is
// read back in full. An interrupted write is never gone on with.
func (d *Disk) Resume(ctx context.Context, job executor.Job) (executor.Verdict, error) {
	var in diskIntent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Verdict{}, err
	}
	if in.Commit == nil {
		return executor.Settle(
			interrupted("the agent was restarted before the image was whole; what the disk holds was not looked at")), nil
	}
	job.Logf("reading back the image on %s", in.names())
	err := d.cfg.Installer.CheckImage(ctx, in.written(), *in.Commit)
	switch {
	case err == nil:
		return executor.Settle(executor.Succeeded(withChanges(in.about(map[string]string{
			evidence.ImageDigest: in.Digest, "bytes": strconv.FormatInt(in.RawSize, 10),
			"state_partition": in.Commit.StateID, "verified": verified(in.Commit),
		}), in.Commit.System, in.Commit.Changes, in.Commit.Mounts))), nil
	case errors.Is(err, image.ErrAnother):
		return executor.Settle(interrupted("the agent was restarted in the last moments of the write: %v", err)), nil
	}
	return executor.Verdict{}, fmt.Errorf("read back disk: %w", err)
}

// verified names the parts that were verified after a restart of the agent, and those before.
func verified(c *image.Commit) string {
	if c.System == "" {
		return "after a restart of the agent"
	}
	return "the first MiB after a restart of the agent, the rest and what was added before"
}

func interrupted(format string, args ...any) executor.Result {
	return executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, format, args...).AndRetry()
}

func summary(e image.Evidence) string {
	return fmt.Sprintf("%d MiB in %s, %d MiB/s; read back in %s, %d MiB/s; %d MiB were zeros that were there",
		e.Bytes>>20, e.Write.Round(10*time.Millisecond), image.Rate(e.Bytes, e.Write)>>20,
		e.Verify.Round(10*time.Millisecond), image.Rate(e.Bytes, e.Verify)>>20, max(e.Bytes-e.Written, 0)>>20)
}

func diskEvidence(in diskIntent, e image.Evidence) map[string]string {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	seconds := func(t time.Duration) string { return strconv.FormatFloat(t.Seconds(), 'f', 2, 64) }
	return in.about(map[string]string{
		evidence.ImageDigest: e.DigestString(), "bytes": number(e.Bytes),
		"written_bytes": number(e.Written), "write_seconds": seconds(e.Write), "verify_seconds": seconds(e.Verify),
		"total_seconds":           seconds(e.Total),
		"write_bytes_per_second":  number(image.Rate(e.Bytes, e.Write)),
		"verify_bytes_per_second": number(image.Rate(e.Bytes, e.Verify)),
		"state_partition":         e.StateID,
	})
}
