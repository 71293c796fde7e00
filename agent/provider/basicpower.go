package provider

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
)

// basicPower makes OutOfBand of a provider that has no more than Power, and perhaps Netboot.
type basicPower struct {
	Power
	host hostAdapter
}

const (
	plainWithin = 30 * time.Second
	plainPoll   = 100 * time.Millisecond
)

// TurnOff has no gentle way.
func (p basicPower) TurnOff(
	ctx context.Context, t Target, e effect.Cause, _ bool, c *Cycle, keep func(Cycle) error,
) error {
	if c.OffAskedAt.IsZero() {
		c.OffAskedAt = clock.Real().Now()
		if err := keep(*c); err != nil {
			return err
		}
	}
	if err := p.until(ctx, t, e, PowerOff); err != nil {
		return err
	}
	c.OffSeenAt = clock.Real().Now()
	return keep(*c)
}

func (p basicPower) TurnOn(ctx context.Context, t Target, e effect.Cause, c *Cycle, keep func(Cycle) error) error {
	if c.OnAskedAt.IsZero() {
		c.OnAskedAt = clock.Real().Now()
		if err := keep(*c); err != nil {
			return err
		}
	}
	if err := p.until(ctx, t, e, PowerOn); err != nil {
		return err
	}
	c.OnSeenAt = clock.Real().Now()
	return keep(*c)
}

func (p basicPower) until(ctx context.Context, t Target, e effect.Cause, want PowerState) error {
	if err := p.SetPower(ctx, t, e, want); err != nil {
		return fmt.Errorf("switch power %s: %w", want, err)
	}
	for give := clock.Real().Now().Add(plainWithin); ; {
		got, err := p.PowerState(ctx, t)
		switch {
		case err == nil && got == want:
			return nil
		case clock.Real().Now().After(give) && err != nil:
			return fmt.Errorf("read power: %w", err)
		case clock.Real().Now().After(give):
			return failure.Unavailable("BMC_NO_EFFECT", "power of %s was switched %s and reads %s", t.MachineID, want, got)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-clock.Real().After(plainPoll):
		}
	}
}

// SetBootDevice knows what host.Host knows: the network, or the firmware's own order, which is taken for the disk.
func (p basicPower) SetBootDevice(ctx context.Context, _ Target, e effect.Cause, d BootDevice) (BootProof, error) {
	now, err := p.host.BootNext(ctx)
	if err != nil {
		return "", err
	}
	switch d {
	case BootPXE, BootHTTP:
		if now.Set && strings.HasPrefix(now.Target, string(d)) {
			return BootRead, nil
		}
		_, err := p.host.SetBootNext(ctx, e, boot.Target{Method: boot.Method(d)})
		return BootRead, err
	case BootDefault, BootDisk:
		if !now.Set {
			return BootRead, nil
		}
		return BootRead, p.host.ClearBootNext(ctx, e)
	case BootMedia:
	}
	return "", &effect.Refusal{Kind: effect.ErrUnsupported, Reason: ReasonNotOfProvider,
		Detail: fmt.Sprintf("boot device %q", d)}
}
