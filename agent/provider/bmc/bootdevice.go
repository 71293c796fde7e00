package bmc

import (
	"context"
	"time"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/failure"
)

// EvidenceBootRead is the key of the boot device that was read back instead of the one that was set.
const EvidenceBootRead = "boot_device_read"

// bootWithin is how long a boot device may take to be read back.
const bootWithin = 10 * time.Second

// SetBootDevice sets the device of the next boot and reads it back. BootDefault takes an earlier choice back.
func (p *Provider) SetBootDevice(ctx context.Context, t provider.Target, e host.Effect, d provider.BootDevice) error {
	_, err := p.setBoot(ctx, t, e, d)
	return err
}

func (p *Provider) bootOnce(ctx context.Context, t provider.Target) (device provider.BootDevice, protocol string, err error) {
	err = p.exchange(ctx, t, func(ctx context.Context, conn driver) (err error) {
		protocol = conn.Protocol()
		device, err = conn.BootOnce(ctx)
		return err
	})
	return device, protocol, err
}

func (p *Provider) setBoot(ctx context.Context, t provider.Target, e host.Effect, want provider.BootDevice) (host.BootNextChange, error) {
	old, protocol, err := p.bootOnce(ctx, t)
	if err != nil {
		return host.BootNextChange{}, err
	}
	if old == want {
		return host.BootNextChange{Old: next(old, protocol), New: next(old, protocol)}, nil
	}
	p.cfg.Log.InfoContext(ctx, "setting boot device", "machine_id", t.MachineID, "operation_id", e.OperationID,
		"command_id", e.CommandID, "device", string(want))
	err = p.exchange(ctx, t, func(ctx context.Context, conn driver) error { return conn.SetBootOnce(ctx, want) })
	if err != nil {
		return host.BootNextChange{}, err
	}
	deadline := p.cfg.Clock.Now().Add(min(bootWithin, p.cfg.Within))
	for round := 0; ; round++ {
		now, _, err := p.bootOnce(ctx, t)
		switch {
		case err == nil && now == want:
			return host.BootNextChange{Old: next(old, protocol), New: next(now, protocol)}, nil
		case fatal(ctx, err):
			return host.BootNextChange{}, err
		case p.cfg.Clock.Now().After(deadline) && err != nil:
			return host.BootNextChange{}, err
		case p.cfg.Clock.Now().After(deadline):
			return host.BootNextChange{}, failure.Unavailable("BMC_NO_EFFECT",
				"the BMC of %s accepted boot device %q, and it still reads %q", t.MachineID, want, now).
				WithMeta(EvidenceBootRead, string(now)).WithMeta(EvidenceProtocol, protocol)
		}
		select {
		case <-ctx.Done():
			return host.BootNextChange{}, context.Cause(ctx)
		case <-p.cfg.Clock.After(pollAfter(round)):
		}
	}
}

// next says it in the words of a host: Target is the device, Entry how it is known.
func next(d provider.BootDevice, protocol string) host.BootNextState {
	if d == provider.BootDefault {
		return host.BootNextState{}
	}
	return host.BootNextState{Set: true, Entry: "once", Description: protocol, Target: string(d)}
}

// BootNext reads the device of the next boot.
func (p *Provider) BootNext(ctx context.Context, t provider.Target) (host.BootNextState, error) {
	d, protocol, err := p.bootOnce(ctx, t)
	return next(d, protocol), err
}

// methods of package host in words of package provider.
var methods = map[host.BootMethod]provider.BootDevice{host.BootPXE: provider.BootPXE, host.BootHTTP: provider.BootHTTP}

// SetBootNext lets the firmware choose the interface: BMCs take no MAC.
func (p *Provider) SetBootNext(ctx context.Context, t provider.Target, e host.Effect, b host.BootTarget) (host.BootNextChange, error) {
	d, ok := methods[b.Method]
	if !ok {
		return host.BootNextChange{}, invalid("boot method %q", b.Method)
	}
	return p.setBoot(ctx, t, e, d)
}

// ClearBootNext goes back to the firmware's own order.
func (p *Provider) ClearBootNext(ctx context.Context, t provider.Target, e host.Effect) error {
	return p.SetBootDevice(ctx, t, e, provider.BootDefault)
}

// Identify lights the identify light, or turns it off.
func (p *Provider) Identify(ctx context.Context, t provider.Target, on bool) error {
	return p.exchange(ctx, t, func(ctx context.Context, conn driver) error { return conn.Identify(ctx, on) })
}

// Sensors reads what the BMC measures. It may take long, up to Config.Timeout.
func (p *Provider) Sensors(ctx context.Context, t provider.Target) (out []provider.Sensor, err error) {
	err = p.exchange(ctx, t, func(ctx context.Context, conn driver) (err error) {
		out, err = conn.Sensors(ctx)
		return err
	})
	return out, err
}

// EventLog reads the newest entries of the BMC's log, newest first, at most limit.
func (p *Provider) EventLog(ctx context.Context, t provider.Target, limit int) (out []provider.Event, err error) {
	if limit < 1 {
		return nil, invalid("a log of %d entries", limit)
	}
	err = p.exchange(ctx, t, func(ctx context.Context, conn driver) (err error) {
		out, err = conn.EventLog(ctx, limit)
		return err
	})
	return out, err
}
