package provider

import (
	"context"
	"fmt"
	"slices"

	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/host/boot"
	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/firewall"
	"github.com/ingot-metal/ingot/agent/inventory"
)

// ReasonNotOfProvider is the reason of a refusal when the provider lacks the capability.
const ReasonNotOfProvider = "NOT_OF_PROVIDER"

// AsHost shows one machine of p as a host. What p cannot do is refused with effect.ErrUnsupported.
func AsHost(p Base, t Target) host.Host { return hostAdapter{p: p, t: t} }

type hostAdapter struct {
	p Base
	t Target
}

var _ host.Host = hostAdapter{}

// can returns p as the capability C, or the refusal to do what.
func can[C any](r hostAdapter, what string) (C, error) {
	c, ok := r.p.(C)
	if !ok {
		return c, &effect.Refusal{
			Kind: effect.ErrUnsupported, Reason: ReasonNotOfProvider,
			Detail: fmt.Sprintf("provider %s cannot %s", r.p.Name(), what),
		}
	}
	return c, nil
}

func (r hostAdapter) Identity(ctx context.Context) (host.Identity, error) {
	c, err := can[Inspect](r, "inspect")
	if err != nil {
		return host.Identity{}, err
	}
	return c.Identity(ctx, r.t)
}

// Capabilities leaves out those that no host has.
func (r hostAdapter) Capabilities() []string {
	return slices.DeleteFunc(Capabilities(r.p), func(c string) bool { return c == CapPower || c == CapInspect })
}

func (r hostAdapter) Inventory(ctx context.Context) (inventory.Document, error) {
	c, err := can[Inspect](r, "take inventory")
	if err != nil {
		return inventory.Document{}, err
	}
	return c.Inventory(ctx, r.t)
}

func (r hostAdapter) Reboot(ctx context.Context, e effect.Cause, mode boot.RebootMode) error {
	c, err := can[Reboot](r, "reboot")
	if err != nil {
		return err
	}
	return c.Reboot(ctx, r.t, e, mode)
}

func (r hostAdapter) BootNext(ctx context.Context) (boot.NextState, error) {
	c, err := can[Netboot](r, "read the boot entry")
	if err != nil {
		return boot.NextState{}, err
	}
	return c.BootNext(ctx, r.t)
}

func (r hostAdapter) SetBootNext(
	ctx context.Context, e effect.Cause, target boot.Target,
) (boot.NextChange, error) {
	c, err := can[Netboot](r, "set the boot entry")
	if err != nil {
		return boot.NextChange{}, err
	}
	return c.SetBootNext(ctx, r.t, e, target)
}

func (r hostAdapter) ClearBootNext(ctx context.Context, e effect.Cause) error {
	c, err := can[Netboot](r, "clear the boot entry")
	if err != nil {
		return err
	}
	return c.ClearBootNext(ctx, r.t, e)
}

func (r hostAdapter) Hostname(ctx context.Context) (string, error) {
	c, err := can[Configure](r, "read the host name")
	if err != nil {
		return "", err
	}
	return c.Hostname(ctx, r.t)
}

func (r hostAdapter) SetHostname(ctx context.Context, e effect.Cause, name string) error {
	c, err := can[Configure](r, "set the host name")
	if err != nil {
		return err
	}
	return c.SetHostname(ctx, r.t, e, name)
}

func (r hostAdapter) Firewall(ctx context.Context) (firewall.State, error) {
	c, err := can[Configure](r, "read the firewall")
	if err != nil {
		return firewall.State{}, err
	}
	return c.Firewall(ctx, r.t)
}

func (r hostAdapter) ApplyFirewall(ctx context.Context, e effect.Cause, p firewall.Policy) error {
	c, err := can[Configure](r, "set the firewall")
	if err != nil {
		return err
	}
	return c.ApplyFirewall(ctx, r.t, e, p)
}

func (r hostAdapter) RemoveFirewall(ctx context.Context, e effect.Cause) error {
	c, err := can[Configure](r, "remove the firewall")
	if err != nil {
		return err
	}
	return c.RemoveFirewall(ctx, r.t, e)
}

func (r hostAdapter) DiskImage(ctx context.Context) (host.DiskImage, error) {
	c, err := can[Imaging](r, "read the disk")
	if err != nil {
		return host.DiskImage{}, err
	}
	return c.DiskImage(ctx, r.t)
}

func (r hostAdapter) Repave(
	ctx context.Context, e effect.Cause, req host.RepaveRequest, progress func(host.RepaveProgress),
) (host.RepaveEvidence, error) {
	c, err := can[Imaging](r, "repave")
	if err != nil {
		return host.RepaveEvidence{}, err
	}
	return c.Repave(ctx, r.t, e, req, progress)
}
