//go:build recipes

package recipes

// notExecuted are recipes without an example, each with the reason.
var notExecuted = map[string]string{
	"Add a kind of operation": "its example is longer than all others together; two generic tests ask for a kind's parts",
}

// examples are the edits of each recipe, by its title.
var examples = map[string][]edit{
	"Add a reason of an error": {
		{1, "api/baremetal/v1/reason.proto", "INSTALL_ATTEMPTS_EXHAUSTED = 176;",
			"  // OPERATION: a trial of the recipe has failed.\n  // Next: `ingot why MACHINE`.\n  TRIAL_FAILED = 199;\n"},
		{2, "invariants/reasons.txt", "INSTALL_ATTEMPTS_EXHAUSTED", "199  TRIAL_FAILED\n"},
		{4, "controller/domain/explain/rules/failures.go", `"INSTALL_ATTEMPTS_EXHAUSTED": {explain.OnOperator`,
			"\t\"TRIAL_FAILED\":               {explain.OnOperator, \"a trial of the recipe has failed\", none},\n"},
		{4, "controller/domain/workflow/failure.go", `"INSTALL_ATTEMPTS_EXHAUSTED": {ClassInstall`,
			"\t\"TRIAL_FAILED\":               {ClassRefused, false},\n"},
		{5, "cli/command/hints.go", "pb.Reason_STAGE_CHECK_FAILED:",
			"\tpb.Reason_TRIAL_FAILED:            \"ingot why {machine}\",\n"},
		{6, "agent/executor/erase/trial.go", "", `package erase

import (
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/agent/executor"
)

var _ = func() executor.Result { return executor.Failed(baremetalv1.Reason_TRIAL_FAILED, "a trial") }
`},
	},
	"Add a provider": {
		{1, "agent/provider/trial/trial.go", "", `// Package trial switches a machine that exists in memory only.
package trial

import (
	"context"
	"sync/atomic"

	"github.com/ingot-metal/ingot/agent/host/effect"
	"github.com/ingot-metal/ingot/agent/provider"
)

// Provider switches one machine, which is on at first.
type Provider struct{ off atomic.Bool }

// Name returns the value of spec.provider.
func (p *Provider) Name() string { return "trial" }

// Simulated reports that the machine does not exist.
func (p *Provider) Simulated() bool { return true }

// PowerState returns whether the machine is on.
func (p *Provider) PowerState(ctx context.Context, _ provider.Target) (provider.PowerState, error) {
	if p.off.Load() {
		return provider.PowerOff, ctx.Err()
	}
	return provider.PowerOn, ctx.Err()
}

// SetPower switches the machine.
func (p *Provider) SetPower(
	ctx context.Context, _ provider.Target, _ effect.Cause, want provider.PowerState,
) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case want != provider.PowerOn && want != provider.PowerOff:
		return effect.ErrInvalid
	}
	p.off.Store(want == provider.PowerOff)
	return nil
}
`},
		{2, "agent/provider/trial/trial_test.go", "", `package trial_test

import (
	"testing"

	"github.com/ingot-metal/ingot/agent/provider"
	"github.com/ingot-metal/ingot/agent/provider/providertest"
	"github.com/ingot-metal/ingot/agent/provider/trial"
)

func TestTrial(t *testing.T) {
	providertest.Run(t, func(t *testing.T) providertest.Subject {
		return providertest.Subject{Provider: &trial.Provider{}, Target: provider.Target{MachineID: "m-1"}}
	})
}
`},
		{3, "agent/cmdline/run.go", "cfg.Providers = site.Providers{p.Name(): p}",
			"\t\tcfg.Providers[\"trial\"] = &trial.Provider{}\n"},
		{3, "agent/cmdline/run.go", `"github.com/ingot-metal/ingot/agent/provider/fake"`,
			"\t\"github.com/ingot-metal/ingot/agent/provider/trial\"\n"},
		{4, "controller/domain/fleet/route.go", `{"provider_action"},`, "\t\"trial\":       {\"power\"},\n"},
	},
}
