package site

import (
	"context"
	"net/netip"
	"slices"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/netboot"
	"github.com/ingot-metal/ingot/agent/executor/power"
	"github.com/ingot-metal/ingot/agent/executor/reboot"
	"github.com/ingot-metal/ingot/agent/executor/reconfig"
	"github.com/ingot-metal/ingot/agent/executor/repave"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/internal/clock"
)

// Config is what executors for one machine need, whichever road leads to it.
type Config struct {
	Clock        clock.Clock
	RebootSettle time.Duration
	RebootPoll   time.Duration
	Docs         reconfig.Documents
	// Prove, Controllers and Moved: see package reconfig.
	Prove       func(ctx context.Context) error
	Controllers func(ctx context.Context) []netip.AddrPort
	Moved       func()
	// Probe: see package reboot.
	Probe func(ctx context.Context, t *fleetv1.ProbeTarget) (map[string]string, error)
	// Media: see package power.
	Media power.Insert
}

// Executor gives the executor of a command for the machine h, or nil when there is none for this action.
func Executor(cfg Config, h host.Host, simulated bool, spec *fleetv1.CommandSpec) executor.Executor {
	switch spec.GetAction().(type) {
	case *fleetv1.CommandSpec_Reboot:
		return reboot.New(reboot.Config{Host: h, Clock: cfg.Clock, Settle: cfg.RebootSettle, Poll: cfg.RebootPoll,
			Probe: cfg.Probe})
	case *fleetv1.CommandSpec_Netboot:
		return netboot.New(h)
	case *fleetv1.CommandSpec_Power:
		return power.New(h, cfg.Clock).WithMedia(cfg.Media)
	case *fleetv1.CommandSpec_Repave:
		return repave.New(h, simulated)
	case *fleetv1.CommandSpec_Reconfig:
		return reconfig.New(reconfig.Config{
			Host: h, Docs: cfg.Docs, Clock: cfg.Clock, TargetID: spec.GetTargetId(), Prove: cfg.Prove,
			Controllers: cfg.Controllers,
			Moved:       cfg.Moved,
		})
	}
	return nil
}

// Providers are the adapters that a site agent has, by name.
type Providers map[string]provider.Base

// Resolve finds the executor for a command's target behind its provider.
func (p Providers) Resolve(cfg Config, spec *fleetv1.CommandSpec) (executor.Executor, *executor.Result) {
	adapter, ok := p[spec.GetProvider()]
	if !ok {
		r := executor.Refused(baremetalv1.Reason_CAPABILITY_MISSING, "this agent has no provider %q", spec.GetProvider())
		return nil, &r
	}
	h := provider.AsHost(adapter, provider.Target{
		MachineID: spec.GetTargetId(), BMCEndpoint: spec.GetBmcEndpoint(), CredentialsRef: spec.GetBmcCredentialsRef(),
		MACs: spec.GetMacAddresses(),
	})
	cfg.Moved = nil // not of this machine
	// The controller's reachability from here says nothing about the machine; its answer through the provider does.
	cfg.Prove = func(ctx context.Context) error {
		_, err := h.Identity(ctx)
		return err
	}
	return found(Executor(cfg, h, adapter.Simulated(), spec))
}

func found(e executor.Executor) (executor.Executor, *executor.Result) {
	if e == nil {
		r := executor.Refused(baremetalv1.Reason_CAPABILITY_MISSING, "this agent has no executor for the action")
		return nil, &r
	}
	return e, nil
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

// Simulated says whether any provider's machines are made up.
func (p Providers) Simulated() bool {
	for _, adapter := range p {
		if adapter.Simulated() {
			return true
		}
	}
	return false
}
