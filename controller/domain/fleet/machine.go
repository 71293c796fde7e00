// Package fleet holds the domain nouns of the controller and the small pure rules over them: phases, conditions,
// effective state, what may be asked of a machine when, and which agent executes a step.
//
// It imports no I/O. Stored enumerations are strings that equal the names in api/baremetal/v1.
package fleet

import "time"

// Phase is the operator's intent for a machine. Only ENTER_MAINTENANCE and EXIT_MAINTENANCE change it.
type Phase string

// The phases, as stored and as named in the API.
const (
	FactoryReady Phase = "FACTORY_READY"
	Ready        Phase = "READY"
	Maintenance  Phase = "MAINTENANCE"
)

// NodeState is the inventory record's coarse place in its life.
type NodeState string

// The node states, as stored and as named in the API without their prefix.
const (
	Discovered      NodeState = "discovered"
	BootstrapIssued NodeState = "bootstrap_issued"
	Enrolling       NodeState = "enrolling"
	Pending         NodeState = "pending"
	Installing      NodeState = "installing"
	InstallFailed   NodeState = "install_failed"
	Installed       NodeState = "installed"
	Active          NodeState = "active"
	Offline         NodeState = "offline"
	Quarantined     NodeState = "quarantined"
	Reprovision     NodeState = "reprovision"
	Deprovisioning  NodeState = "deprovisioning"
	Migrating       NodeState = "migrating"
	Draining        NodeState = "draining"
	Retired         NodeState = "retired"
	Removing        NodeState = "removing"
	Deleted         NodeState = "deleted"
)

// ConditionType names one observed or derived boolean of a machine.
type ConditionType string

// The conditions of a machine.
const (
	Reachable         ConditionType = "Reachable"
	BMCReachable      ConditionType = "BMCReachable"
	Provisioned       ConditionType = "Provisioned"
	InCustomerCluster ConditionType = "InCustomerCluster"
	Drained           ConditionType = "Drained"
	Degraded          ConditionType = "Degraded"
	NeedsIntervention ConditionType = "NeedsIntervention"
	OperationCanceled ConditionType = "OperationCanceled"
	RMA               ConditionType = "RMA"
	RetiredFlag       ConditionType = "Retired"
	// ProviderDrift: the machine's state at its provider does not fit its node state.
	ProviderDrift ConditionType = "ProviderDrift"
	// HardwareFault: the machine's BMC reports that a part of its hardware is not well.
	HardwareFault ConditionType = "HardwareFault"
	// RAIDDegraded: a software RAID of the machine's system lacks a disk.
	RAIDDegraded ConditionType = "RAIDDegraded"
)

// Condition is the value of one condition.
type Condition struct {
	Type           ConditionType
	Status         bool
	Reason         string
	Message        string
	LastTransition time.Time
}

// Facts is what the rules of this package look at in a machine.
type Facts struct {
	// MachineID is for the commands that refusals name; "MACHINE" stands for it where it is empty.
	MachineID  string
	Phase      Phase
	NodeState  NodeState
	Conditions map[ConditionType]bool
	// Unknown has the conditions that are false only because their witness is silent.
	Unknown map[ConditionType]bool `json:",omitempty"`
	// Intervention is the reason and message of the condition NeedsIntervention, where it is true.
	Intervention    Attention
	ActiveOperation bool
	// ActiveWorkflow is set when a workflow is pending, running or compensating on the machine.
	ActiveWorkflow    bool
	UnresolvedCommand string
	// Repeatable is the operation type of the unresolved command, if that command can have no further effect and only
	// lacks its evidence. The same work may then be asked for again.
	Repeatable OperationType `json:",omitempty"`
	Deleted    bool
	// Agentless: the machine's system was installed without an agent.
	Agentless bool `json:",omitempty"`
	// Freeze is the fleet's; its zero value is none.
	Freeze Freeze
}
