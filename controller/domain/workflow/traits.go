package workflow

import "github.com/ingot-metal/ingot/controller/domain/fleet"

// ProviderMAAS is the provider of machines that a MAAS region installs.
const ProviderMAAS = "maas"

// The ways of an onboarding.
const (
	// PathInstall writes an image and waits for the system that it makes.
	PathInstall = "install"
	// PathAdopt takes the system that is there, once its agent has enrolled.
	PathAdopt = "adopt"
)

// Node states that workflows move between. They are the values of the API's NodeState.
const (
	Discovered      fleet.NodeState = "discovered"
	NodePending     fleet.NodeState = "pending"
	Installing      fleet.NodeState = "installing"
	Installed       fleet.NodeState = "installed"
	InstallFailed   fleet.NodeState = "install_failed"
	BootstrapIssued fleet.NodeState = "bootstrap_issued"
	Enrolling       fleet.NodeState = "enrolling"
	Active          fleet.NodeState = "active"
	Offline         fleet.NodeState = "offline"
	Quarantined     fleet.NodeState = "quarantined"
	Reprovision     fleet.NodeState = "reprovision"
	Migrating       fleet.NodeState = "migrating"
	Deprovisioning  fleet.NodeState = "deprovisioning"
	Draining        fleet.NodeState = "draining"
	Retired         fleet.NodeState = "retired"
	Removing        fleet.NodeState = "removing"
	Deleted         fleet.NodeState = "deleted"
)

// NodeStates lists every node state.
func NodeStates() []fleet.NodeState {
	return []fleet.NodeState{
		Discovered, NodePending, Installing, Installed, InstallFailed, BootstrapIssued, Enrolling, Active, Offline,
		Quarantined, Reprovision, Migrating, Deprovisioning, Draining, Retired, Removing, Deleted,
	}
}

// Traits are what of a machine decides which stages its workflow has.
type Traits struct {
	Provider string
	// BMC says that the machine can be switched from outside.
	BMC bool
	// GPU says that the machine's inventory shows a GPU.
	GPU bool
	// Path of an onboarding: PathInstall or PathAdopt.
	Path string
}

func (t Traits) maas() bool { return t.Provider == ProviderMAAS }
