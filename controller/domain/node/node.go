// Package node is the table of node states: which change may follow which, who may cause it, what must hold first, and
// what an installer's report means. It is pure; the store makes the changes.
package node

import (
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// State is the inventory record's coarse place in its life.
type State = baremetalv1.NodeState

// The states, without the prefix of the wire.
const (
	Discovered      = baremetalv1.NodeState_NODE_STATE_DISCOVERED
	Pending         = baremetalv1.NodeState_NODE_STATE_PENDING
	Installing      = baremetalv1.NodeState_NODE_STATE_INSTALLING
	InstallFailed   = baremetalv1.NodeState_NODE_STATE_INSTALL_FAILED
	Installed       = baremetalv1.NodeState_NODE_STATE_INSTALLED
	Active          = baremetalv1.NodeState_NODE_STATE_ACTIVE
	Offline         = baremetalv1.NodeState_NODE_STATE_OFFLINE
	Quarantined     = baremetalv1.NodeState_NODE_STATE_QUARANTINED
	Reprovision     = baremetalv1.NodeState_NODE_STATE_REPROVISION
	Deprovisioning  = baremetalv1.NodeState_NODE_STATE_DEPROVISIONING
	Migrating       = baremetalv1.NodeState_NODE_STATE_MIGRATING
	BootstrapIssued = baremetalv1.NodeState_NODE_STATE_BOOTSTRAP_ISSUED
	Enrolling       = baremetalv1.NodeState_NODE_STATE_ENROLLING
	Draining        = baremetalv1.NodeState_NODE_STATE_DRAINING
	Retired         = baremetalv1.NodeState_NODE_STATE_RETIRED
	Removing        = baremetalv1.NodeState_NODE_STATE_REMOVING
	Deleted         = baremetalv1.NodeState_NODE_STATE_DELETED
)

const prefix = "NODE_STATE_"

// Name is the state as it is stored, logged and shown: lower case, without the prefix of the wire.
func Name(s State) string { return strings.ToLower(strings.TrimPrefix(s.String(), prefix)) }

// Parse is the inverse of Name; it also takes the name of the wire. What it does not know is unspecified.
func Parse(name string) State {
	name = strings.TrimPrefix(strings.ToUpper(name), prefix)
	return State(baremetalv1.NodeState_value[prefix+name])
}

// States lists every state, in the order of the wire.
func States() []State {
	out := make([]State, 0, len(baremetalv1.NodeState_name)-1)
	for n := range baremetalv1.NodeState_name {
		if n != 0 {
			out = append(out, State(n))
		}
	}
	slices.Sort(out)
	return out
}

// InProgress reports whether the state stands for work under way: an operation or workflow must own a node that is in
// one.
func InProgress(s State) bool {
	return slices.Contains([]State{Enrolling, Installing, Reprovision, Deprovisioning, Migrating, Draining, Removing}, s)
}

// Resting reports whether a node may stay in the state without anybody working on it: a quarantined one goes back
// there.
func Resting(s State) bool {
	return slices.Contains([]State{Discovered, Pending, InstallFailed, Installed, Active, Offline, BootstrapIssued,
		Retired}, s)
}

// MayClear refuses to take a node out of quarantine that was quarantined out of work, to which it does not go back.
// cameFrom is the state before the quarantine, and why its reason.
func MayClear(s, cameFrom State, why string) *fleet.Refusal {
	if s != Quarantined || Resting(cameFrom) {
		return nil
	}
	return &fleet.Refusal{Reason: "NODE_GUARD_FAILED", Message: "the node was " + Name(cameFrom) +
		" when it was quarantined (" + why + "), and no operation does that work any more; resume its workflow, or move it " +
		"to draining or retired"}
}

// Holds reports whether the disks of a node hold a system that work ran on, or may have. One in service does, and any
// with a verified system that is not being overwritten. Of one that has left the inventory it was asked before.
// cameFrom is the state before a quarantine.
func Holds(s, cameFrom State, provisioned bool) bool {
	if s == Quarantined {
		s = cameFrom
	}
	return !Gone(s) && (provisioned || slices.Contains([]State{Active, Offline, Draining}, s))
}

// Gone reports whether the node is out of the active inventory: the condition Retired follows these states.
func Gone(s State) bool { return s == Retired || s == Removing || s == Deleted }

// Trigger is who causes a change.
type Trigger string

// The triggers, as node_state_log stores them.
const (
	// Admin is a person, or a program that acts for one, with a bearer token.
	Admin Trigger = "admin"
	// System is the controller itself: heartbeats, enrolment, quarantine, a group's auto-promotion.
	System Trigger = "system"
	// Workflow is the operation or workflow that owns the node's work.
	Workflow Trigger = "workflow"
	// NodeReport is an installer that reports by itself.
	NodeReport Trigger = "node_report"
)

// Triggers lists every trigger.
func Triggers() []Trigger { return []Trigger{Admin, System, Workflow, NodeReport} }

// Transition is one row of the table.
type Transition struct {
	From, To State
	// Only Triggers may cause the change.
	Triggers []Trigger
	// Guard is what must hold besides; empty for nothing.
	Guard Guard
	// Work is set when To stands for work in progress and needs an owner from the same transaction on.
	Work bool
}

// Find looks for the row of a change.
func Find(from, to State, by Trigger) (Transition, bool) {
	for _, t := range table {
		if t.From == from && t.To == to && slices.Contains(t.Triggers, by) {
			return t, true
		}
	}
	return Transition{}, false
}

// From lists the ways out of a state, by the order of the wire. Only deleted has none.
func From(s State) []Transition {
	var out []Transition
	for _, t := range table {
		if t.From == s {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b Transition) int { return int(a.To) - int(b.To) })
	return out
}

// Table lists every row.
func Table() []Transition { return slices.Clone(table) }
