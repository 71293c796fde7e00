package operation

import (
	"maps"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// Phase is the state of an operation.
type Phase string

// The phases of an operation.
const (
	Pending   Phase = "PENDING"
	Running   Phase = "RUNNING"
	Succeeded Phase = "SUCCEEDED"
	Failed    Phase = "FAILED"
	Canceled  Phase = "CANCELED"
)

// StepState is the state of a step.
type StepState string

// The states of a step.
const (
	StepWaiting   StepState = "WAITING"
	StepRunning   StepState = "RUNNING"
	StepSucceeded StepState = "SUCCEEDED"
	StepFailed    StepState = "FAILED"
)

// CommandState is the controller's view of a command.
type CommandState string

// The states of a command.
const (
	Queued          CommandState = "QUEUED"
	Sent            CommandState = "SENT"
	Acked           CommandState = "ACKED"
	Granted         CommandState = "GRANTED"
	Done            CommandState = "DONE"
	CommandCanceled CommandState = "CANCELED"
	Expired         CommandState = "EXPIRED"
	Unknown         CommandState = "UNKNOWN"
)

// Outcome is an executor's result of a command.
type Outcome string

// The outcomes of a command.
const (
	OutcomeSucceeded Outcome = "SUCCEEDED"
	OutcomeFailed    Outcome = "FAILED"
	OutcomeRefused   Outcome = "REFUSED"
	OutcomeCanceled  Outcome = "CANCELED"
	OutcomeUnknown   Outcome = "UNKNOWN"
)

// Why nothing moves right now.
const (
	WaitAgent      = "WAITING_FOR_AGENT"
	WaitResult     = "WAITING_FOR_RESULT"
	WaitEvidence   = "WAITING_FOR_EVIDENCE"
	WaitRetry      = "RETRY_BACKOFF"
	WaitCancelling = "CANCELLING"
	// WaitSite: the site's agent has not applied what the machine is to boot.
	WaitSite = "WAITING_FOR_SITE"
	// WaitNobody: no agent can reach the machine, and none will before an operator changes that.
	WaitNobody = "NOBODY_REACHES_MACHINE"
	// WaitBudget: so many machines are being worked on destructively that a budget leaves no room for this one.
	WaitBudget = "WAITING_FOR_BUDGET"
	// WaitInstaller: the machine was sent into the installer, which has not reported.
	WaitInstaller = "WAITING_FOR_INSTALLER"
)

// Error is why an operation ended without success.
type Error struct {
	Code      string            `json:"code"`
	Message   string            `json:"message"`
	Retryable bool              `json:"retryable"`
	Details   map[string]string `json:"details,omitempty"`
}

// Operation is the stored state of one operation and its steps.
type Operation struct {
	ID              string
	MachineID       string
	Type            fleet.OperationType
	PlanID          string
	Phase           Phase
	CurrentStep     int
	CurrentStage    string
	WaitReason      string
	WakeAt          time.Time // zero when finished
	CancelRequested time.Time // zero when not requested
	Error           *Error
	Evidence        map[string]string
	Version         int64
	// Destructive: it loses data, and needs a slot of the budgets that its machine falls under.
	Destructive bool
	// Interrupts: it takes a machine in service out of service, and needs a slot of the budgets for that.
	Interrupts bool
	CreatedAt  time.Time
	StartedAt  time.Time
	FinishedAt time.Time
	Steps      []Step
}

// Capabilities of an installer beside those that every one has.
const (
	CapMirror    = "mirror"
	CapDataDisks = "data_disks"
)

// Step is one unit of the plan.
type Step struct {
	Name       string
	Kind       kind.Kind
	Timeout    time.Duration
	MaxRetries int
	// Mode is the kind's variant. "bmc" of a reboot goes out of band. For set_phase it is the phase, for repave and erase
	// the way into the installer, and for workflow_stage the stage.
	Mode string
	// Agentless: the system that a repave writes has no agent, and proves itself by phoning home.
	Agentless bool `json:",omitempty"`
	// Needs are capabilities of the installer that a repave takes beside those that every one has.
	Needs      []string `json:",omitempty"`
	State      StepState
	RetryCount int
	RetryAt    time.Time
	Message    string
	Evidence   map[string]string
	StartedAt  time.Time
	FinishedAt time.Time
}

// Command is the latest attempt of the current step.
type Command struct {
	ID              string
	StepIdx         int
	Attempt         int
	Kind            kind.Kind
	State           CommandState
	ExecutorID      string
	ExecutorRole    string
	ExecutorStateID string
	Digest          []byte
	BootIDBefore    string
	GrantSeq        uint64
	Deadline        time.Time
	SentAt          time.Time
	AckedAt         time.Time
	GrantedAt       time.Time
	ClaimedAt       time.Time
	FinishedAt      time.Time
	Outcome         Outcome
	Reason          string
	Message         string
	Evidence        map[string]string
	SettledBy       string
}

// Settled reports whether nothing more can come of the command, or no operation waits for it any more.
func (c *Command) Settled() bool { return c == nil || IsFinalCommand(c.State) }

// World is what Decide may know besides the operation itself.
type World struct {
	Machine fleet.Facts
	// TargetBootID and TargetAgentID are those of the newest session of the machine's own agent; empty when it never had
	// one. TargetAgentLive is set while the session is open.
	TargetBootID    string
	TargetAgentID   string
	TargetAgentLive bool
	Candidates      []fleet.Candidate
	Provider        string
	// SlotHeld reports whether the budgets have admitted the operation. Only those with NeedsSlot need it.
	SlotHeld bool
	// Boot is what the machine would boot from the network.
	Boot Boot
	// Unfit is why the machine cannot be installed by the current step, nil where it may. It follows from the facts that
	// are known before the machine leaves its system.
	Unfit *fleet.Refusal
	// ExecutorSilentFrom is the time from which the silence of the current command's executor counts.
	ExecutorSilentFrom time.Time
	ExecutorLive       bool
	// CaughtUpAt is until when agents have time to come back after their controllers were away; no deadline ends before.
	CaughtUpAt time.Time `json:",omitzero"`
	// LastGrantSeq is the highest grant number seen under the state_id of the asking agent.
	LastGrantSeq uint64
	// Stage is what the stages of a workflow judge by, read for their operations only; the evidence in it is that of
	// earlier attempts.
	Stage workflow.StageFacts
	// StaleEpoch is set when the event's agent has a newer session than the one that it came in.
	StaleEpoch bool
	// NewCommandID names the command that this decision may make, NewBootToken the capability of a new assignment.
	NewCommandID string
	NewBootToken string
	// Install is how the installation of the node stands that the operation makes.
	Install Install
}

// Install is how the installation of a node stands. The rule of attempts is the node's, not the plan's: the retries of
// a step are tries within one attempt, and after the last attempt a person must look.
type Install struct {
	// Counted is set when the operation is installing the node: a failure now is a failed attempt.
	Counted bool
	// Failed attempts so far, and how many there may be.
	Failed, Max int
}

// Last reports whether no attempt follows the one that is under way.
func (i Install) Last() bool { return i.Failed+1 >= i.Max }

// The modes of a boot assignment.
const (
	BootInstaller = "installer"
	BootRescue    = "rescue"
	BootDisk      = "disk"
)

// Boot is what a machine boots from the network, and whether its site knows. It is read for operations that need it.
type Boot struct {
	// Mode is one of the modes above; OperationID whose it is.
	Mode, OperationID string
	// Revision of the site's document that carries it, and the one that the site agent serves by.
	Revision, Applied int64
	// InstallerAgentID was certified under this assignment; empty before.
	InstallerAgentID string
	// Segments is the number of provisioning networks of the machine's site.
	Segments int
	// IdentityLevel is how the operation's newest installer proved its machine, and IdentityTrust the basis of trust in
	// its TPM. Both are empty before there is an installer.
	IdentityLevel, IdentityTrust string
	// InstallerReady is set when the image catalogue has an installer.
	InstallerReady bool
	// PhonedHome is the report of the system that the operation has written, as evidence; nil before it has phoned home.
	PhonedHome map[string]string `json:",omitempty"`
}

// Served reports whether the site's agent serves by the assignment.
func (b Boot) Served() bool { return b.Applied >= b.Revision }

// Snapshot is all that a decision is made of.
type Snapshot struct {
	Op Operation
	// Command is the latest attempt of the current step, nil before the first.
	Command *Command
	World   World
}

// Clone is a copy that shares no evidence and no steps.
func (o Operation) Clone() Operation {
	o.Steps = slices.Clone(o.Steps)
	for i := range o.Steps {
		o.Steps[i].Evidence = maps.Clone(o.Steps[i].Evidence)
	}
	o.Evidence = maps.Clone(o.Evidence)
	return o
}

// Kinds returns the kinds of the steps.
func (o Operation) Kinds() []kind.Kind {
	out := make([]kind.Kind, 0, len(o.Steps))
	for _, s := range o.Steps {
		out = append(out, s.Kind)
	}
	return out
}

// WritesSystem reports whether a step writes a system to the machine's disk.
func (o Operation) WritesSystem() bool {
	return slices.ContainsFunc(o.Steps, func(s Step) bool { return kind.Of(s.Kind).WritesSystem })
}

// WritesAgentless reports whether the operation writes a system without an agent.
func (o Operation) WritesAgentless() bool {
	return slices.ContainsFunc(o.Steps, func(s Step) bool { return kind.Of(s.Kind).WritesSystem && s.Agentless })
}

// Clone is a copy that shares no evidence; nil of nil.
func (c *Command) Clone() *Command {
	if c == nil {
		return nil
	}
	d := *c
	d.Evidence = maps.Clone(c.Evidence)
	return &d
}

// PathMedia is the way into the installer by virtual media.
const PathMedia = "media"
