package rules

import (
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// activeActions are legal while an operation is active.
func (s *scene) activeActions() []explain.Action {
	id := s.Op.ID
	out := []explain.Action{{Command: "ingot watch " + id, Consequence: "follows it"}}
	switch {
	case !s.Op.CancelRequested.IsZero():
		return out
	case s.granted() && kind.Of(s.cmd.Kind).DestroysSystem:
		return append(out, explain.Action{Command: "ingot cancel " + id, Destructive: true,
			Consequence: "asks the installer to stop at its next safe point; " +
				"the disk may hold half an image and not boot; without an answer within 30 s the outcome is UNKNOWN and the " +
				"machine is fenced"})
	case s.granted():
		return append(out, explain.Action{Command: "ingot cancel " + id, Destructive: true,
			Consequence: "asks the executor to stop; " +
				"without an answer within 30 s the outcome is UNKNOWN and the machine is fenced"})
	}
	return append(out, explain.Action{Command: "ingot cancel " + id,
		Consequence: "ends it as CANCELED; " + s.whatCancelLeaves()})
}

func (s *scene) whatCancelLeaves() string {
	if s.Op.CurrentStep == 0 && s.cmd == nil {
		return "nothing has been started on the machine"
	}
	return "nothing is under way on the machine right now; what earlier steps did stays"
}

// noImageToWrite is why every reimage of a machine is refused while the catalogue has no system for it.
const noImageToWrite = "IMAGE_NOT_FOUND"

// restActions are what may be started while nothing is active, as the calls themselves decide.
func (s *scene) restActions(e *explain.Explanation) []explain.Action {
	var out []explain.Action
	if s.Named && e.OperationID != "" {
		out = append(out, explain.Action{Command: "ingot why " + s.ID(), Consequence: "says what the machine is doing now"})
	}
	for _, c := range explain.StartCommands() {
		a := explain.Action{Command: c.Command + s.ID(), Consequence: c.Consequence, Destructive: c.Destructive}
		if c.Start == explain.StartEnter && s.status.GetPhase() == baremetalv1.MachineStatus_MAINTENANCE {
			continue // it is allowed, and changes nothing
		}
		if s.Op != nil && s.Op.Phase == operation.Failed && s.Op.Type == c.Start.Type {
			a.Consequence = "starts the same work again, from its first step; " + c.Consequence
		}
		if c.Start == explain.StartReimage {
			switch r := s.Offers.Starts[explain.StartReimage]; {
			case r != nil && r.Reason == noImageToWrite:
				out = append(out, explain.AddImage())
			case s.Offers.NamesImage:
				a.Command += " --image IMAGE"
			default:
				a.Command += s.imageFlag()
			}
		}
		out = append(out, a.Starting(c.Start))
	}
	return out
}

// imageFlag names the image of the reimage that is explained.
func (s *scene) imageFlag() string {
	if i := s.Params["image_ref"]; s.Op != nil && s.Op.Type == fleet.Reimage && i != "" {
		return " --image " + i
	}
	return ""
}
