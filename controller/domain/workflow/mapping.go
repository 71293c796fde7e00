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
	netbooting = []fleet.NodeState{Discovered, NodePending, Installing, Installed}
	never      = []fleet.NodeState{Discovered, NodePending, Installing, InstallFailed, Installed, BootstrapIssued,
		Enrolling}
	inLife = []fleet.NodeState{Active, Offline, Quarantined, Draining, Retired}
)

// Mapping lists which node states go with which workflow states. A pair that is not in it is a violation. Completed and
// reconciled rows hold at the moment of the end: the node's life goes on.
func Mapping() []Pair {
	o, d := Onboarding, Decommission
	return []Pair{
		{o, Pending, nil, concat(netbooting, BootstrapIssued, Enrolling)},
		{o, Running, nil, concat(netbooting, BootstrapIssued, Enrolling)},
		{o, Compensating, nil, concat(netbooting, BootstrapIssued, Enrolling, Quarantined)},
		{o, FailedRetryable, nil, concat(netbooting, BootstrapIssued, Enrolling, InstallFailed)},
		{o, FailedManual, nil, concat(netbooting, BootstrapIssued, Enrolling, InstallFailed, Quarantined)},
		{o, Cancelled, nil, []fleet.NodeState{Discovered, NodePending, BootstrapIssued, Quarantined, Retired, Deleted,
			Enrolling, InstallFailed, Active, Offline}},
		{o, Completed, nil, []fleet.NodeState{Active}},
		{o, Reconciled, nil, []fleet.NodeState{Active}},

		{d, Pending, nil, inLife},
		{d, Running, nil, inLife},
		{d, Compensating, nil, inLife},
		{d, FailedRetryable, nil, []fleet.NodeState{Active, Offline, Retired, Quarantined}},
		{d, FailedManual, nil, []fleet.NodeState{Active, Offline, Retired, Quarantined}},
		{d, Cancelled, nil, []fleet.NodeState{Active, Offline, Retired, Quarantined, Deleted}},
		{d, Completed, []Mode{SoftReset, Reimage, StorageCleanup}, []fleet.NodeState{Active}},
		{d, Reconciled, []Mode{SoftReset, Reimage, StorageCleanup}, []fleet.NodeState{Active}},
		{d, Pending, full, concat(never, Removing)},
		{d, Running, full, concat(never, Removing)},
		{d, Compensating, full, concat(never, Removing)},
		{d, FailedRetryable, full, never},
		{d, FailedManual, full, never},
		{d, Cancelled, full, never},
		{d, Completed, full, []fleet.NodeState{Deleted}},
		{d, Reconciled, full, []fleet.NodeState{Deleted}},
	}
}

func concat(a []fleet.NodeState, more ...fleet.NodeState) []fleet.NodeState {
	return slices.Concat(a, more)
}

// Violation says why a node state does not go with a workflow; empty if it does.
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
