package site

import (
	"context"
	"slices"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/action"
	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/provider"
)

// Providers are the adapters that a site agent has, by name.
type Providers map[string]provider.Base

// Resolve finds the executor for a command's target behind its provider.
func (p Providers) Resolve(agent action.Agent, spec *fleetv1.CommandSpec) (executor.Executor, *executor.Result) {
	adapter, ok := p[spec.GetProvider()]
	if !ok {
		r := executor.Refused(baremetalv1.Reason_CAPABILITY_MISSING, "this agent has no provider %q", spec.GetProvider())
		return nil, &r
	}
	h := provider.AsHost(adapter, provider.Target{
		MachineID: spec.GetTargetId(), BMCEndpoint: spec.GetBmcEndpoint(), CredentialsRef: spec.GetBmcCredentialsRef(),
		MACs: spec.GetMacAddresses(),
	})
	agent.Moved = nil // not of this machine
	// The controller's reachability from here is no evidence about the machine; its answer through the provider is.
	agent.Prove = func(ctx context.Context) error {
		_, err := h.Identity(ctx)
		return err
	}
	m := action.Machine{ID: spec.GetTargetId(), Host: h, Simulated: adapter.Simulated()}
	return action.Reached(&agent, m, spec)
}

// Capabilities are "provider:<name>" for each, and what they can do between them.
func (p Providers) Capabilities() []string {
	var out []string
	for name, adapter := range p {
		out = append(out, "provider:"+name)
		out = append(out, provider.Capabilities(adapter)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Simulated reports whether any provider's machines are made up.
func (p Providers) Simulated() bool {
	for _, adapter := range p {
		if adapter.Simulated() {
			return true
		}
	}
	return false
}
