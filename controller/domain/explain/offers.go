package explain

import (
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// Start is work that an operator may ask for: a type of operation, and its plan where that is not the type's own.
type Start struct {
	Type fleet.OperationType
	Plan string
}

// The starts that answers offer.
var (
	StartEnter       = Start{Type: fleet.EnterMaintenance}
	StartExit        = Start{Type: fleet.ExitMaintenance}
	StartReimage     = Start{Type: fleet.Reimage}
	StartReboot      = Start{Type: fleet.Reboot}
	StartPowerCycle  = Start{Type: fleet.Reboot, Plan: "bmc"}
	StartPowerOn     = Start{Type: fleet.RunPlan, Plan: "power-on"}
	StartReconfigure = Start{Type: fleet.Reconfigure}
	StartJoin        = Start{Type: fleet.JoinCluster}
	StartNetboot     = Start{Type: fleet.Netboot}
	StartTest        = Start{Type: fleet.TestHardware}
	StartReturn      = Start{Type: fleet.RMAType, Plan: "rma-return"}
)

// Starts lists them.
func Starts() []Start {
	return []Start{StartEnter, StartExit, StartReimage, StartReboot, StartPowerCycle, StartPowerOn, StartReconfigure,
		StartJoin, StartNetboot, StartTest, StartReturn}
}

// Offers are what the calls themselves would take now, as far as each was asked.
type Offers struct {
	// Starts has an entry for each start that was asked about: nil if it would be accepted.
	Starts map[Start]*fleet.Refusal
	// NamesImage: a reimage has to name an image of the catalogue.
	NamesImage bool
	// Clears: an admin may clear the machine.
	Clears bool
	// Moves are the node states to which an admin may move the node.
	Moves []node.State
	// Restarts: the node may be moved to pending by force, which resets its install attempts.
	Restarts bool
	// Workflow is what may be done with the machine's open workflow.
	Workflow workflow.Offer
}

// May reports whether a start would be accepted.
func (o Offers) May(s Start) bool {
	refused, asked := o.Starts[s]
	return asked && refused == nil
}

// Override is a user's call on the machine, with its comment.
type Override struct {
	At                                time.Time
	Actor, Verb, Comment, OperationID string
	Data                              map[string]string
}

// By returns the user and the comment: " by ann: DIMM 3".
func (w Override) By() string {
	text := " by " + w.Actor
	if w.Comment != "" {
		text += ": " + w.Comment
	}
	return text
}
