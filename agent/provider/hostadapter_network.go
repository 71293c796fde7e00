package provider

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/ingot-metal/ingot/agent/host"
)

// No provider configures interfaces: that is the work of an agent on the machine itself.
func (r hostAdapter) noNetwork() error {
	return &host.Refusal{
		Kind: host.ErrNotWired, Reason: host.ReasonNetworkNotWired,
		Detail: fmt.Sprintf("provider %s cannot configure interfaces", r.p.Name()),
	}
}

func (r hostAdapter) NetworkSupport(context.Context, host.NetworkConfig) error { return r.noNetwork() }

func (r hostAdapter) Network(context.Context, host.NetworkConfig, *host.SavedNetwork) (host.NetworkState, error) {
	return host.NetworkState{}, r.noNetwork()
}

func (r hostAdapter) SaveNetwork(context.Context, host.NetworkConfig) (host.SavedNetwork, error) {
	return host.SavedNetwork{}, r.noNetwork()
}

func (r hostAdapter) ApplyNetwork(context.Context, host.Effect, host.NetworkConfig) error {
	return r.noNetwork()
}

func (r hostAdapter) RestoreNetwork(context.Context, host.Effect, host.SavedNetwork) error {
	return r.noNetwork()
}

func (r hostAdapter) NetworkSource(context.Context, host.NetworkConfig, netip.Addr) (netip.Addr, error) {
	return netip.Addr{}, r.noNetwork()
}
