package fleet

import "github.com/ingot-metal/ingot/internal/failure"

// OperationType names a kind of work, as in the API.
type OperationType string

// The operation types.
const (
	Reboot           OperationType = "REBOOT"
	Reimage          OperationType = "REIMAGE"
	EnterMaintenance OperationType = "ENTER_MAINTENANCE"
	ExitMaintenance  OperationType = "EXIT_MAINTENANCE"
	Netboot          OperationType = "NETBOOT"
	Reconfigure      OperationType = "RECONFIGURE"
	RunPlan          OperationType = "RUN_PLAN"
	JoinCluster      OperationType = "JOIN_CLUSTER"
	Upgrade          OperationType = "UPGRADE"
	RMAType          OperationType = "RMA"
	Onboard          OperationType = "ONBOARD"
	Decommission     OperationType = "DECOMMISSION"
	TestHardware     OperationType = "TEST_HARDWARE"
	// NodeTransition changes the node state and does no work; it ends in the transaction that creates it.
	NodeTransition OperationType = "NODE_TRANSITION"
)

// typeRule is one row of the table of operation types.
type typeRule struct {
	// phases in which the operation may be started.
	phases []Phase
	// plan that runs when the request names none; empty where the type needs one.
	plan string
	// housekeeping changes intent only: it touches no machine and proves nothing about it.
	housekeeping bool
}

var typeRules = map[OperationType]typeRule{
	Reboot:      {phases: []Phase{Ready, Maintenance}, plan: "reboot"},
	Reconfigure: {phases: []Phase{Ready, Maintenance}, plan: "net-reconfig"},
	Netboot:     {phases: []Phase{Maintenance}, plan: "netboot"},
	Reimage:     {phases: []Phase{Maintenance}, plan: "repave"},
	RunPlan:     {phases: []Phase{Ready, Maintenance}},
	EnterMaintenance: {phases: []Phase{FactoryReady, Ready, Maintenance}, plan: "enter-maintenance",
		housekeeping: true},
	ExitMaintenance: {phases: []Phase{Maintenance}, plan: "exit-maintenance", housekeeping: true},
	JoinCluster:     {phases: []Phase{Maintenance}, plan: "join"},
	Upgrade:         {phases: []Phase{Maintenance}, plan: "upgrade"},
	RMAType:         {phases: []Phase{Maintenance}, plan: "rma"},
	TestHardware:    {phases: []Phase{Maintenance}, plan: "test-hardware"},
	Onboard:         {phases: []Phase{Maintenance}},
	Decommission:    {phases: []Phase{Maintenance}},
	NodeTransition: {phases: []Phase{FactoryReady, Ready, Maintenance}, plan: "node-transition",
		housekeeping: true},
}

// OperationTypes lists every type.
func OperationTypes() []OperationType {
	out := make([]OperationType, 0, len(typeRules))
	for t := range typeRules {
		out = append(out, t)
	}
	return out
}

// Known reports whether the type exists at all.
func Known(t OperationType) bool { _, ok := typeRules[t]; return ok }

// DefaultPlan names the plan that runs when a request names none.
func DefaultPlan(t OperationType) string { return typeRules[t].plan }

// Housekeeping reports whether the type changes intent only.
func Housekeeping(t OperationType) bool { return typeRules[t].housekeeping }

// ValidatedPhase returns the phase in which a call that only validates judges a machine of phase p. A client asks
// before it takes the machine into maintenance, so that a refusal leaves the machine in service. ENTER_MAINTENANCE
// itself is judged on the machine as it is.
func ValidatedPhase(p Phase, t OperationType) Phase {
	if t == EnterMaintenance {
		return p
	}
	return Maintenance
}

// Refusal is why an operation may not start. Reason is one of the API's closed set.
type Refusal struct {
	Reason  string
	Message string
}

// Failure returns the refusal as the error of a call.
func (r *Refusal) Failure() *failure.Error { return failure.Precondition(r.Reason, "%s", r.Message) }

// Admit decides whether an operation may start on a machine. planDestructive is set when its plan loses data, which is
// gated like a reimage whatever the type. It returns nil when it may.
func Admit(f Facts, t OperationType, planDestructive bool) *Refusal {
	return AdmitPlan(f, t, PlanTraits{Destructive: planDestructive})
}

// PlanTraits are what of a plan matters to whether it may start.
type PlanTraits struct {
	// Destructive: it loses data or takes the machine away.
	Destructive bool
	// ReturnsFromRMA: its first step takes the flag RMA off.
	ReturnsFromRMA bool
	// Removes: it is of the workflow that takes a retired machine out of the inventory.
	Removes bool
	// LeavesSystem: it works on the BMC's account alone, whatever the machine is used for.
	LeavesSystem bool
}

// AdmitPlan is Admit with all that matters of the plan. On a blocked machine one thing may start: the RMA that finishes
// the one it is flagged for.
func AdmitPlan(f Facts, t OperationType, p PlanTraits) *Refusal {
	planDestructive := p.Destructive
	finishesRMA := t == RMAType && p.ReturnsFromRMA
	switch {
	case f.Deleted:
		return &Refusal{"MACHINE_DELETED", "the machine has been deleted; register it again as a new record"}
	case outOfUse(f) && !p.Removes:
		return f.whyRetired()
	case f.Conditions[RMA] && !finishesRMA:
		return f.returned()
	case f.ActiveOperation:
		return &Refusal{"MACHINE_BUSY", "another operation is active on the machine; wait for it or cancel it (`ingot why " +
			f.id() + "` names both commands)"}
	case !phaseAllows(f.Phase, t, planDestructive) && !p.LeavesSystem:
		return &Refusal{"WRONG_PHASE", wrongPhaseMessage(f.Phase, t, planDestructive)}
	case Housekeeping(t):
		return nil
	case f.Freeze.Active():
		return f.Freeze.refusal()
	case f.NodeState == Quarantined:
		return &Refusal{"MACHINE_QUARANTINED", "the machine is quarantined; `ingot why " + f.id() +
			"` says for what, and how it leaves"}
	case f.UnresolvedCommand != "" && t != f.Repeatable:
		return f.unresolved()
	}
	return nil
}

// unresolved names what ends the wait for a command's outcome.
func (f Facts) unresolved() *Refusal {
	settle := "settle it with `ingot settle " + f.id() + " " + f.UnresolvedCommand +
		" --verdict happened`, or did-not-happen"
	if f.Repeatable != "" {
		return &Refusal{
			"COMMAND_UNRESOLVED",
			"command " + f.UnresolvedCommand + " has ended, and its evidence is missing; ask " +
				"for " + string(f.Repeatable) + " again, or " + settle,
		}
	}
	return &Refusal{"COMMAND_UNRESOLVED", "command " + f.UnresolvedCommand +
		" may still be acting on the machine; wait for its result, or " + settle}
}

// outOfUse reports whether the machine is out of service, by its node state or by an admin's flag.
func outOfUse(f Facts) bool {
	return f.Conditions[RetiredFlag] || f.NodeState == Retired || f.NodeState == Removing
}

func (f Facts) id() string {
	if f.MachineID == "" {
		return "MACHINE"
	}
	return f.MachineID
}

// whyRetired names what brings a retired machine back: the node's way out of its state, or the end of an admin's flag.
func (f Facts) whyRetired() *Refusal {
	switch f.NodeState {
	case Retired:
		return &Refusal{"MACHINE_BLOCKED", "the node is retired; bring it back with `ingot node transition " + f.id() +
			" offline`, or take it out with `ingot decommission " + f.id() + " --mode full-decommission`"}
	case Removing:
		return &Refusal{"MACHINE_BLOCKED",
			"the node is being removed; its workflow must be cancelled first, then the node brought back to offline"}
	}
	return &Refusal{"MACHINE_BLOCKED", "the machine is flagged Retired; an admin clears the flag with `ingot flag " +
		f.id() + " Retired --off`"}
}

// returned names what ends a flag RMA. The operation that finishes a return runs in maintenance alone.
func (f Facts) returned() *Refusal {
	text := "the machine is flagged RMA; an admin clears the flag with `ingot flag " + f.id() + " RMA --off`"
	if f.Phase == Maintenance && !f.ActiveOperation {
		text += ", or finish the return with `ingot rma " + f.id() + " --return`"
	}
	return &Refusal{"MACHINE_BLOCKED", text}
}

func phaseAllows(p Phase, t OperationType, planDestructive bool) bool {
	if planDestructive && p != Maintenance {
		return false
	}
	for _, ok := range typeRules[t].phases {
		if p == ok {
			return true
		}
	}
	return false
}

func wrongPhaseMessage(p Phase, t OperationType, planDestructive bool) string {
	if t == ExitMaintenance && p == Ready {
		return string(t) + " is not allowed in phase " + string(p) + "; the machine is in service already"
	}
	if phaseAllows(Maintenance, t, planDestructive) {
		return string(t) + " is not allowed in phase " + string(p) +
			"; call EnterMaintenance first (ingot enter-maintenance MACHINE)"
	}
	return string(t) + " is not allowed in phase " + string(p)
}
