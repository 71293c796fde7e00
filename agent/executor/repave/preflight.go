package repave

import (
	"context"
	"errors"
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/disk/firstboot"
	"github.com/ingot-metal/ingot/agent/disk/image"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host/disks"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// PreflightDeclaration of the action that reads the disks and writes nothing.
var PreflightDeclaration = executor.Declaration{Action: "preflight", Harm: executor.Harmless}

// Preflight proves that a repave can begin, from the installer that would write. The machine starts the image, one disk
// is meant and large enough. The image's beginning can be fetched and read, and takes the seed. It changes nothing.
type Preflight struct{ cfg DiskConfig }

var _ executor.Executor = (*Preflight)(nil)

// NewPreflight makes the executor for the machine that it runs on. It needs Installer and Site.
func NewPreflight(cfg DiskConfig) *Preflight { return &Preflight{cfg: cfg} }

// Prepare has nothing to remember.
func (p *Preflight) Prepare(context.Context, *fleetv1.CommandSpec) (any, *executor.Result, error) {
	return struct{}{}, nil, nil
}

// Execute reads the machine's disks and the image's first MiB.
func (p *Preflight) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	a := job.Spec.GetPreflight()
	to, refused, err := fitting(p.cfg.Installer, a)
	if err != nil {
		return executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, "%v", err).AndRetry(), nil
	}
	if refused != nil {
		return *refused, nil
	}
	dev := to.First
	job.Logf("the image would be written to %s", dev)
	if to.Second.Path != "" {
		job.Logf("and, as its mirror, to %s", to.Second)
	}
	err = p.cfg.Installer.ProbeImage(ctx, disks.WriteImage{
		URL: p.cfg.url(a), FileSize: a.GetFileSize(), Format: image.Format(a.GetFormat()), Disk: dev.Ref(),
		Mirror: to.Second.Ref(), Protected: a.GetProtectedDisks(), Data: a.GetDataDisks(),
		Seed: firstboot.For{Ignition: a.GetSeedIgnition(), Unfit: a.GetSeedUnfit()},
	}, dev.Sector)
	if r := chosen(err); r != nil {
		return *r, nil
	}
	var e *image.Error
	switch {
	case err == nil:
		return executor.Succeeded(map[string]string{evidence.PreflightDisk: dev.ID(), "disk_path": dev.Path}), nil
	case errors.Is(err, executor.ErrCanceled):
		return executor.Canceled("stopped before anything was written"), nil
	case executor.Interrupted(ctx):
		return executor.Result{}, executor.ErrInterrupted
	case errors.As(err, &e):
		r := executor.Failed(e.Reason, "image %q: %v", a.GetImageRef(), e)
		r.Retryable = e.Retryable
		return r, nil
	}
	return executor.Failed(baremetalv1.Reason_IMAGE_UNAVAILABLE, "%v",
		fmt.Errorf("image %q: %w", a.GetImageRef(), err)).AndRetry(), nil
}

// Resume starts from the top: nothing has been changed.
func (p *Preflight) Resume(context.Context, executor.Job) (executor.Verdict, error) {
	return executor.GoOn(), nil
}
