package explain

import (
	"time"
)

// Party is on whom a machine waits.
type Party string

// The parties.
const (
	OnAgent    Party = "agent"
	OnBMC      Party = "bmc"
	OnDHCP     Party = "dhcp"
	OnProvider Party = "provider"
	OnOperator Party = "operator"
	OnLimit    Party = "limit"
	OnNobody   Party = "nobody"
)

// Explanation is the answer.
type Explanation struct {
	// Rule is the name of the rule that gave it.
	Rule    string
	Summary string
	// OperationID, Step, StepKind and StepStarted are empty where no operation is part of the answer.
	OperationID, Step, StepKind string
	StepStarted                 time.Time
	WaitsOn                     Party
	// WaitsFor names the party: an agent, a site, an address.
	WaitsFor string
	Since    time.Time
	Cause    Cause
	// LastEvidence is the last thing that the world has shown.
	LastEvidence   string
	LastEvidenceAt time.Time
	// Next is what happens next by itself, at the latest at NextAt; empty when nothing does.
	Next    string
	NextAt  time.Time
	Actions []Action
	Normal  Baseline
	Stuck   bool
}

// Cause is the root cause, as far as the facts show it.
type Cause struct {
	// Reason is one of the API's closed set; empty when nothing is wrong.
	Reason string
	Text   string
	// Facts are what it is read from.
	Facts []string
}

// Action is something that a person may do.
type Action struct {
	Command, Consequence string
	// Destructive: it loses data, interrupts what runs, or overrides a safeguard.
	Destructive bool
	// Start is what must be accepted for the action to be offered; nil where the call takes it in any state.
	Start *Start
	// Refused: the call would refuse it now, so that it is not offered.
	Refused bool
}

// Starting makes the action depend on a start.
func (a Action) Starting(s Start) Action {
	a.Start = &s
	return a
}
