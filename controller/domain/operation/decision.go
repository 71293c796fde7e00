package operation

import (
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// Decision is what to store next and whom to tell.
type Decision struct {
	// Changed is false when the event changes nothing; then only Refusal, Grant and Ack may be set.
	Changed bool
	// OpChanged is set when Op differs from the stored one; a finished operation never does.
	OpChanged bool
	Op        Operation
	// Commands that are new or have changed, in order.
	Commands []*Command
	// NewCommand points to the one of Commands to insert, nil for none.
	NewCommand *Command
	Notes      []Note
	Machine    MachineChange
	// Refusal is the typed answer to an event that may not happen (a cancel of a finished operation, a grant that is
	// not given).
	Refusal *fleet.Refusal
	// Grant is set when the asking executor may start.
	Grant bool
	// FlagRollback is set when the asking agent has been rolled back to a copy of its memory.
	FlagRollback bool
	// Ack is set when the result is stored, or was before, and need not be sent again.
	Ack bool
	// Resend is set when the latest command has not been acknowledged by an executor that is connected.
	Resend bool
	// AttemptFailed is why an install attempt of the node failed, whether or not the operation goes on with another; empty
	// for none.
	AttemptFailed string
	// CancelOnAgent names a command whose executor should stop.
	CancelOnAgent string
}

// Note is one event of the operation, for watchers. Phase is the operation's at that moment: one decision may make
// several notes on the way from PENDING to its end.
type Note struct {
	Kind, Step, Message string
	Phase               Phase
}

// MachineChange is what the decision does to the machine's row.
type MachineChange struct {
	SetPhase     fleet.Phase // empty: unchanged
	ClearCurrent bool
	// Fence sets unresolved_command_id.
	Fence string
	// Unfence clears unresolved_command_id if it holds this command.
	Unfence string
	// Repeated settles a command of an earlier operation whose work this one has done again.
	Repeated   string `json:",omitempty"`
	Conditions []ConditionChange
	// ImageDigest is the verified digest of the image that the machine now runs.
	ImageDigest string
	// Unprovision is set when data on the system disk is about to be destroyed: the digest of its image is no longer
	// valid.
	Unprovision bool
	// Raise adds a cause of NeedsIntervention; nil adds none.
	Raise *RaisedCause
	// Happened is what the decision has proven, as far as it takes causes of NeedsIntervention away.
	Happened fleet.Happened
	// Assign changes what the machine boots from the network; nil leaves it.
	Assign *Assignment
	// RevokeHosts revokes the certificates of the systems that the machine has run so far.
	RevokeHosts bool
	// Agentless goes with RevokeHosts: the system that is on the disk from now on has no agent.
	Agentless bool `json:",omitempty"`
	// ProbeAddress is where a system without an agent can be probed; empty keeps the known one.
	ProbeAddress string `json:",omitempty"`
}

// RaisedCause is a cause of NeedsIntervention with what it is about, and the reason and message that a screen shows.
type RaisedCause struct {
	Cause           fleet.Cause
	Subject         string
	Reason, Message string
}

// Assignment is what a machine boots from the network from now on, under a token of its own.
type Assignment struct{ Mode, OperationID, Token string }

// ConditionChange sets one condition.
type ConditionChange struct {
	Type            fleet.ConditionType
	Status          bool
	Reason, Message string
}

// The waits of the engine.
const (
	// LookAgain bounds how long an operation that waits for an event sleeps before it looks by itself.
	LookAgain = 30 * time.Second
	// NobodyGrace is how long an operation waits on a machine that nothing can reach.
	NobodyGrace = 30 * time.Second
	// CancelPatience is how long a cancel waits for the executor's answer.
	CancelPatience = 30 * time.Second
	// InstallerPatience bounds how long a machine that boots the installer may take to report from there. It is a third of
	// the step's time-out, if that is less.
	InstallerPatience = 5 * time.Minute
	// InstallerLost is how long an installer with a granted command may be silent. Then the machine is switched off
	// through its BMC, which proves that nothing writes any more.
	InstallerLost = 60 * time.Second

	retryBase = 500 * time.Millisecond
	retryMax  = 30 * time.Second
)

// Backoff is the wait before the given retry, counted from 1: exponential, bounded.
func Backoff(retry int) time.Duration {
	d := retryBase
	for i := 1; i < retry && d < retryMax; i++ {
		d *= 2
	}
	return min(d, retryMax)
}

// Earliest returns the earlier of two times.
func Earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
