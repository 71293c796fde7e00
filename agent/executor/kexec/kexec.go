// Package kexec brings a running machine into the installer without its firmware: it fetches a kernel and an
// initramfs by their digests, loads them, and lets the system stop its services and enter them. Only the installer can
// say that it is there: when the machine's own agent sees another boot, it is its own system that has come back.
package kexec

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/disks"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Declaration of the action.
var Declaration = executor.Declaration{Action: "installer", Harm: executor.Interrupts}

// Machine is one that can enter another kernel; *host.Linux is one.
type Machine interface {
	KexecSupport() error
	Identity(ctx context.Context) (host.Identity, error)
	LoadKernel(e effect.Cause, kernel, initrd *os.File, cmdline string) error
	UnloadKernel() error
	KernelLoaded() (bool, error)
	EnterKernel(ctx context.Context, e effect.Cause) error
}

// Config is what the executor needs.
type Config struct {
	Machine Machine
	// Fetch writes the blob with the digest, in lower hex, to w.
	Fetch func(ctx context.Context, sha256 string, w io.Writer) error
	Clock clock.Clock
	// Settle is how long an unchanged boot id leaves the outcome open, after an error or a restart of the agent. Then it
	// becomes unknown. 0 means 2 minutes: more than systemd's default time for stopping a unit, 90 s
	// (systemd-system.conf(5)).
	Settle time.Duration
	// Poll is how often the boot id is read; 0 means 250 ms.
	Poll time.Duration
}

// Executor is the kexec executor.
type Executor struct{ cfg Config }

var _ executor.Executor = (*Executor)(nil)

// New makes the executor for the machine that it runs on.
func New(cfg Config) *Executor {
	if cfg.Settle == 0 {
		cfg.Settle = 2 * time.Minute
	}
	if cfg.Poll == 0 {
		cfg.Poll = 250 * time.Millisecond
	}
	return &Executor{cfg: cfg}
}

type intent struct {
	BootIDBefore string `json:"boot_id_before"`
}

// Prepare reads the boot id that must change, and refuses where the machine cannot do it.
func (e *Executor) Prepare(ctx context.Context, spec *fleetv1.CommandSpec) (any, *executor.Result, error) {
	a := spec.GetInstaller()
	for what, digest := range map[string]string{"kernel": a.GetKernelSha256(), "initramfs": a.GetInitrdSha256()} {
		if _, err := disks.ParseDigest(digest); err != nil {
			r := executor.Failed(baremetalv1.Reason_INVALID_FIELD, "%s: %v", what, err)
			return nil, &r, nil
		}
	}
	if r, ok := executor.FromRefusal(e.cfg.Machine.KexecSupport(), baremetalv1.Reason_CAPABILITY_MISSING); ok {
		return nil, &r, nil
	}
	id, err := e.cfg.Machine.Identity(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read boot id: %w", err)
	}
	return intent{BootIDBefore: id.BootID}, nil, nil
}

// Execute fetches, loads and enters. Up to the entering a cancel leaves no trace. On the machine's own agent it ends by
// being killed.
func (e *Executor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Result{}, err
	}
	if r, err := e.load(ctx, job); r != nil || err != nil {
		return deref(r), err
	}
	if errors.Is(context.Cause(ctx), executor.ErrCanceled) {
		return executor.Canceled("canceled before the kernel was entered"), e.cfg.Machine.UnloadKernel()
	}
	job.Logf("entering the installer by kexec, boot id before: %s", in.BootIDBefore)
	asked := e.cfg.Machine.EnterKernel(ctx, job.Effect())
	if err := executor.AfterEffect.HitCtx(ctx); err != nil {
		return executor.Result{}, err
	}
	limit := time.Duration(0)
	if asked != nil {
		job.Logf("entering the kernel failed: %v", asked)
		limit = e.cfg.Settle
	}
	// From here on a cancel comes too late.
	return e.await(job.Hard, in, limit, asked)
}

func deref(r *executor.Result) executor.Result {
	if r == nil {
		return executor.Result{}
	}
	return *r
}

// load gets both files, checks their digests and loads them. Nil, nil: they are loaded.
func (e *Executor) load(ctx context.Context, job executor.Job) (*executor.Result, error) {
	a := job.Spec.GetInstaller()
	job.Progress(5, "fetching the kernel")
	kernel, err := e.fetch(ctx, "kernel", a.GetKernelSha256())
	if err != nil {
		return unfetched(ctx, err)
	}
	defer kernel.Close()
	job.Progress(20, "fetching the initramfs")
	initrd, err := e.fetch(ctx, "initramfs", a.GetInitrdSha256())
	if err != nil {
		return unfetched(ctx, err)
	}
	defer initrd.Close()
	job.Progress(80, "loading the kernel")
	err = e.cfg.Machine.LoadKernel(job.Effect(), kernel, initrd, a.GetCmdline())
	if r, ok := executor.FromRefusal(err, baremetalv1.Reason_CAPABILITY_MISSING); ok {
		return &r, nil
	}
	if err != nil {
		r := executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, "%v", err)
		return &r, nil
	}
	return nil, nil
}

var errDigest = errors.New("the digest is another")

// fetch returns a file in memory with the bytes of the digest.
func (e *Executor) fetch(ctx context.Context, what, digest string) (*os.File, error) {
	fd, err := unix.MemfdCreate("ingot-"+what, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	f := os.NewFile(uintptr(fd), what)
	sum := sha256.New()
	err = e.cfg.Fetch(ctx, digest, io.MultiWriter(f, sum))
	if got := hex.EncodeToString(sum.Sum(nil)); err == nil &&
		got != strings.ToLower(strings.TrimPrefix(digest, "sha256:")) {
		err = fmt.Errorf("%w: sha256:%s, ordered was %s", errDigest, got, digest)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("fetch %s: %w", what, err), f.Close())
	}
	return f, nil
}

// unfetched returns the result of a fetch that failed. Nothing has happened to the machine.
func unfetched(ctx context.Context, err error) (*executor.Result, error) {
	var r executor.Result
	switch {
	case errors.Is(err, errDigest):
		r = executor.Failed(baremetalv1.Reason_IMAGE_DIGEST_MISMATCH, "%v", err)
	case errors.Is(context.Cause(ctx), executor.ErrCanceled):
		r = executor.Canceled("canceled before the kernel was loaded")
	case executor.Interrupted(ctx):
		return nil, executor.ErrInterrupted
	default:
		r = executor.Failed(baremetalv1.Reason_IMAGE_UNAVAILABLE, "%v", err).AndRetry()
	}
	return &r, nil
}

// Resume never enters. Another boot id is proof that the machine's own system has come back. Under the old one, with no
// kernel loaded, no kexec can follow.
func (e *Executor) Resume(ctx context.Context, job executor.Job) (executor.Verdict, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Verdict{}, err
	}
	id, err := e.cfg.Machine.Identity(ctx)
	if err != nil {
		return executor.Verdict{}, fmt.Errorf("read boot id: %w", err)
	}
	if id.BootID == in.BootIDBefore {
		loaded, err := e.cfg.Machine.KernelLoaded()
		if err != nil {
			return executor.Verdict{}, err
		}
		if !loaded {
			return executor.Settle(executor.Failed(baremetalv1.Reason_EXECUTION_FAILED,
				"the agent was restarted before a kernel was loaded").AndRetry()), nil
		}
	}
	r, err := e.await(job.Hard, in, e.cfg.Settle, nil)
	if err != nil {
		return executor.Verdict{}, err
	}
	return executor.Settle(r), nil
}

// await reads the boot id until it has changed, until the machine has answered with the old one for limit (0: no such
// limit), or until ctx ends.
func (e *Executor) await(ctx context.Context, in intent, limit time.Duration, asked error) (executor.Result, error) {
	begun := e.cfg.Clock.Now()
	for {
		id, err := e.cfg.Machine.Identity(ctx)
		if err == nil && id.BootID != in.BootIDBefore {
			return executor.Failed(baremetalv1.Reason_WRONG_SYSTEM_BOOTED,
				"the machine was restarted and came back in its own system, not in the installer").AndRetry().WithEvidence(
				map[string]string{
					evidence.BootIDBefore: in.BootIDBefore, evidence.BootIDAfter: id.BootID,
				}), nil
		}
		if limit > 0 && e.cfg.Clock.Now().Sub(begun) >= limit {
			return unchanged(in, fmt.Sprintf("the boot id has not changed for %s", limit), asked), nil
		}
		select {
		case <-ctx.Done():
			if executor.Interrupted(ctx) {
				return executor.Result{}, executor.ErrInterrupted
			}
			return unchanged(in, "no other boot id in time", asked), nil
		case <-e.cfg.Clock.After(e.cfg.Poll):
		}
	}
}

func unchanged(in intent, what string, asked error) executor.Result {
	r := executor.Unknown("%s; the machine may still enter the installer", what)
	if asked != nil {
		r = executor.Unknown("%s, and asking for it had failed: %v", what, asked)
	}
	return r.WithEvidence(map[string]string{evidence.BootIDBefore: in.BootIDBefore})
}
