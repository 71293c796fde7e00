package operation

import (
	"bytes"
	"time"
)

// Event is something that happened, or a wish to look.
type Event interface{ event() }

// Evaluate asks the engine to see whether anything is due: a start, a deadline, a retry, a free executor.
type Evaluate struct{}

// Due is Evaluate for an operation whose wake_at has come. Before that time it decides nothing.
type Due struct{}

// ClockSlack is how far the clocks of two controllers may lie apart before a job finds its operation not yet due.
const ClockSlack = time.Second

// AckedByAgent: the executor has made the command durable.
type AckedByAgent struct{ CommandID, AgentID string }

// GrantAsked is an executor's request for a grant.
type GrantAsked struct {
	CommandID, AgentID, StateID, BootID string
	Seq                                 uint64
	// Nonce is of this ask alone: another ask under the same number has another.
	Nonce  []byte
	Digest []byte
	// Earlier are the numbers of the asks for the same command that the asking memory knows.
	Earlier []uint64
	// SessionBootID is the boot id of the asking session, which BootID must be.
	SessionBootID string
	// Epoch is that of the asking session: only an agent's newest session is granted anything.
	Epoch int64
}

// Repeats reports whether the ask is the one of this number, command and nonce, come again because its answer was lost.
// Another nonce under the same number is of another copy of the memory. Without a nonce nothing repeats.
func (e GrantAsked) Repeats(seq uint64, commandID string, nonce []byte) bool {
	return e.Seq == seq && e.CommandID == commandID && len(nonce) > 0 && bytes.Equal(e.Nonce, nonce)
}

// Resulted is an executor's result.
type Resulted struct {
	CommandID, AgentID, StateID string
	Outcome                     Outcome
	Reason, Message             string
	Evidence                    map[string]string
	Retryable                   bool
	// SessionBootID is the boot id of the session that carried the result, Epoch the session's.
	SessionBootID string
	Epoch         int64
}

// SessionOpened: an agent has opened a session with this memory and this boot.
type SessionOpened struct {
	AgentID, StateID, BootID string
	// OfTarget is set for the agent of the operation's own machine.
	OfTarget bool
	// Installer is set for the RAM system that was booted on the operation's machine.
	Installer bool
	// RolledBack is set when the agent came back with an older copy of its memory.
	RolledBack bool
	// Epoch is the session's. One that a newer session of the agent has overtaken no longer counts.
	Epoch int64
}

// CancelAsked is a client's wish to stop. Why is said where it is not simply that: the machine is blocked, or retired.
type CancelAsked struct{ Actor, Why string }

// By names who asked, and why.
func (e CancelAsked) By() string {
	if e.Why == "" {
		return "by " + e.Actor
	}
	return "by " + e.Actor + ": " + e.Why
}

// Reported is the report of an installer that reports by itself, on the installation that the operation waits for.
type Reported struct {
	// Status is "started", "progress", "complete" or "failed".
	Status string
	Error  string
	// Actor is the opaque name of the report's sender.
	Actor string
}

// Impostor: a system was refused which asked to be the machine's installer. The work goes on.
type Impostor struct{ Reason, Message string }

// PowerSeen is a change of the machine's power that its BMC shows: State, "on" or "off", is another one than was seen
// before. At is when, by the site agent's clock.
type PowerSeen struct {
	State string
	At    time.Time
}

// Quarantine: the machine has been found to be unsafe to act on.
type Quarantine struct{ Reason, Message string }

func (Evaluate) event()      {}
func (Due) event()           {}
func (AckedByAgent) event()  {}
func (GrantAsked) event()    {}
func (Resulted) event()      {}
func (SessionOpened) event() {}
func (CancelAsked) event()   {}
func (Reported) event()      {}
func (Impostor) event()      {}
func (PowerSeen) event()     {}
func (Quarantine) event()    {}
