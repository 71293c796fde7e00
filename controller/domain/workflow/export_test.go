package workflow

import "github.com/ingot-metal/ingot/controller/domain/fleet"

// NodeStates lists every node state.
func NodeStates() []fleet.NodeState {
	return []fleet.NodeState{
		fleet.Discovered, fleet.Pending, fleet.Installing, fleet.Installed, fleet.InstallFailed, fleet.BootstrapIssued,
		fleet.Enrolling, fleet.Active, fleet.Offline, fleet.Quarantined, fleet.Reprovision, fleet.Migrating,
		fleet.Deprovisioning, fleet.Draining, fleet.Retired, fleet.Removing, fleet.Deleted,
	}
}
