package provider

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/host/network"
)

// No provider configures interfaces: that is the work of an agent on the machine itself.
func (r hostAdapter) noNetwork() error {
	return &effect.Refusal{
		Kind: effect.ErrNotWired, Reason: effect.ReasonNetworkNotWired,
		Detail: fmt.Sprintf("provider %s cannot configure interfaces", r.p.Name()),
	}
}

func (r hostAdapter) NetworkSupport(context.Context, network.Config) error {
	return r.noNetwork()
}

func (r hostAdapter) Network(context.Context, network.Config, *network.SavedNetwork) (network.State, error) {
	return network.State{}, r.noNetwork()
}

func (r hostAdapter) SaveNetwork(context.Context, network.Config) (network.SavedNetwork, error) {
	return network.SavedNetwork{}, r.noNetwork()
}

func (r hostAdapter) ApplyNetwork(context.Context, effect.Cause, network.Config) error {
	return r.noNetwork()
}

func (r hostAdapter) RestoreNetwork(context.Context, effect.Cause, network.SavedNetwork) error {
	return r.noNetwork()
}

func (r hostAdapter) NetworkSource(context.Context, network.Config, netip.Addr) (netip.Addr, error) {
	return netip.Addr{}, r.noNetwork()
}
