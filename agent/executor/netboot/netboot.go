// Package netboot makes a machine's next boot, and only that, come from the network. It is done when the
// one-shot boot entry reads back as it was set.
package netboot

import (
	"context"
	"errors"
	"fmt"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Declaration of the action.
var Declaration = executor.Declaration{Action: "netboot", Harm: executor.Interrupts}

// Executor is the netboot executor.
type Executor struct{ host host.Host }

var _ executor.Executor = (*Executor)(nil)

// New makes the executor for one machine.
func New(h host.Host) *Executor { return &Executor{host: h} }

// intent. An empty Method clears the entry: boot from disk.
type intent struct {
	BootID string         `json:"boot_id"`
	Method boot.Method    `json:"method"`
	Before boot.NextState `json:"before"`
}

// Prepare reads the setting of the next boot.
func (e *Executor) Prepare(ctx context.Context, spec *fleetv1.CommandSpec) (any, *executor.Result, error) {
	method, refused := methodOf(spec.GetNetboot().GetMode())
	if refused != nil {
		return nil, refused, nil
	}
	before, err := e.host.BootNext(ctx)
	if r, ok := executor.FromRefusal(err, baremetalv1.Reason_NETBOOT_UNSUPPORTED); ok {
		return nil, &r, nil
	}
	if r, ok := executor.FromFailure(err); ok {
		return nil, &r, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read one-shot boot entry: %w", err)
	}
	return intent{BootID: e.bootID(ctx), Method: method, Before: before}, nil, nil
}

func methodOf(mode string) (boot.Method, *executor.Result) {
	switch mode {
	case "", "PXE":
		return boot.PXE, nil
	case "HTTP":
		return boot.HTTP, nil
	case "DISK":
		return "", nil
	}
	r := executor.Refused(baremetalv1.Reason_INVALID_FIELD, "boot from %q", mode)
	return "", &r
}

// bootID is empty on a machine whose system isn't running: its firmware can be set all the same.
func (e *Executor) bootID(ctx context.Context) string {
	id, err := e.host.Identity(ctx)
	if err != nil {
		return ""
	}
	return id.BootID
}

// Execute sets the entry and reads it back.
func (e *Executor) Execute(ctx context.Context, job executor.Job) (executor.Result, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Result{}, err
	}
	if errors.Is(context.Cause(ctx), executor.ErrCanceled) {
		return executor.Canceled("canceled before the boot entry was set"), nil
	}
	left, set := e.set(ctx, job.Effect(), in.Method)
	if r, ok := executor.FromRefusal(set, baremetalv1.Reason_NETBOOT_UNSUPPORTED); ok {
		return r, nil
	}
	if r, ok := executor.FromFailure(set); ok {
		return r, nil // it was read back, or the firmware did not answer: either way it may be set again
	}
	if err := executor.AfterEffect.HitCtx(ctx); err != nil {
		return executor.Result{}, err
	}
	if set == nil && left.Ordered && in.holds(left) {
		job.Logf("next boot: %s (accepted for the next reset, and not to be read before)", left.Target)
		return done(left), nil
	}
	if set == nil && left.Entry == string(provider.BootStays) && in.targets(left) {
		job.Logf("next boot: %s (read back as a choice for every boot, which the BMC makes of it)", left.Target)
		return done(left), nil
	}
	got, err := e.host.BootNext(job.Hard)
	if err != nil {
		return executor.Result{}, fmt.Errorf("read back one-shot boot entry: %w", errors.Join(err, set))
	}
	if in.holds(got) {
		job.Logf("next boot: %s %s (read back)", got.Entry, got.Target)
		return done(got), nil
	}
	if set != nil {
		return executor.Failed(baremetalv1.Reason_EXECUTION_FAILED, "set one-shot boot entry: %v", set).AndRetry(), nil
	}
	// The call succeeded and the firmware shows another entry: the change may still come.
	r := executor.Unknown("the entry reads back as %q", got.Target)
	r.Reason = baremetalv1.Reason_EVIDENCE_MISSING
	return r, nil
}

func (e *Executor) set(
	ctx context.Context, effect effect.Cause, method boot.Method,
) (left boot.NextState, err error) {
	if method == "" {
		return boot.NextState{}, e.host.ClearBootNext(ctx, effect)
	}
	change, err := e.host.SetBootNext(ctx, effect, boot.Target{Method: method})
	return change.New, err
}

// Resume reads the entry again. In the same boot the entry decides. After another boot it has been consumed, and
// only clearing can still be confirmed.
func (e *Executor) Resume(ctx context.Context, job executor.Job) (executor.Verdict, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Verdict{}, err
	}
	got, err := e.host.BootNext(ctx)
	if err != nil {
		return executor.Verdict{}, fmt.Errorf("read one-shot boot entry: %w", err)
	}
	return in.verdict(got, e.bootID(ctx)), nil
}

func (in intent) verdict(got boot.NextState, bootID string) executor.Verdict {
	switch {
	case in.holds(got):
		return executor.Settle(done(got))
	case bootID != in.BootID:
		return executor.Settle(executor.Unknown("the machine has booted since, which consumes the entry"))
	case got == in.Before:
		return executor.GoOn()
	}
	return executor.Settle(executor.Failed(baremetalv1.Reason_EXECUTION_FAILED,
		"interrupted, and the entry now reads %q", got.Target).AndRetry())
}

// holds reports whether the firmware shows what was intended.
func (in intent) holds(s boot.NextState) bool {
	if in.Method == "" {
		return !s.Set
	}
	return s.Entry != string(provider.BootStays) && in.targets(s)
}

// targets reports whether the entry boots by the method, once or always.
func (in intent) targets(s boot.NextState) bool {
	return s.Set && in.Method != "" && strings.HasPrefix(s.Target, string(in.Method))
}

func done(s boot.NextState) executor.Result {
	next := s.Target
	if !s.Set {
		next = "disk"
	}
	return executor.Succeeded(map[string]string{
		evidence.BootNext: next, "boot_next_entry": s.Entry, "boot_next_description": s.Description,
	})
}
