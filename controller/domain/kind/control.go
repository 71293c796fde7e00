package kind

import "github.com/ingot-metal/ingot/controller/domain/fleet"

// Control is what works on a step.
type Control int

const (
	// Commanded steps are done by commands to agents.
	Commanded Control = iota
	// SetsPhase changes the machine's phase.
	SetsPhase
	// ChecksStage checks a stage of a workflow by its mode. Some modes have commands.
	ChecksStage
	// AwaitsAgent waits until the machine's own agent has a session.
	AwaitsAgent
	// FlagsRMA sets or clears the flag of a machine that is returned.
	FlagsRMA
)

// Route is how an agent reaches the machine for a command.
type Route int

const (
	// Direct commands are taken by the machine's own agent, or by an agent of its site that can do them for it.
	Direct Route = iota
	// OverSSH leads from the site's agent to the machine's system.
	OverSSH
	// ThroughProvider leads through the provider that has the machine.
	ThroughProvider
)

// The paths by which commands bring a machine into the installer.
const (
	PathBootNext = "bootnext"
	PathKexec    = "kexec"
	PathBMC      = "bmc"
)

// Condition is a condition of a machine that a success sets.
type Condition struct {
	Type   fleet.ConditionType
	Status bool
	Reason string
	// If is the key of the evidence without which the condition stays; empty for none. Message is that of its message.
	If, Message string
}

// MessageOf returns the condition's message by the evidence of the success.
func (c Condition) MessageOf(seen map[string]string) string {
	if c.Message == "" {
		return "" // an executor may send an empty key
	}
	return seen[c.Message]
}
