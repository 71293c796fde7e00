package power

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Order is the desired power and boot device.
type Order struct {
	Off bool `json:"off,omitempty"`
	On  bool `json:"on,omitempty"` // after off, where both are wanted
	// Gently asks the operating system before the power is cut.
	Gently bool `json:"gently,omitempty"`
	// BootOnce is the device of the next boot; empty leaves it alone.
	BootOnce provider.BootDevice `json:"boot_once,omitempty"`
}

// Intent is an order and how far it got. It is written before the machine is first asked to go off, and when it was
// seen off: from then on a run after a crash never switches it off again.
type Intent struct {
	Order
	Cycle provider.Cycle `json:"cycle,omitzero"`
	// MediaAt is when the attached image was read back.
	MediaAt time.Time `json:"media_at,omitzero"`
}

// Run carries the order out from the point that in records. as converts an intent to its stored form.
func Run(
	ctx context.Context, job executor.Job, m provider.Machine, in Intent, as func(Intent) any,
) (executor.Result, error) {
	return run{job: job, m: m, in: in, as: as}.run(ctx)
}

func (r run) run(ctx context.Context) (executor.Result, error) {
	err := r.all(ctx)
	if err == nil {
		return executor.Succeeded(r.in.evidence()), nil
	}
	return r.failed(ctx, err)
}

type run struct {
	job executor.Job
	m   provider.Machine
	in  Intent
	as  func(Intent) any
	// insert attaches the image, where the machine is to boot from one.
	insert Insert
}

func (r *run) all(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), executor.ErrCanceled) {
		return executor.ErrCanceled
	}
	if r.in.Off && r.in.Cycle.OffSeenAt.IsZero() {
		if err := r.off(ctx); err != nil {
			return err
		}
		if err := executor.AfterEffect.HitCtx(ctx); err != nil {
			return err
		}
	}
	if !r.in.On {
		return nil
	}
	return r.on(r.job.Hard)
}

// off sets the boot device first: a machine whose boot device cannot be set stays unchanged.
func (r *run) off(ctx context.Context) error {
	if err := r.bootDevice(ctx); err != nil {
		return err
	}
	how := "at once"
	if r.in.Gently {
		how = "its system is asked first"
	}
	r.job.Logf("switching off through the BMC (%s)", how)
	// From here on a cancel comes too late: an accepted switch cannot be taken back, and a machine must not stay off.
	err := r.m.TurnOff(r.job.Hard, r.m.Target, r.job.Effect(), r.in.Gently, &r.in.Cycle, r.keep)
	if err == nil {
		r.job.Logf("the BMC says that it is off (%s)", r.in.Cycle.Protocol)
	}
	return err
}

// on looks first. A machine that is on has taken its boot device already, and another must not be left for the boot
// after.
func (r *run) on(ctx context.Context) error {
	state, err := r.m.PowerState(ctx, r.m.Target)
	again := r.in.Off && err == nil && state == provider.PowerOn
	if !again {
		// Set again where a BMC has lost it while the machine went down.
		if err := r.bootDevice(ctx); err != nil {
			return err
		}
	}
	if err := r.m.TurnOn(ctx, r.m.Target, r.job.Effect(), &r.in.Cycle, r.keep); err != nil {
		return err
	}
	r.job.Logf("the BMC says that it is on (%s)", r.in.Cycle.Protocol)
	if said := others(r.in.Cycle.Others); said != "" {
		r.job.Logf("another party has switched the power meanwhile: %s; it is left as it is", said)
	}
	return executor.AfterEffect.HitCtx(ctx)
}

var (
	errBootDevice = errors.New("set boot device")
	errMedia      = errors.New("attach the image")
)

func (r *run) bootDevice(ctx context.Context) error {
	if r.in.BootOnce == provider.BootDefault {
		return nil
	}
	if r.in.BootOnce == provider.BootMedia {
		at, err := r.insert(ctx, r.m.Target, r.job.Effect())
		if err != nil {
			return fmt.Errorf("%w: %w", errMedia, err)
		}
		r.job.Logf("the image is attached, and the BMC shows it (%s)", at.Slot)
		r.in.MediaAt = at.At
	}
	proof, err := r.m.SetBootDevice(ctx, r.m.Target, r.job.Effect(), r.in.BootOnce)
	if err != nil {
		return fmt.Errorf("%w: %w", errBootDevice, err)
	}
	r.job.Logf("next boot: %s (%s)", r.in.BootOnce, bootProofs[proof])
	r.in.Cycle.BootOnce, r.in.Cycle.BootProof = r.in.BootOnce, proof
	return nil
}

var bootProofs = map[provider.BootProof]string{
	provider.BootRead: "read back", provider.BootPending: "read back as pending: the next reset applies it",
	provider.BootOrdered: "accepted for the next reset, and not to be read before",
	provider.BootStays:   "read back as a choice for every boot, which the BMC makes of it",
}

func (r *run) keep(c provider.Cycle) error {
	r.in.Cycle = c
	if err := r.job.UpdateIntent(r.job.Hard, r.as(r.in)); err != nil {
		return fmt.Errorf("write how far it got: %w", err)
	}
	return nil
}

// failed returns the result of an error. Switches of power may be repeated, so an attempt that got no answer leaves
// nothing that the next one would have to fear: whatever still comes late is what that one wants too.
func (r *run) failed(ctx context.Context, err error) (executor.Result, error) {
	evidence := r.in.evidence()
	missing := baremetalv1.Reason_CAPABILITY_MISSING
	if errors.Is(err, errBootDevice) {
		missing = baremetalv1.Reason_NETBOOT_UNSUPPORTED
	}
	if errors.Is(err, errMedia) {
		missing = baremetalv1.Reason_MEDIA_UNSUPPORTED
	}
	if out, ok := executor.FromRefusal(err, missing); ok {
		return out.WithEvidence(evidence), nil
	}
	if out, ok := executor.FromFailure(err); ok {
		return out.WithEvidence(evidence), nil
	}
	switch {
	case errors.Is(err, executor.ErrCanceled) && r.in.Cycle.OffAskedAt.IsZero():
		return executor.Canceled("canceled before the machine was switched"), nil
	case executor.Interrupted(r.job.Hard), executor.Interrupted(ctx):
		return executor.Result{}, executor.ErrInterrupted
	case r.job.Hard.Err() != nil:
		var cut *provider.CutShort
		if errors.As(err, &cut) {
			if out, ok := executor.FromFailure(cut.Last); ok {
				out.Message += "; then the time was up"
				return out.WithEvidence(evidence), nil
			}
		}
		return executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, "no time left: %v",
			err).AndRetry().WithEvidence(evidence), nil
	}
	return executor.Result{}, err
}

// Resume reads the power after a restart, at now, and changes nothing. A machine that was seen off and is on has been
// switched on; everything else is gone on with, because each step may be repeated.
func Resume(ctx context.Context, m provider.Machine, in Intent, now time.Time) executor.Verdict {
	if in.Cycle.OffSeenAt.IsZero() {
		return executor.GoOn()
	}
	if !in.On {
		return executor.Settle(executor.Succeeded(in.evidence()))
	}
	state, err := m.PowerState(ctx, m.Target)
	if err != nil || state != provider.PowerOn {
		return executor.GoOn()
	}
	if in.Cycle.OnSeenAt.IsZero() {
		if in.Cycle.OnAskedAt.IsZero() {
			in.Cycle.Outside(provider.PowerOn, now)
		}
		in.Cycle.OnSeenAt = now
	}
	return executor.Settle(executor.Succeeded(in.evidence()))
}

func (in Intent) evidence() map[string]string {
	out := map[string]string{}
	put := func(key, value string) {
		if value != "" {
			out[key] = value
		}
	}
	put(evidence.PowerOffSeenAt, stamp(in.Cycle.OffSeenAt))
	put(evidence.PowerOnSeenAt, stamp(in.Cycle.OnSeenAt))
	put(evidence.MediaInsertedAt, stamp(in.MediaAt))
	put(evidence.PowerByOthers, others(in.Cycle.Others))
	put(evidence.BMCProtocol, in.Cycle.Protocol)
	put(evidence.BootNext, string(in.Cycle.BootOnce))
	put(evidence.BootNextProof, string(in.Cycle.BootProof))
	if !in.Cycle.OffSeenAt.IsZero() {
		put(evidence.PowerOffForced, strconv.FormatBool(in.Cycle.Forced || !in.Gently && !in.Cycle.OffAskedAt.IsZero()))
	}
	return out
}

// others lists the changes of the power state that no command of ours asked for.
func others(all []provider.Outside) string {
	var words []string
	for _, o := range all {
		words = append(words, fmt.Sprintf("%s at %s", o.State, stamp(o.At)))
	}
	return strings.Join(words, ", ")
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
