package reconfig

import (
	"context"
	"errors"
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/network"
	"github.com/ingot-metal/ingot/agent/host/rollback"
	"github.com/ingot-metal/ingot/internal/clock"
)

// undo goes back to what was before. It works after a cancel, a time-out and during a stop.
func (e *Executor) undo(ctx context.Context, job executor.Job, in intent, why error) (executor.Result, error) {
	undoCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	err := e.rollback(undoCtx, job, in)
	switch {
	case err != nil && executor.Interrupted(ctx):
		return executor.Result{}, executor.ErrInterrupted
	case err != nil:
		return executor.Unknown("roll back after %v: %v", why, err), nil
	case errors.Is(why, errNotThere):
		// What was rolled back had not happened yet, and may still come: no cancel makes that known.
		job.Logf("rolled back: %v", why)
		r := executor.Unknown("rolled back, but the change may have been accepted and never showed: %v", why)
		r.Reason = baremetalv1.Reason_EVIDENCE_MISSING
		return r, nil
	case errors.Is(context.Cause(ctx), executor.ErrCanceled):
		return executor.Canceled("rolled back"), nil
	}
	job.Logf("rolled back: %v", why)
	return executor.Failed(baremetalv1.Reason_CONFIG_ROLLED_BACK, "%v", why).AndRetry(), nil
}

// guard makes the host's watchdog go back if we cannot. A host without one depends on us alone.
func (e *Executor) guard(ctx context.Context, job executor.Job, in intent, limit time.Duration) error {
	w, ok := e.cfg.Host.(host.Watchdog)
	if !ok {
		return nil
	}
	g := rollback.Guard{
		CommandID: job.Spec.GetCommandId(), OperationID: job.Spec.GetOperationId(), MachineID: job.Spec.GetTargetId(),
		Deadline: clock.Boottime() + limit, Network: in.Saved,
		SetsFirewall: in.Want.Firewall != nil, Firewall: in.Rollback.Firewall, NextFirewall: in.Want.Firewall,
	}
	if in.Want.Hostname != "" {
		g.Hostname = in.Rollback.Hostname
	}
	return w.Guard(ctx, g)
}

// rollback restores only what the intent has changed, and reads it back.
func (e *Executor) rollback(ctx context.Context, job executor.Job, in intent) error {
	if w, ok := e.cfg.Host.(host.Watchdog); ok {
		g, err := w.Guarded(ctx)
		if err != nil || g == nil || g.CommandID != job.Spec.GetCommandId() {
			return err // nothing is changed before the guard stands
		}
		return w.RollBackGuard(ctx, g.CommandID)
	}
	effect := job.Effect()
	effect.CommandID += "-rollback"
	if in.Saved != nil {
		if err := e.cfg.Host.RestoreNetwork(ctx, effect, *in.Saved); err != nil {
			return fmt.Errorf("restore network: %w", err)
		}
	}
	if in.Want.Hostname != "" {
		if err := e.cfg.Host.SetHostname(ctx, effect, in.Rollback.Hostname); err != nil {
			return fmt.Errorf("restore host name: %w", err)
		}
	}
	if in.Want.Firewall == nil {
		return nil
	}
	if err := e.restoreFirewall(ctx, effect, in.Rollback.Firewall); err != nil {
		return fmt.Errorf("restore firewall: %w", err)
	}
	return nil
}

// restoreFirewall puts back the policy, or none. The table there now is the one that failed, so that it may be
// overwritten whatever it holds.
func (e *Executor) restoreFirewall(ctx context.Context, effect effect.Cause, p *firewall.Policy) error {
	if p == nil {
		return e.cfg.Host.RemoveFirewall(ctx, effect)
	}
	before := *p
	before.OverwriteDrift = true
	return e.cfg.Host.ApplyFirewall(ctx, effect, before)
}

// Resume: a committed generation is done; anything else is rolled back.
func (e *Executor) Resume(ctx context.Context, job executor.Job) (executor.Verdict, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return executor.Verdict{}, err
	}
	now, err := e.committed(ctx)
	if err != nil {
		return executor.Verdict{}, err
	}
	if now.Generation == in.Generation && now.Digest == in.Digest {
		r, err := e.succeeded(ctx, in)
		return executor.Settle(r), err
	}
	if ok, err := e.guardCommitted(ctx, job); err != nil {
		return executor.Verdict{}, err
	} else if ok {
		// It was proven before the commit. What the checks found then is gone with the process, so they are made again.
		r, err := e.finish(ctx, in, proof{checks: e.check(ctx, in)})
		return executor.Settle(r), err
	}
	r, err := e.undo(ctx, job, in, e.mayCome(ctx, in, in.Want, errRestarted))
	return executor.Settle(r), err
}

// guardCommitted: the change was committed on the host, and we died before we could note it.
func (e *Executor) guardCommitted(ctx context.Context, job executor.Job) (bool, error) {
	w, ok := e.cfg.Host.(host.Watchdog)
	if !ok {
		return false, nil
	}
	g, err := w.Guarded(ctx)
	return g != nil && g.CommandID == job.Spec.GetCommandId() && g.State == rollback.GuardCommitted, err
}

// atOnce is a host whose changes are there when the call returns, or never: none can come from a process that is gone.
type atOnce interface{ ChangesAtOnce() bool }

// errRestarted is why an unconfirmed configuration is rolled back that an agent finds when it begins.
var errRestarted = errors.New("the agent was restarted before the configuration was confirmed")

// mayCome adds to a reason to roll back that some of what the host has accepted does not show: where a change may be
// accepted now and come later, it may still be on its way.
func (e *Executor) mayCome(ctx context.Context, in intent, accepted settings, why error) error {
	if h, ok := e.cfg.Host.(atOnce); ok && h.ChangesAtOnce() || errors.Is(why, errNotThere) {
		return why
	}
	_, diff, err := e.readBack(context.WithoutCancel(ctx), accepted, in.Saved)
	if err != nil || diff != "" {
		return fmt.Errorf("%w: %w; %s", errNotThere, why, diff)
	}
	return why
}

// forgetful is a host whose network configuration does not outlive the kernel.
type forgetful interface {
	// NetworkForgotten reports whether nothing was applied on this boot yet.
	NetworkForgotten(ctx context.Context) (bool, error)
}

// Restore puts back what the kernel has forgotten in a reboot: the committed firewall policy, where the boot has not
// loaded it, and interfaces where no other program configures them at boot. It belongs at the start of the agent,
// before anything else. A table that an older agent, or a boot without a readable policy, has made is made anew.
func (e *Executor) Restore(ctx context.Context) error {
	now, err := e.committed(ctx)
	if err != nil {
		return err
	}
	effect := effect.Cause{CommandID: "restore-at-start", MachineID: e.cfg.TargetID}
	return errors.Join(e.restoreTable(ctx, effect, now.Settings.Firewall),
		e.restoreNetwork(ctx, effect, now.Settings.Network))
}

func (e *Executor) restoreTable(ctx context.Context, effect effect.Cause, p *firewall.Policy) error {
	if p == nil {
		return nil
	}
	fw, err := e.cfg.Host.Firewall(ctx)
	if err != nil {
		return fmt.Errorf("read firewall: %w", err)
	}
	if fw.Present && !fw.Outdated(*p) {
		return e.keepFirewall(ctx, p)
	}
	renewed := *p
	renewed.Renew = true
	if err := e.cfg.Host.ApplyFirewall(ctx, effect, renewed); err != nil {
		return fmt.Errorf("restore committed firewall: %w", err)
	}
	return e.keepFirewall(ctx, p)
}

// keepsFirewall is a host whose boots load a policy from a file, before the network is up.
type keepsFirewall interface {
	KeepFirewall(ctx context.Context, p firewall.Policy) error
}

// keepFirewall writes the committed policy down for the next boot. A guard that was committed and not remembered yet
// goes before the file, so that an older policy in it does no harm.
func (e *Executor) keepFirewall(ctx context.Context, p *firewall.Policy) error {
	h, ok := e.cfg.Host.(keepsFirewall)
	if !ok || p == nil {
		return nil
	}
	if err := h.KeepFirewall(ctx, *p); err != nil {
		return fmt.Errorf("keep the committed firewall for the next boot: %w", err)
	}
	return nil
}

func (e *Executor) restoreNetwork(ctx context.Context, effect effect.Cause, c *network.Config) error {
	h, ok := e.cfg.Host.(forgetful)
	if !ok || c == nil {
		return nil
	}
	if gone, err := h.NetworkForgotten(ctx); err != nil || !gone {
		return err
	}
	if err := e.cfg.Host.ApplyNetwork(ctx, effect, *c); err != nil {
		return fmt.Errorf("restore committed network: %w", err)
	}
	return nil
}
