package bmc

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Keys of the metadata of errors, which become evidence.
const (
	EvidenceProtocol = evidence.BMCProtocol
	// EvidencePowerRead is the power state that was read last, EvidencePowerReads how often one was.
	EvidencePowerRead  = "power_state_read"
	EvidencePowerReads = "power_state_reads"
	// EvidenceSwitches is how many requests to switch were answered.
	EvidenceSwitches = "power_switches_accepted"
)

// PowerState reads it once.
func (p *Provider) PowerState(ctx context.Context, t provider.Target) (provider.PowerState, error) {
	state, _, err := p.readPower(ctx, t)
	return settled(state), err
}

// settled is a state that lasts: a machine on its way is in an unknown one.
func settled(state provider.PowerState) provider.PowerState {
	if state == provider.PowerTurningOn || state == provider.PowerTurningOff {
		return provider.PowerUnknown
	}
	return state
}

func (p *Provider) readPower(
	ctx context.Context, t provider.Target,
) (state provider.PowerState, protocol string, err error) {
	state = provider.PowerUnknown
	err = p.call(ctx, t, func(ctx context.Context, d driver) (err error) {
		protocol = d.Protocol()
		state, err = d.PowerState(ctx)
		return err
	})
	return state, protocol, err
}

// SetPower returns when the state was read back. Off is at once.
func (p *Provider) SetPower(ctx context.Context, t provider.Target, e effect.Cause, want provider.PowerState) error {
	switch want {
	case provider.PowerOn:
		return p.TurnOn(ctx, t, e, &provider.Cycle{}, forget)
	case provider.PowerOff:
		return p.TurnOff(ctx, t, e, false, &provider.Cycle{}, forget)
	}
	return invalid("power %q", want)
}

func invalid(format string, args ...any) error {
	return &effect.Refusal{Kind: effect.ErrInvalid, Reason: effect.ReasonInvalid, Detail: fmt.Sprintf(format, args...)}
}

func forget(provider.Cycle) error { return nil }

// Reboot is a power cycle. It returns when the machine is on again.
func (p *Provider) Reboot(ctx context.Context, t provider.Target, e effect.Cause, mode boot.RebootMode) error {
	if mode != boot.RebootGraceful && mode != boot.RebootForced {
		return invalid("reboot mode %q", mode)
	}
	var c provider.Cycle
	if err := p.TurnOff(ctx, t, e, mode == boot.RebootGraceful, &c, forget); err != nil {
		return err
	}
	return p.TurnOn(ctx, t, e, &c, forget)
}

// TurnOff returns when the machine was seen off.
func (p *Provider) TurnOff(
	ctx context.Context,
	t provider.Target,
	e effect.Cause,
	gently bool,
	c *provider.Cycle,
	keep func(provider.Cycle) error,
) error {
	now := p.cfg.Clock.Now()
	d := &powerPlan{want: provider.PowerOff, deadline: now.Add(p.cfg.Within)}
	if gently {
		d.gently = now.Add(p.cfg.SoftOff)
		d.deadline = d.gently.Add(p.cfg.Within)
	}
	d.lastly = d.deadline.Add(onItsWayMost * p.cfg.Within)
	d.ours = !c.OffAskedAt.IsZero()
	asking := func() error {
		if !c.OffAskedAt.IsZero() {
			return nil
		}
		c.OffAskedAt = p.cfg.Clock.Now()
		return keep(*c)
	}
	protocol, err := p.runPlan(ctx, t, e, d, asking)
	p.others(ctx, t, e, d, c)
	if err != nil {
		return err
	}
	c.OffSeenAt, c.Protocol, c.Forced = p.cfg.Clock.Now(), protocol, c.Forced || gently && d.asked > 0
	return keep(*c)
}

// TurnOn returns when the machine was seen on.
func (p *Provider) TurnOn(
	ctx context.Context, t provider.Target, e effect.Cause, c *provider.Cycle, keep func(provider.Cycle) error,
) error {
	d := &powerPlan{want: provider.PowerOn, deadline: p.cfg.Clock.Now().Add(p.cfg.Within)}
	d.lastly = d.deadline.Add(onItsWayMost * p.cfg.Within)
	d.ours = !c.OnAskedAt.IsZero()
	if !c.OffSeenAt.IsZero() {
		d.seen = provider.PowerOff
	}
	asking := func() error {
		if !c.OnAskedAt.IsZero() {
			return nil
		}
		c.OnAskedAt = p.cfg.Clock.Now()
		return keep(*c)
	}
	protocol, err := p.runPlan(ctx, t, e, d, asking)
	p.others(ctx, t, e, d, c)
	if err != nil {
		return err
	}
	c.OnSeenAt, c.Protocol = p.cfg.Clock.Now(), protocol
	return keep(*c)
}

// others records the foreign switches that the plan saw.
func (p *Provider) others(ctx context.Context, t provider.Target, e effect.Cause, d *powerPlan, c *provider.Cycle) {
	for _, state := range d.others {
		p.cfg.Log.WarnContext(ctx, "the power was switched by another party", "machine_id", t.MachineID, "operation_id",
			e.OperationID, "command_id", e.CommandID, "power", string(state))
		c.Outside(state, p.cfg.Clock.Now())
	}
}

// runPlan brings the machine to d.want, and returns the protocol in which it was seen there. asking is called before
// each switch.
func (p *Provider) runPlan(
	ctx context.Context, t provider.Target, e effect.Cause, d *powerPlan, asking func() error,
) (protocol string, err error) {
	for round := 0; ; round++ {
		var state provider.PowerState
		if state, protocol, err = p.readPower(ctx, t); fatal(ctx, err) {
			return protocol, d.cutShort(ctx, t, err)
		}
		d.read(state, err)
		move := d.next(p.cfg.Clock.Now())
		switch move {
		case moveDone:
			return protocol, nil
		case moveStuck:
			return protocol, d.stuck(t)
		case moveGone:
			return protocol, err
		case moveSoft, moveHard:
			if err := asking(); err != nil {
				return protocol, err
			}
			d.ours = true
			if err := p.push(ctx, t, e, d, move); err != nil {
				return protocol, d.cutShort(ctx, t, err)
			}
		case moveWait:
		}
		select {
		case <-ctx.Done():
			return protocol, d.cutShort(ctx, t, context.Cause(ctx))
		case <-p.cfg.Clock.After(pollAfter(round)):
		}
	}
}

// pollAfter the first readings is short: most switches take effect at once.
func pollAfter(round int) time.Duration { return min(50*time.Millisecond<<min(round, 5), time.Second) }

// push sends one switch. Only what no repetition can help is an error.
func (p *Provider) push(ctx context.Context, t provider.Target, e effect.Cause, d *powerPlan, m move) error {
	sw := provider.SwitchOn
	switch {
	case m == moveSoft:
		sw = provider.SwitchSoftOff
	case d.want == provider.PowerOff:
		sw = provider.SwitchOff
	}
	p.cfg.Log.InfoContext(ctx, "switching power", "machine_id", t.MachineID, "operation_id", e.OperationID,
		"command_id", e.CommandID, "switch", string(sw))
	err := p.call(ctx, t, func(ctx context.Context, conn driver) error { return conn.Switch(ctx, sw) })
	switch {
	case m == moveSoft && errors.Is(err, effect.ErrUnsupported):
		d.noSoft = true
		return nil
	case fatal(ctx, err):
		return err
	case failure.HasReason(err, "BMC_UNREACHABLE"):
		d.lastErr = err
	case m == moveSoft:
		d.softAsked = err == nil
	default: // it was answered, with yes or with no
		d.asked++
		d.askedAt = p.cfg.Clock.Now()
	}
	return nil
}

// fatal reports whether err will not go away by waiting.
func fatal(ctx context.Context, err error) bool {
	if err == nil {
		return false
	}
	var refused *effect.Refusal
	var e *failure.Error
	return ctx.Err() != nil || errors.As(err, &refused) || !errors.As(err, &e) || !e.Retryable
}

// cutShort adds to the end of ctx what the BMC had done until then.
func (d *powerPlan) cutShort(ctx context.Context, t provider.Target, err error) error {
	last := d.lastErr
	if last == nil && d.asked > 0 {
		last = d.stuck(t)
	}
	if ctx.Err() == nil || last == nil {
		return err
	}
	return &provider.CutShort{Cause: err, Last: last}
}

func (d *powerPlan) stuck(t provider.Target) error {
	return failure.Unavailable("BMC_NO_EFFECT", "the BMC of %s accepted to switch the power %s, and it still reads %s",
		t.MachineID, d.want, d.lastRead).
		WithMeta(EvidencePowerRead, string(d.lastRead)).
		WithMeta(EvidencePowerReads, strconv.Itoa(d.reads)).
		WithMeta(EvidenceSwitches, strconv.Itoa(d.asked))
}
