package bmc

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/failure"
)

// EvidenceBootRead is the key of the boot device that was read back instead of the one that was set.
const EvidenceBootRead = "boot_device_read"

// bootWithin is how long a boot device may take to be read back.
const bootWithin = 10 * time.Second

// SetBootDevice sets the device of the next boot and returns the proof of it. BootDefault removes an earlier choice.
func (p *Provider) SetBootDevice(
	ctx context.Context, t provider.Target, e effect.Cause, d provider.BootDevice,
) (provider.BootProof, error) {
	_, now, _, err := p.setBoot(ctx, t, e, d)
	return now.Proof, err
}

func (p *Provider) bootOnce(
	ctx context.Context, t provider.Target,
) (choice provider.BootChoice, protocol string, err error) {
	err = p.call(ctx, t, func(ctx context.Context, conn driver) (err error) {
		protocol = conn.Protocol()
		choice, err = conn.BootOnce(ctx)
		return err
	})
	return choice, protocol, err
}

// setBoot returns the choice that was read before, and the one after.
func (p *Provider) setBoot(
	ctx context.Context, t provider.Target, e effect.Cause, want provider.BootDevice,
) (old, now provider.BootChoice, protocol string, err error) {
	if old, protocol, err = p.bootOnce(ctx, t); err != nil || old.Once(want) {
		return old, old, protocol, err
	}
	p.cfg.Log.InfoContext(ctx, "setting boot device", "machine_id", t.MachineID, "operation_id", e.OperationID,
		"command_id", e.CommandID, "device", string(want))
	var ordered bool
	err = p.call(ctx, t, func(ctx context.Context, conn driver) (err error) {
		ordered, err = conn.SetBootOnce(ctx, want)
		return err
	})
	if err != nil {
		return old, now, protocol, err
	}
	deadline := p.cfg.Clock.Now().Add(min(bootWithin, p.cfg.Within))
	for round := 0; ; round++ {
		now, _, err = p.bootOnce(ctx, t)
		late := p.cfg.Clock.Now().After(deadline)
		switch {
		case err == nil && now.Once(want):
			return old, now, protocol, nil
		case fatal(ctx, err), late && err != nil:
			return old, now, protocol, err
		case ordered && want != provider.BootDefault:
			return old, provider.BootChoice{Device: want, Proof: provider.BootOrdered}, protocol, nil
		case late && now.Stays && now.Device == want:
			now.Proof = provider.BootStays // the service knows no other; the next boot is what was ordered
			return old, now, protocol, nil
		case late:
			return old, now, protocol, noBootEffect(t, want, now, protocol)
		}
		select {
		case <-ctx.Done():
			return old, now, protocol, context.Cause(ctx)
		case <-p.cfg.Clock.After(pollAfter(round)):
		}
	}
}

func noBootEffect(t provider.Target, want provider.BootDevice, now provider.BootChoice, protocol string) error {
	how := ""
	if now.Stays {
		how = " for every boot"
	}
	return failure.Unavailable("BMC_NO_EFFECT", "the BMC of %s accepted boot device %q, and it still reads %q%s",
		t.MachineID, want, now.Device, how).
		WithMeta(EvidenceBootRead, string(now.Device)).WithMeta(EvidenceProtocol, protocol)
}

// next returns the choice as a host's boot state: Target is the device, Entry its proof.
func next(c provider.BootChoice, protocol string) boot.NextState {
	if c.Device == provider.BootDefault {
		return boot.NextState{}
	}
	s := boot.NextState{Set: true, Entry: "once", Description: protocol, Target: string(c.Device)}
	switch {
	case c.Stays:
		s.Entry = string(provider.BootStays)
	case c.Proof != provider.BootRead:
		s.Entry, s.Ordered = string(c.Proof), c.Proof == provider.BootOrdered
	}
	return s
}

// BootNext reads the device of the next boot.
func (p *Provider) BootNext(ctx context.Context, t provider.Target) (boot.NextState, error) {
	d, protocol, err := p.bootOnce(ctx, t)
	return next(d, protocol), err
}

// methods of package host in words of package provider.
var methods = map[boot.Method]provider.BootDevice{boot.PXE: provider.BootPXE, boot.HTTP: provider.BootHTTP}

// SetBootNext lets the firmware choose the interface: BMCs take no MAC.
func (p *Provider) SetBootNext(
	ctx context.Context, t provider.Target, e effect.Cause, b boot.Target,
) (boot.NextChange, error) {
	d, ok := methods[b.Method]
	if !ok {
		return boot.NextChange{}, invalid("boot method %q", b.Method)
	}
	old, now, protocol, err := p.setBoot(ctx, t, e, d)
	if err != nil {
		return boot.NextChange{}, err
	}
	return boot.NextChange{Old: next(old, protocol), New: next(now, protocol)}, nil
}

// ClearBootNext goes back to the firmware's own order.
func (p *Provider) ClearBootNext(ctx context.Context, t provider.Target, e effect.Cause) error {
	_, err := p.SetBootDevice(ctx, t, e, provider.BootDefault)
	return err
}
