// Package fake is the provider of machines that exist only in a simulated world.
//
// A machine exists from its first use, by its id. Its state and the journal of effects are the world's, to which a
// simulated host writes too. So a machine may be acted on from inside and from outside at once.
package fake

import (
	"context"
	"fmt"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/host/sim"
	"github.com/ingot-metal/ingot/agent/inventory"
	"github.com/ingot-metal/ingot/agent/provider"
)

// Config is that of the world.
type Config = sim.WorldConfig

// Provider has every capability there is.
type Provider struct{ world *sim.World }

var (
	_ provider.Base      = (*Provider)(nil)
	_ provider.Power     = (*Provider)(nil)
	_ provider.Reboot    = (*Provider)(nil)
	_ provider.Netboot   = (*Provider)(nil)
	_ provider.Imaging   = (*Provider)(nil)
	_ provider.Configure = (*Provider)(nil)
	_ provider.Inspect   = (*Provider)(nil)
)

// New opens the world.
func New(cfg Config) (*Provider, error) {
	w, err := sim.OpenWorld(cfg)
	if err != nil {
		return nil, fmt.Errorf("open world of the fake provider: %w", err)
	}
	return &Provider{world: w}, nil
}

// World is where its machines live.
func (p *Provider) World() *sim.World { return p.world }

// Name is "fake".
func (p *Provider) Name() string { return "fake" }

// Simulated is true.
func (p *Provider) Simulated() bool { return true }

func (p *Provider) machine(t provider.Target) *sim.Machine { return p.world.Machine(t.MachineID) }

// PowerState is what the machine's BMC shows; a scripted one may lie.
func (p *Provider) PowerState(ctx context.Context, t provider.Target) (provider.PowerState, error) {
	on, err := p.machine(t).Power(ctx)
	switch {
	case err != nil:
		return provider.PowerUnknown, err
	case on:
		return provider.PowerOn, nil
	}
	return provider.PowerOff, nil
}

// SetPower switches at once.
func (p *Provider) SetPower(ctx context.Context, t provider.Target, e effect.Cause, want provider.PowerState) error {
	if want != provider.PowerOn && want != provider.PowerOff {
		return &effect.Refusal{Kind: effect.ErrInvalid, Reason: effect.ReasonInvalid, Detail: fmt.Sprintf("power %q", want)}
	}
	return p.machine(t).SetPower(ctx, e, want == provider.PowerOn)
}

// Reboot happens after the world's delay.
func (p *Provider) Reboot(ctx context.Context, t provider.Target, e effect.Cause, mode boot.RebootMode) error {
	return p.machine(t).Reboot(ctx, e, mode)
}

// BootNext reads the one-shot boot entry.
func (p *Provider) BootNext(ctx context.Context, t provider.Target) (boot.NextState, error) {
	return p.machine(t).BootNext(ctx)
}

// SetBootNext works on a machine that is off too.
func (p *Provider) SetBootNext(
	ctx context.Context, t provider.Target, e effect.Cause, b boot.Target,
) (boot.NextChange, error) {
	return p.machine(t).SetBootNext(ctx, e, b)
}

// ClearBootNext removes the one-shot boot entry.
func (p *Provider) ClearBootNext(ctx context.Context, t provider.Target, e effect.Cause) error {
	return p.machine(t).ClearBootNext(ctx, e)
}

// DiskImage reads the disk back, whether the machine is on or off.
func (p *Provider) DiskImage(ctx context.Context, t provider.Target) (host.DiskImage, error) {
	return p.machine(t).DiskImage(ctx)
}

// Repave writes a fake image, in the world's RepaveTime.
func (p *Provider) Repave(
	ctx context.Context, t provider.Target, e effect.Cause, r host.RepaveRequest, progress func(host.RepaveProgress),
) (host.RepaveEvidence, error) {
	return p.machine(t).Repave(ctx, e, r, progress)
}

// Hostname reads that of the running system.
func (p *Provider) Hostname(ctx context.Context, t provider.Target) (string, error) {
	return p.machine(t).Hostname(ctx)
}

// SetHostname sets it.
func (p *Provider) SetHostname(ctx context.Context, t provider.Target, e effect.Cause, name string) error {
	return p.machine(t).SetHostname(ctx, e, name)
}

// Firewall reads the policy in force.
func (p *Provider) Firewall(ctx context.Context, t provider.Target) (firewall.State, error) {
	return p.machine(t).Firewall(ctx)
}

// ApplyFirewall replaces it.
func (p *Provider) ApplyFirewall(
	ctx context.Context, t provider.Target, e effect.Cause, policy firewall.Policy,
) error {
	return p.machine(t).ApplyFirewall(ctx, e, policy)
}

// RemoveFirewall removes it.
func (p *Provider) RemoveFirewall(ctx context.Context, t provider.Target, e effect.Cause) error {
	return p.machine(t).RemoveFirewall(ctx, e)
}

// Identity is that of the running system.
func (p *Provider) Identity(ctx context.Context, t provider.Target) (host.Identity, error) {
	return p.machine(t).Identity(ctx)
}

// Inventory marks every part as simulated.
func (p *Provider) Inventory(ctx context.Context, t provider.Target) (inventory.Document, error) {
	return p.machine(t).Inventory(ctx)
}
