//go:build recipes

package recipes

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
	"Add a kind of operation": {
		{1, "api/baremetal/v1/plan.proto", "TestHardware test_hardware = 28;",
			"    // Reads the boot id.\n    Trial trial = 29;\n"},
		{1, "api/baremetal/v1/plan.proto", "message ResetDevices {}",
			"\n// Trial reads the machine's boot id.\nmessage Trial {}\n"},
		{1, "api/fleet/v1/fleet.proto", "TestHardwareAction test_hardware = 37;", "    TrialAction trial = 38;\n"},
		{1, "api/fleet/v1/fleet.proto", "message ResetDevicesAction {}",
			"\n// TrialAction reads the boot id of the agent's machine.\nmessage TrialAction {}\n"},
		{2, "internal/evidence/evidence.go", "DevicesReset =", "\tTrialBoot = \"trial_boot\"\n"},
		{3, "controller/domain/kind/trial.go", "", `package kind

import (
	"time"

	"github.com/ingot-metal/ingot/internal/evidence"
)

// Trial reads the machine's boot id.
const Trial Kind = "trial"

var trial = Declaration{
	Kind:     Trial,
	Step:     true,
	Runs:     true,
	Action:   "trial",
	Harm:     Harmless,
	Timeout:  60 * time.Second,
	AsksHost: true,
	Evidence: evidence.TrialBoot,
	Started:  "Reading the boot id",
	Done:     "Boot id read",
}
`},
		{3, "controller/domain/kind/kind.go", "workflowStage, uncordon, resetDevices, testHardware,", "\ttrial,\n"},
		{4, "agent/host/host.go", "CapTest  =", "\tCapTrial = \"trial\"\n"},
		{4, "agent/host/linux.go", "caps = append(caps, CapReset, CapTest)", "\t\tcaps = append(caps, CapTrial)\n"},
		{5, "agent/executor/trial/trial.go", "", `// Package trial reads the machine's boot id. It is done when that was read.
package trial

import (
	"context"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/host"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Declaration of the action.
var Declaration = executor.Declaration{Action: "trial", Harm: executor.Harmless}

// Machine has a boot id; *host.Linux is one.
type Machine interface {
	Identity(ctx context.Context) (host.Identity, error)
}

// Executor is the executor of TrialAction.
type Executor struct{ machine Machine }

// New makes the executor for the machine that it runs on.
func New(m Machine) *Executor { return &Executor{machine: m} }

// Prepare has nothing to remember.
func (e *Executor) Prepare(context.Context, *fleetv1.CommandSpec) (any, *executor.Result, error) {
	return struct{}{}, nil, nil
}

// Execute reads the boot id.
func (e *Executor) Execute(ctx context.Context, _ executor.Job) (executor.Result, error) {
	who, err := e.machine.Identity(ctx)
	if err != nil {
		return executor.Result{}, err
	}
	return executor.Succeeded(map[string]string{evidence.TrialBoot: who.BootID}), nil
}

// Resume starts from the top: nothing has been changed.
func (e *Executor) Resume(context.Context, executor.Job) (executor.Verdict, error) { return executor.GoOn(), nil }
`},
		{5, "agent/action/list.go", "{Declaration: resetdevices.Declaration,",
			"\t{Declaration: trial.Declaration, own: plainly(trial.New)},\n"},
		{5, "agent/action/list.go", `"github.com/ingot-metal/ingot/agent/executor/testhardware"`,
			"\t\"github.com/ingot-metal/ingot/agent/executor/trial\"\n"},
		{6, "agent/executor/trial/trial_test.go", "", `package trial_test

import (
	"context"
	"testing"

	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/agent/executor"
	"github.com/ingot-metal/ingot/agent/executor/executortest"
	"github.com/ingot-metal/ingot/agent/executor/trial"
	"github.com/ingot-metal/ingot/agent/host"
)

type machine struct{}

func (machine) Identity(context.Context) (host.Identity, error) { return host.Identity{BootID: "b"}, nil }

func TestKilledAtEachEffect(t *testing.T) {
	executortest.Run(t, trial.Declaration, func(*testing.T) executortest.World {
		return executortest.World{
			Spec:     &fleetv1.CommandSpec{CommandId: "c-1", Action: &fleetv1.CommandSpec_Trial{Trial: &fleetv1.TrialAction{}}},
			Executor: func() executor.Executor { return trial.New(machine{}) },
			Effects:  func() int { return 0 },
		}
	})
}
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
