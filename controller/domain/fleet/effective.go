package fleet

import (
	"maps"
	"slices"
)

// EffectiveState is one word for a screen.
type EffectiveState string

// The effective states, as named in the API.
const (
	StateNew             EffectiveState = "NEW"
	StateIdle            EffectiveState = "IDLE"
	StateBusy            EffectiveState = "BUSY"
	StateMaintenanceIdle EffectiveState = "MAINTENANCE_IDLE"
	StateAttention       EffectiveState = "ATTENTION"
	StateBlocked         EffectiveState = "BLOCKED"
)

// EffectiveStates lists every effective state, in the order of the rules of Evaluate.
func EffectiveStates() []EffectiveState {
	return []EffectiveState{StateBlocked, StateAttention, StateBusy, StateMaintenanceIdle, StateNew, StateIdle}
}

// Node states by what they mean for the effective state.
var (
	// outOfService are the states of a machine that has left the active inventory.
	outOfService = []NodeState{Retired, Removing, Deleted}
	// needsPerson are the states that only a person ends.
	needsPerson = []NodeState{Quarantined, InstallFailed}
	// workInProgress are the states that stand for work under way.
	workInProgress = []NodeState{Enrolling, Installing, Reprovision, Deprovisioning, Migrating, Draining, Removing}
)

// Settles returns the node states that decide the effective state whatever is observed of the machine.
func Settles() []NodeState { return slices.Concat(outOfService, needsPerson, workInProgress) }

// OutOfService returns the node states whose machines are BLOCKED.
func OutOfService() []NodeState { return slices.Clone(outOfService) }

// NeedsPerson returns the node states whose machines are in ATTENTION until a person acts.
func NeedsPerson() []NodeState { return slices.Clone(needsPerson) }

// WorkInProgress returns the node states that make a machine BUSY.
func WorkInProgress() []NodeState { return slices.Clone(workInProgress) }

// Reasons why a machine is in ATTENTION besides the causes of NeedsIntervention. All are names of the API's Reason.
const (
	AttentionQuarantined   = "MACHINE_QUARANTINED"
	AttentionInstallFailed = "INSTALL_ATTEMPTS_EXHAUSTED"
	AttentionFence         = "COMMAND_UNRESOLVED"
	AttentionUnprovisioned = "NOT_PROVISIONED"
	AttentionOffline       = "NODE_OFFLINE"
	AttentionUnverified    = "NODE_NOT_VERIFIED"
	AttentionInactive      = "NODE_NOT_ACTIVE"
	AttentionUnreachable   = "MACHINE_UNREACHABLE"
	AttentionNotObserved   = "NOT_OBSERVED"
)

// Attention is why an operator must act on a machine. The zero value means that none must.
type Attention struct {
	// Reason is a name of the API's Reason. Message describes the fault and names the next step.
	Reason, Message string
}

// Evaluate answers "may I use this machine, and if not, who has to do what?". It returns the effective state, and for
// ATTENTION the reason. The first rule that matches wins.
func Evaluate(f Facts) (EffectiveState, Attention) {
	switch {
	case f.Conditions[RetiredFlag] || f.Conditions[RMA] || f.Deleted || slices.Contains(outOfService, f.NodeState):
		return StateBlocked, Attention{}
	case f.urgent() != Attention{}:
		return StateAttention, f.urgent()
	case f.ActiveOperation || f.ActiveWorkflow || slices.Contains(workInProgress, f.NodeState):
		return StateBusy, Attention{}
	case f.Phase == Maintenance:
		return StateMaintenanceIdle, Attention{}
	case f.Phase == FactoryReady:
		return StateNew, Attention{}
	case f.missing() != Attention{}:
		return StateAttention, f.missing()
	default:
		return StateIdle, Attention{}
	}
}

// InService reports whether the machine is IDLE, or would be but for the work that is under way on it. A machine in
// service that is quarantined still runs what it ran.
func InService(f Facts) bool {
	f.ActiveOperation, f.ActiveWorkflow = false, false
	if f.NodeState == Draining || f.NodeState == Quarantined {
		f.NodeState, f.Conditions = Active, maps.Clone(f.Conditions)
		delete(f.Conditions, NeedsIntervention)
	}
	return Effective(f) == StateIdle
}

// Effective returns the effective state alone.
func Effective(f Facts) EffectiveState {
	state, _ := Evaluate(f)
	return state
}

// Schedulable reports whether a machine in the state may carry workloads now. It is the same as the state IDLE.
func (s EffectiveState) Schedulable() bool { return s == StateIdle }

// urgent returns what needs a person whatever else goes on.
func (f Facts) urgent() Attention {
	switch {
	case f.Conditions[NeedsIntervention]:
		return f.Intervention.or(Attention{"INTERVENTION_REQUIRED",
			"an operator must look at the machine; `ingot why` says what is known"})
	case f.NodeState == Quarantined:
		return Attention{AttentionQuarantined, "the node is quarantined; `ingot why` says for what, and how it leaves"}
	case f.NodeState == InstallFailed:
		return Attention{AttentionInstallFailed, "the installation has failed; reimage the machine again"}
	case f.UnresolvedCommand != "":
		return Attention{AttentionFence, "the outcome of command " + f.UnresolvedCommand +
			" is unknown; settle it with `ingot settle`"}
	}
	return Attention{}
}

// missing returns what a machine in phase READY lacks to be used.
func (f Facts) missing() Attention {
	switch {
	case !f.Conditions[Provisioned]:
		return Attention{AttentionUnprovisioned,
			"no verified system is on the disk; enter maintenance and reimage the machine"}
	case f.Unknown[Reachable]:
		return Attention{AttentionNotObserved,
			"nothing is known to be wrong, and the agent that would know is silent; `ingot why` names it"}
	case f.NodeState == Offline && f.Agentless:
		return Attention{
			AttentionOffline,
			"the machine has no agent, and does not answer its site's probe; see to its power " +
				"and its network",
		}
	case f.NodeState == Offline:
		return Attention{AttentionOffline, "the machine's agent has been silent; see to its power and its network"}
	case f.NodeState == Installed:
		return Attention{AttentionUnverified,
			"the installation waits to be verified; when it is, run `ingot node transition MACHINE active`"}
	case f.NodeState != Active:
		return Attention{AttentionInactive, "the node is " + string(f.NodeState) +
			", not active; `ingot why` names the next step"}
	case !f.Conditions[Reachable]:
		return Attention{AttentionUnreachable, "nothing reaches the machine; see to its power and its network"}
	}
	return Attention{}
}

func (a Attention) or(b Attention) Attention {
	if a.Reason == "" {
		return b
	}
	return a
}
