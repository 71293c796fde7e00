package workflow

import (
	"cmp"
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	ms "github.com/ingot-metal/ingot/internal/maasstatus"
)

// Expectation is one row of the table of what a provider's state may be while a node is in a state of ours.
type Expectation struct {
	Node fleet.NodeState
	// States that go with it; nil means any.
	States []ms.State
}

var (
	// entering is every state on the way in.
	entering = []ms.State{ms.StateNew, ms.StateCommissioning, ms.StateTesting, ms.StateReady, ms.StateAllocated,
		ms.StateDeploying, ms.StateDeployed}
	// leaving is every state that a decommission passes: it releases, may allocate to erase, and may deploy again.
	leaving = []ms.State{ms.StateDeployed, ms.StateReady, ms.StateReleasing, ms.StateAllocated, ms.StateDeploying}
)

// Expectations lists, for every node state, what the provider may say. Anything else is drift: a condition, for a
// person to look at. Nothing is done about it by itself.
func Expectations() []Expectation {
	return []Expectation{
		{fleet.Discovered, nil},
		{fleet.Pending, nil},
		{fleet.BootstrapIssued, nil},
		{fleet.Enrolling, entering},
		{fleet.Installing, entering},
		{fleet.Installed, []ms.State{ms.StateDeployed}},
		{fleet.InstallFailed, nil},
		{fleet.Active, []ms.State{ms.StateDeployed}},
		{fleet.Offline, []ms.State{ms.StateDeployed}},
		{fleet.Quarantined, nil},
		{fleet.Reprovision, leaving},
		{fleet.Migrating, leaving},
		{fleet.Deprovisioning, leaving},
		{fleet.Draining, leaving},
		{fleet.Retired, []ms.State{ms.StateDeployed, ms.StateReady}},
		{fleet.Removing, []ms.State{ms.StateReady, ms.StateReleasing, ms.StateAbsent}},
		{fleet.Deleted, nil},
	}
}

// ProviderDrift returns why a provider's state does not fit a node's; empty if it does, or is not known.
func ProviderDrift(n fleet.NodeState, s ms.State) string {
	if s == ms.StateUnknown {
		return ""
	}
	for _, e := range Expectations() {
		if e.Node == n && (e.States == nil || slices.Contains(e.States, s)) {
			return ""
		}
	}
	return "the provider says " + string(s) + ", and the node is " + string(n)
}

// reached has the states of the provider that show a stage as done, whatever its cause.
var reached = map[string][]ms.State{
	CreateInMAAS: {ms.StateNew, ms.StateCommissioning, ms.StateTesting, ms.StateReady, ms.StateAllocated,
		ms.StateDeploying, ms.StateDeployed},
	CommissionRun: {ms.StateCommissioning, ms.StateTesting, ms.StateReady, ms.StateAllocated, ms.StateDeploying,
		ms.StateDeployed},
	WaitForReady:  {ms.StateReady, ms.StateAllocated, ms.StateDeploying, ms.StateDeployed},
	DeployViaMAAS: {ms.StateDeploying, ms.StateDeployed},
	WaitDeployed:  {ms.StateDeployed},
	ReleaseMAAS:   {ms.StateReady, ms.StateNew},
	RemoveMAAS:    {ms.StateAbsent},
}

// providerShows judges a stage by what the provider was seen to say.
func providerShows(stage string, f StageFacts) Verdict {
	says := cmp.Or(string(f.ProviderState), "nothing yet")
	switch {
	case f.ProviderHeldBy != "":
		return failed(notOurs + f.ProviderHeldBy)
	case stage == PowerOffMAAS && f.ProviderPower != "off":
		return failed("the provider says that the machine's power is " + cmp.Or(f.ProviderPower, "unknown"))
	case stage == PowerOffMAAS:
		return pass(map[string]string{"provider_power": "off"})
	case !slices.Contains(reached[stage], f.ProviderState):
		return failed("the provider says " + says)
	}
	return pass(map[string]string{"provider_state": says})
}
