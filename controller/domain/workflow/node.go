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
	case stage == DisableNode && in(from, Active, Offline, Quarantined):
		return []Move{{Draining, byWorkflow}}
	case stage == RetireNode && from == Draining:
		return []Move{{Retired, byWorkflow}}
	case stage == RetireNode && !in(from, Retired, Removing, Deleted):
		return []Move{{Retired, byAdmin}}
	case stage == RemoveRecord && from == Retired:
		return []Move{{Removing, byWorkflow}}
	case stage == ApproveNode && from == BootstrapIssued:
		return []Move{{Enrolling, byWorkflow}}
	case stage == ApproveNode && from == Discovered:
		return []Move{{NodePending, byAdmin}}
	case (stage == InstallNode || stage == DeployViaMAAS) && from == NodePending:
		return []Move{{Installing, byWorkflow}}
	case stage == WaitForEnrollment && from == Installing:
		return []Move{{Installed, byWorkflow}}
	}
	return nil
}

// Ending is how a node moves when its workflow reaches a state in which nobody works on it.
func Ending(w Workflow, from fleet.NodeState, agentLive bool) []Move {
	switch w.State {
	case Completed, Reconciled:
		return arriving(w, from)
	case FailedRetryable, FailedManual:
		return falling(w, from, agentLive)
	case Cancelled:
		if w.Kind == Onboarding && in(from, Enrolling) {
			return []Move{{Quarantined, byWorkflow}}
		}
		if w.Kind == Onboarding && in(from, Installing, Installed) {
			return []Move{{Quarantined, bySystem}}
		}
		return falling(w, from, agentLive)
	}
	return nil
}

// dirty reports whether nobody knows what a decommission has left on the machine: it has begun to change it, or has
// failed at a stage that does. No stage of an onboarding counts as one.
func (w Workflow) dirty() bool {
	s, _ := FindFor(w.Kind, w.Stage, w.Provider)
	return w.Unclean || s.Touches && (w.State == FailedRetryable || w.State == FailedManual)
}

func arriving(w Workflow, from fleet.NodeState) []Move {
	switch {
	case w.Mode == FullDecommission && from == Removing:
		return []Move{{Deleted, byWorkflow}}
	case w.Mode == FullDecommission:
		return nil
	case from == Draining:
		return []Move{{Offline, byWorkflow}, {Active, bySystem}}
	case from == Offline:
		return []Move{{Active, bySystem}}
	case from == Installing:
		return []Move{{Installed, byWorkflow}, {Active, byWorkflow}}
	case in(from, Installed, Enrolling):
		return []Move{{Active, byWorkflow}}
	}
	return nil
}

// falling leaves the states that stand for work: draining becomes offline, and active where the agent proves it. A
// machine that is not clean is quarantined.
func falling(w Workflow, from fleet.NodeState, agentLive bool) []Move {
	switch {
	case w.dirty() && !in(from, Quarantined, Retired, Removing, Deleted):
		return []Move{{Quarantined, bySystem}}
	case from == Draining && agentLive:
		return []Move{{Offline, byWorkflow}, {Active, bySystem}}
	case from == Draining:
		return []Move{{Offline, byWorkflow}}
	case from == Removing:
		return []Move{{Retired, byWorkflow}}
	}
	return nil
}

// Resetting is how a node moves before a clean start.
func Resetting(w Workflow, from fleet.NodeState) []Move {
	if w.Kind == Decommission && from == Retired {
		return []Move{{Offline, byAdmin}}
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
	case k == Onboarding && !in(node, Discovered, NodePending, BootstrapIssued, Enrolling, Installed, Quarantined):
		return refuse("only a new one can be onboarded")
	case k == Decommission && m != FullDecommission && !in(node, Active, Offline, Draining, Quarantined):
		return refuse("this mode is for one that is active or offline")
	case in(node, Installing, Reprovision, Migrating, Deprovisioning, Removing):
		return refuse("wait for the work that it stands for, or cancel that")
	}
	return nil
}

// DefaultPath is how a machine is onboarded when nobody says: one that was given a token has a system already.
func DefaultPath(node fleet.NodeState) string {
	if in(node, BootstrapIssued, Enrolling) {
		return PathAdopt
	}
	return PathInstall
}

// Continuable refuses another attempt on a node that has left the states in which its workflow works. contested says
// that two machines answer in its name: then nobody knows which one the attempt would change.
func Continuable(w Workflow, node fleet.NodeState, contested bool) *fleet.Refusal {
	switch {
	case node == Quarantined && (contested || w.Kind != Decommission):
		return &fleet.Refusal{Reason: "MACHINE_QUARANTINED",
			Message: "the node is quarantined; `ingot why` says for what, and how it leaves"}
	case w.Kind == Onboarding && in(node, Discovered, NodePending, Installing, Installed, BootstrapIssued, Enrolling):
	case w.Mode == FullDecommission && node != Deleted:
	case w.Kind == Decommission && in(node, Active, Offline, Draining, Quarantined):
	default:
		return &fleet.Refusal{Reason: "NODE_TRANSITION_ILLEGAL",
			Message: "the node is " + string(node) + " by now, and this workflow cannot go on from there; cancel it"}
	}
	return nil
}
