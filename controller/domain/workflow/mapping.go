package workflow

import (
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// Pair is one row of the mapping between node states and workflow states.
type Pair struct {
	Kind  Kind
	State State
	// Modes that the row is of; nil means all.
	Modes []Mode
	Nodes []fleet.NodeState
}

// A node that never was in service has states of its own on the way in, and may be decommissioned from any of them.
var (
	netbooting = []fleet.NodeState{fleet.Discovered, fleet.Pending, fleet.Installing, fleet.Installed}
	never      = []fleet.NodeState{
		fleet.Discovered,
		fleet.Pending,
		fleet.Installing,
		fleet.InstallFailed,
		fleet.Installed,
		fleet.BootstrapIssued,
		fleet.Enrolling,
	}
	inLife = []fleet.NodeState{fleet.Active, fleet.Offline, fleet.Quarantined, fleet.Draining, fleet.Retired}
)

// Mapping lists which node states go with which workflow states. A pair that is not in it is a violation. Completed and
// reconciled rows hold at the moment of the end: the node's life goes on.
func Mapping() []Pair {
	o, d := Onboarding, Decommission
	return []Pair{
		{o, Pending, nil, concat(netbooting, fleet.BootstrapIssued, fleet.Enrolling)},
		{o, Running, nil, concat(netbooting, fleet.BootstrapIssued, fleet.Enrolling)},
		{o, Compensating, nil, concat(netbooting, fleet.BootstrapIssued, fleet.Enrolling, fleet.Quarantined)},
		{o, FailedRetryable, nil, concat(netbooting, fleet.BootstrapIssued, fleet.Enrolling, fleet.InstallFailed)},
		{
			o,
			FailedManual,
			nil,
			concat(netbooting, fleet.BootstrapIssued, fleet.Enrolling, fleet.InstallFailed, fleet.Quarantined),
		},
		{
			o,
			Cancelled,
			nil,
			[]fleet.NodeState{
				fleet.Discovered,
				fleet.Pending,
				fleet.BootstrapIssued,
				fleet.Quarantined,
				fleet.Retired,
				fleet.Deleted,
				fleet.Enrolling,
				fleet.InstallFailed,
				fleet.Active,
				fleet.Offline,
			},
		},
		{o, Completed, nil, []fleet.NodeState{fleet.Active}},
		{o, Reconciled, nil, []fleet.NodeState{fleet.Active}},

		{d, Pending, nil, inLife},
		{d, Running, nil, inLife},
		{d, Compensating, nil, inLife},
		{d, FailedRetryable, nil, []fleet.NodeState{fleet.Active, fleet.Offline, fleet.Retired, fleet.Quarantined}},
		{d, FailedManual, nil, []fleet.NodeState{fleet.Active, fleet.Offline, fleet.Retired, fleet.Quarantined}},
		{d, Cancelled, nil, []fleet.NodeState{fleet.Active, fleet.Offline, fleet.Retired, fleet.Quarantined, fleet.Deleted}},
		{d, Completed, []Mode{SoftReset, Reimage, StorageCleanup}, []fleet.NodeState{fleet.Active}},
		{d, Reconciled, []Mode{SoftReset, Reimage, StorageCleanup}, []fleet.NodeState{fleet.Active}},
		{d, Pending, full, concat(never, fleet.Removing)},
		{d, Running, full, concat(never, fleet.Removing)},
		{d, Compensating, full, concat(never, fleet.Removing)},
		{d, FailedRetryable, full, never},
		{d, FailedManual, full, never},
		{d, Cancelled, full, never},
		{d, Completed, full, []fleet.NodeState{fleet.Deleted}},
		{d, Reconciled, full, []fleet.NodeState{fleet.Deleted}},
	}
}

func concat(a []fleet.NodeState, more ...fleet.NodeState) []fleet.NodeState {
	return slices.Concat(a, more)
}

// Violation returns why a node state does not fit a workflow; empty if it does.
func Violation(w Workflow, node fleet.NodeState) string {
	for _, p := range Mapping() {
		if p.Kind == w.Kind && p.State == w.State && (p.Modes == nil || slices.Contains(p.Modes, w.Mode)) &&
			slices.Contains(p.Nodes, node) {
			return ""
		}
	}
	return "a node that is " + string(node) + " does not go with a workflow " + string(w.Kind) + " " + string(w.Mode) +
		" that is " + string(w.State)
}
