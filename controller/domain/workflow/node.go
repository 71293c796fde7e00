package workflow

import "github.com/ingot-metal/ingot/controller/domain/fleet"

// Move is one change of a node's state. By is its trigger: "workflow", "system", or "admin" where the operator who
// started the workflow is who moves the node.
type Move struct {
	To fleet.NodeState
	By string
}

const (
	byAdmin    = "admin"
	bySystem   = "system"
	byWorkflow = "workflow"
)

// At is how a node moves when a stage begins.
func At(stage string, from fleet.NodeState) []Move {
	switch {
	case stage == DisableNode && in(from, fleet.Active, fleet.Offline, fleet.Quarantined):
		return []Move{{fleet.Draining, byWorkflow}}
	case stage == RetireNode && from == fleet.Draining:
		return []Move{{fleet.Retired, byWorkflow}}
	case stage == RetireNode && !in(from, fleet.Retired, fleet.Removing, fleet.Deleted):
		return []Move{{fleet.Retired, byAdmin}}
	case stage == RemoveRecord && from == fleet.Retired:
		return []Move{{fleet.Removing, byWorkflow}}
	case stage == ApproveNode && from == fleet.BootstrapIssued:
		return []Move{{fleet.Enrolling, byWorkflow}}
	case stage == ApproveNode && from == fleet.Discovered:
		return []Move{{fleet.Pending, byAdmin}}
	case (stage == InstallNode || stage == DeployViaMAAS) && from == fleet.Pending:
		return []Move{{fleet.Installing, byWorkflow}}
	case stage == WaitForEnrollment && from == fleet.Installing:
		return []Move{{fleet.Installed, byWorkflow}}
	}
	return nil
}

// Ending is how a node moves when its workflow reaches a state without work.
func Ending(w Workflow, from fleet.NodeState, agentLive bool) []Move {
	switch w.State {
	case Completed, Reconciled:
		return arriving(w, from)
	case FailedRetryable, FailedManual:
		return falling(w, from, agentLive)
	case Cancelled:
		if w.Kind == Onboarding && in(from, fleet.Enrolling) {
			return []Move{{fleet.Quarantined, byWorkflow}}
		}
		if w.Kind == Onboarding && in(from, fleet.Installing, fleet.Installed) {
			return []Move{{fleet.Quarantined, bySystem}}
		}
		return falling(w, from, agentLive)
	}
	return nil
}

// dirty reports whether the state that a decommission has left on the machine is unknown: it has begun to change it, or
// has failed at a stage that does. No stage of an onboarding counts as one.
func (w Workflow) dirty() bool {
	s, _ := FindFor(w.Kind, w.Stage, w.Provider)
	return w.Unclean || s.Touches && (w.State == FailedRetryable || w.State == FailedManual)
}

func arriving(w Workflow, from fleet.NodeState) []Move {
	switch {
	case w.Mode == FullDecommission && from == fleet.Removing:
		return []Move{{fleet.Deleted, byWorkflow}}
	case w.Mode == FullDecommission:
		return nil
	case from == fleet.Draining:
		return []Move{{fleet.Offline, byWorkflow}, {fleet.Active, bySystem}}
	case from == fleet.Offline:
		return []Move{{fleet.Active, bySystem}}
	case from == fleet.Installing:
		return []Move{{fleet.Installed, byWorkflow}, {fleet.Active, byWorkflow}}
	case in(from, fleet.Installed, fleet.Enrolling):
		return []Move{{fleet.Active, byWorkflow}}
	}
	return nil
}

// falling leaves the states that stand for work: draining becomes offline, and active where the agent proves it. A
// machine that is not clean is quarantined.
func falling(w Workflow, from fleet.NodeState, agentLive bool) []Move {
	switch {
	case w.dirty() && !in(from, fleet.Quarantined, fleet.Retired, fleet.Removing, fleet.Deleted):
		return []Move{{fleet.Quarantined, bySystem}}
	case from == fleet.Draining && agentLive:
		return []Move{{fleet.Offline, byWorkflow}, {fleet.Active, bySystem}}
	case from == fleet.Draining:
		return []Move{{fleet.Offline, byWorkflow}}
	case from == fleet.Removing:
		return []Move{{fleet.Retired, byWorkflow}}
	}
	return nil
}

// Resetting is how a node moves before a clean start.
func Resetting(w Workflow, from fleet.NodeState) []Move {
	if w.Kind == Decommission && from == fleet.Retired {
		return []Move{{fleet.Offline, byAdmin}}
	}
	return nil
}

func in(s fleet.NodeState, list ...fleet.NodeState) bool {
	for _, l := range list {
		if s == l {
			return true
		}
	}
	return false
}

// Startable refuses a workflow on a node that is not in a state to begin it.
func Startable(k Kind, m Mode, node fleet.NodeState) *fleet.Refusal {
	refuse := func(text string) *fleet.Refusal {
		return &fleet.Refusal{Reason: "NODE_TRANSITION_ILLEGAL", Message: "the node is " + string(node) + "; " + text}
	}
	switch {
	case k == Onboarding && !in(node, fleet.Discovered, fleet.Pending, fleet.BootstrapIssued, fleet.Enrolling,
		fleet.Installed, fleet.Quarantined):
		return refuse("only a new one can be onboarded")
	case k == Decommission && m != FullDecommission &&
		!in(node, fleet.Active, fleet.Offline, fleet.Draining, fleet.Quarantined):
		return refuse("this mode is for one that is active or offline")
	case in(node, fleet.Installing, fleet.Reprovision, fleet.Migrating, fleet.Deprovisioning, fleet.Removing):
		return refuse("wait for the work that it stands for, or cancel that")
	}
	return nil
}

// DefaultPath returns the path of an onboarding without one in the request: a machine with a token has a system
// already.
func DefaultPath(node fleet.NodeState) string {
	if in(node, fleet.BootstrapIssued, fleet.Enrolling) {
		return PathAdopt
	}
	return PathInstall
}

// Continuable refuses another attempt on a node that has left the states in which its workflow works. contested is set
// when two machines answer in its name: then the attempt could change either.
func Continuable(w Workflow, node fleet.NodeState, contested bool) *fleet.Refusal {
	switch {
	case node == fleet.Quarantined && (contested || w.Kind != Decommission):
		return &fleet.Refusal{Reason: "MACHINE_QUARANTINED",
			Message: "the node is quarantined; `ingot why` says for what, and how it leaves"}
	case w.Kind == Onboarding && in(node, fleet.Discovered, fleet.Pending, fleet.Installing, fleet.Installed,
		fleet.BootstrapIssued, fleet.Enrolling):
	case w.Mode == FullDecommission && node != fleet.Deleted:
	case w.Kind == Decommission && in(node, fleet.Active, fleet.Offline, fleet.Draining, fleet.Quarantined):
	default:
		return &fleet.Refusal{Reason: "NODE_TRANSITION_ILLEGAL",
			Message: "the node is " + string(node) + " by now, and this workflow cannot go on from there; cancel it"}
	}
	return nil
}
