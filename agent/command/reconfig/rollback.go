package reconfig

import (
	"context"
	"errors"
	"fmt"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"

	"github.com/ingot-metal/ingot/agent/command"
	"github.com/ingot-metal/ingot/agent/host"
)

// undo goes back to what was before. It works after a cancel, a time-out and during a stop.
func (e *Executor) undo(ctx context.Context, job command.Job, in intent, why error) (command.Result, error) {
	undoCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTime)
	defer cancel()
	err := e.rollback(undoCtx, job.Effect(), in)
	switch {
	case err != nil && command.Interrupted(ctx):
		return command.Result{}, command.ErrInterrupted
	case err != nil:
		return command.Unknown("roll back after %v: %v", why, err), nil
	case errors.Is(why, errNotThere):
		// What was rolled back had not happened yet, and may still come: no cancel makes that known.
		job.Logf("rolled back: %v", why)
		r := command.Unknown("rolled back, but the change may have been accepted and never showed: %v", why)
		r.Reason = baremetalv1.Reason_EVIDENCE_MISSING
		return r, nil
	case errors.Is(context.Cause(ctx), command.ErrCanceled):
		return command.Canceled("rolled back"), nil
	}
	job.Logf("rolled back: %v", why)
	return command.Failed(baremetalv1.Reason_CONFIG_ROLLED_BACK, "%v", why).AndRetry(), nil
}

// rollback restores only what the intent has changed, and reads it back.
func (e *Executor) rollback(ctx context.Context, effect host.Effect, in intent) error {
	effect.CommandID += "-rollback"
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
func (e *Executor) restoreFirewall(ctx context.Context, effect host.Effect, p *host.FirewallPolicy) error {
	if p == nil {
		return e.cfg.Host.RemoveFirewall(ctx, effect)
	}
	before := *p
	before.OverwriteDrift = true
	return e.cfg.Host.ApplyFirewall(ctx, effect, before)
}

// Resume: a committed generation is done; anything else is rolled back.
func (e *Executor) Resume(ctx context.Context, job command.Job) (command.Verdict, error) {
	var in intent
	if err := job.DecodeIntent(&in); err != nil {
		return command.Verdict{}, err
	}
	var now committed
	if _, err := e.cfg.Docs.GetJSON(ctx, e.key(), &now); err != nil {
		return command.Verdict{}, err
	}
	if now.Generation == in.Generation && now.Digest == in.Digest {
		r, err := e.succeeded(ctx, in)
		return command.Settle(r), err
	}
	r, err := e.undo(ctx, job, in, e.afterRestart(ctx, in))
	return command.Settle(r), err
}

// atOnce is a host whose changes are there when the call returns, or never: none can come from a process that is gone.
type atOnce interface{ ChangesAtOnce() bool }

// afterRestart says why an unconfirmed configuration is rolled back. Where a change may be accepted now and come later,
// one that does not show may still be on its way.
func (e *Executor) afterRestart(ctx context.Context, in intent) error {
	why := errors.New("the agent was restarted before the configuration was confirmed")
	if h, ok := e.cfg.Host.(atOnce); ok && h.ChangesAtOnce() {
		return why
	}
	_, diff, err := e.readBack(ctx, in.Want)
	if err != nil || diff != "" {
		return fmt.Errorf("%w: %w; %s", errNotThere, why, diff)
	}
	return why
}

// Restore puts the committed firewall policy back when the kernel holds none, as after a reboot. It belongs at
// the start of the agent, before anything else.
func (e *Executor) Restore(ctx context.Context) error {
	var now committed
	found, err := e.cfg.Docs.GetJSON(ctx, e.key(), &now)
	if err != nil || !found || now.Settings.Firewall == nil {
		return err
	}
	fw, err := e.cfg.Host.Firewall(ctx)
	if err != nil {
		return fmt.Errorf("read firewall: %w", err)
	}
	if fw.Present {
		return nil
	}
	effect := host.Effect{CommandID: "restore-at-start", MachineID: e.cfg.TargetID}
	if err := e.cfg.Host.ApplyFirewall(ctx, effect, *now.Settings.Firewall); err != nil {
		return fmt.Errorf("restore committed firewall: %w", err)
	}
	return nil
}
