package explain

import (
	"fmt"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// Facts are the known facts about a machine at one moment.
type Facts struct {
	Now     time.Time
	Machine *baremetalv1.Machine
	// Op is the operation to explain: the one that was asked for, the active one, or the last; nil if there never was one.
	Op *operation.Operation
	// Named is set when Op was asked for by its id.
	Named bool
	// PlanID and Params are those of Op.
	PlanID string
	Params map[string]string
	// Commands are Op's, in the order of step and attempt.
	Commands []operation.Command
	// Unresolved is the command that fences the machine, nil if it is not fenced, and the operation that it is of.
	Unresolved   *operation.Command
	UnresolvedOp string
	// Agents are those that have acted, or might act, on the machine, in the order of their enrolment.
	Agents []Agent
	// Site is nil where the machine's site is not known.
	Site *Site
	Boot Boot
	// Freeze is the fleet's; its zero value is none.
	Freeze fleet.Freeze
	// Budget is which budget leaves no room for Op, and BudgetUntil when a rate has room again; empty and zero otherwise.
	Budget      string
	BudgetUntil time.Time
	// BudgetName and BudgetRaise are of that budget: its name, and the flags that make room for one more.
	BudgetName, BudgetRaise string
	// LeftBehind are machines whose operation has ended and that still hold a slot.
	LeftBehind []string
	// Offers are what may be asked of the machine now.
	Offers Offers
	// Causes are those for which the machine needs a person, the gravest first.
	Causes []MachineCause
	// Words are what people have said of the machine, the newest first.
	Words []Override
	// Rollout is one that has not ended and that the machine is part of, nil if there is none.
	Rollout *Rollout
	// Controllers is how many hold their lease.
	Controllers int
	// Progress is that of the current step.
	Progress Progress
	// Last is the newest event of Op.
	Last Event
	// InstallerReady is set when the image catalogue has an installer.
	InstallerReady bool
	// Workflow is the machine's workflow that has not ended, nil if there is none, as it is since WorkflowSince.
	Workflow      *workflow.Workflow
	WorkflowSince time.Time
	// Model is the machine's hardware model, from its inventory; empty where that is not known.
	Model string
	// Checks are the health checks of a node on its way in; empty of other nodes.
	Checks []node.HealthCheck
	// Normal is how long the current kind of step takes.
	Normal Baseline
}

// WithBaselines adds how long the current kind of step takes on machines like this one.
func (f Facts) WithBaselines(n Baselines) Facts {
	if f.Op != nil && f.Op.CurrentStep < len(f.Op.Steps) {
		f.Normal = n.For(f.Op.Steps[f.Op.CurrentStep].Kind, f.Machine.GetSpec().GetGroup(), f.Model,
			f.Machine.GetStatus().GetSimulated())
	}
	return f
}

// Agent is an agent as the database knows it.
type Agent struct {
	fleet.Candidate
	Locked bool
	// Ended is when its last session ended; zero while one is open, and for an agent that never had one.
	Ended time.Time
	// CertExpires and CertRevoked are of its newest certificate; CertRevoked is zero if it is good.
	CertExpires, CertRevoked time.Time
}

// Site is what a machine's site serves and has seen.
type Site struct {
	Name string
	// Revision of the newest document, and the one that the site's agent serves by.
	Revision, Applied int64
	AppliedAt         time.Time
	// SilentSince is when an agent of the site was heard last, while all of them are silent; zero otherwise.
	SilentSince time.Time
	Segments    []Segment
	// Leases are those of the machine's own MAC addresses.
	Leases []Lease
	// Strangers are MAC addresses of no known machine, the last seen first.
	Strangers []UnknownAgent
}

// Segment is one provisioning network.
type Segment struct {
	Name string
	// Mode is "dhcp", "proxy" or "static".
	Mode string
	// State is "up", or why it is not served; empty before the site's agent has said anything.
	State string
	// ForeignDHCP is another DHCP server that answers there.
	ForeignDHCP        string
	PoolSize, PoolUsed int
	LeaseTime          time.Duration
}

// Lease is an address that one of the machine's interfaces was given.
type Lease struct {
	MAC, Segment, Address string
	// Given is when it was given or renewed last, as far as its end shows.
	Given time.Time
}

// UnknownAgent is an unknown MAC address that has asked to boot.
type UnknownAgent struct {
	MAC, Segment string
	LastSeen     time.Time
}

// Boot is what the machine boots from the network.
type Boot struct {
	Mode, OperationID string
	Revision          int64
	UpdatedAt         time.Time
	// InstallerAgentID was certified under the assignment; empty before.
	InstallerAgentID string
	// ContenderAt is when another key asked for a certificate under the same assignment.
	ContenderAt time.Time
	// Impostor is why a system was refused last that asked to be the machine's installer; zero if none was.
	Impostor Impostor
}

// Impostor is a system that could not prove to be the machine.
type Impostor struct {
	Reason, Message string
	At              time.Time
}

// Progress is an executor's report of how far it has come.
type Progress struct {
	Percent int
	Message string
	At      time.Time
}

// Event is an entry of an operation's history.
type Event struct {
	At            time.Time
	Kind, Message string
}

// MachineCause is one reason for which a machine needs a person, as the cure table of controller/domain/fleet knows it.
type MachineCause struct {
	Cause fleet.Cause
	// Subject is the plan or the command that the cause is about; empty for most.
	Subject, Reason, Message, OperationID string
	Since                                 time.Time
}

// Rollout is one that the machine waits in, or that its operation is of.
type Rollout struct {
	ID, State, WaitReason string
	// Digest identifies the approved content, and CreatedBy may not approve it.
	Digest, CreatedBy string
	// Wave is the machine's, and At the one under way, of Waves; 0 before the first.
	Wave, At, Waves int
	// Waiting: the machine's turn has not come.
	Waiting bool
}

// Name is the rollout's id and its wave, as texts say it.
func (r *Rollout) Name() string {
	return fmt.Sprintf("rollout %s, wave %d of %d", r.ID, r.Wave, r.Waves)
}
