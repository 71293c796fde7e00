package rules

import (
	"cmp"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
)

func (s *scene) thaw() explain.Action {
	a := explain.Action{
		Command:     "ingot server thaw",
		Consequence: "lifts the freeze for the whole fleet",
		Destructive: true,
	}
	if s.Freeze.Restored {
		a.Consequence += "; first compare what agents hold with what the database knows (ingot server info)"
	}
	return a
}

func doctor() explain.Action {
	return explain.Action{Command: "ingot-agent doctor   (on the agent's machine)",
		Consequence: "checks clock, certificate, controller, disk and privileges"}
}

func unlock() explain.Action {
	return explain.Action{Command: "ingot-agent unlock   (on the agent's machine)",
		Consequence: "the agent takes commands again; ask first who locked it, and why"}
}

func unflag(id, flag string) explain.Action {
	return explain.Action{Command: "ingot flag " + id + " " + flag + " --off",
		Consequence: "work may be started on the machine again", Destructive: true}
}

func (s *scene) giveBMC() explain.Action {
	return explain.Action{Command: "ingot machine update " + s.id() + " --bmc-endpoint HOST --bmc-credentials NAME",
		Consequence: "the site's agent can switch the machine from outside"}
}

func (s *scene) setCredentials() explain.Action {
	return explain.Action{Command: "ingot bmc credentials set " + cmp.Or(s.spec.GetBmcCredentialsRef(), "NAME") +
		" --username USER",
		Consequence: "the BMC is asked again with the new password, once"}
}

func (s *scene) unpark() explain.Action {
	return explain.Action{Command: "ingot bmc unpark " + s.Machine.GetMachineId(),
		Consequence: "the BMC is asked once more with the password that it has refused, for one that was wrong itself; " +
			"each try can lock its account"}
}

func (s *scene) console() explain.Action {
	if s.Op != nil {
		return explain.Action{Command: "ingot logs " + s.Op.ID,
			Consequence: "shows the operation's log, and for admins the machine's serial console"}
	}
	return explain.Action{Command: "look at the machine's console",
		Consequence: "shows whether it boots, and where it stays"}
}

func (s *scene) siteGet() explain.Action {
	return explain.Action{Command: "ingot site get " + s.SiteName(),
		Consequence: "shows each segment: whether it is served, its pool, other DHCP servers"}
}

func (s *scene) rebootBMC() explain.Action {
	return explain.Action{
		Command:     "ingot reboot " + s.id() + " --mode bmc",
		Consequence: "switches the machine off and on through its BMC; what runs on it is interrupted", Destructive: true,
	}.Starting(explain.StartPowerCycle)
}

func (s *scene) clear() explain.Action {
	return explain.Action{
		Command:     "ingot clear " + s.id(),
		Consequence: "takes NeedsIntervention away; it repairs nothing",
		Refused:     !s.Offers.Clears,
	}
}

// settle asks an operator for the verdict on an unknown outcome. It proposes neither verdict: the operator fills in the
// words in capitals.
func (s *scene) settle() []explain.Action {
	return []explain.Action{{
		Command: "ingot settle " + s.id() + " " + s.Unresolved.ID + " --verdict VERDICT --comment HOW-YOU-KNOW",
		Consequence: "records that the command has acted (happened) or has not (did-not-happen), and lifts the fence; " +
			"be sure that it cannot act any more",
		Destructive: true,
	}}
}

// activeActions are legal while an operation is active.
func (s *scene) activeActions() []explain.Action {
	id := s.Op.ID
	out := []explain.Action{{Command: "ingot watch " + id, Consequence: "follows it"}}
	switch {
	case !s.Op.CancelRequested.IsZero():
		return out
	case s.granted() && (s.cmd.Kind == operation.KindRepave || s.cmd.Kind == operation.KindErase):
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

// startCommands are the commands that start an operation on a machine at rest, by what they start.
var startCommands = []struct {
	start       explain.Start
	command     string
	consequence string
	destructive bool
}{
	{explain.StartExit, "ingot exit-maintenance ", "puts the machine back into service", false},
	{explain.StartEnter, "ingot enter-maintenance ",
		"takes the machine out of service, so that it can be imaged; nothing is drained", false},
	{explain.StartReimage, "ingot reimage ", "writes an OS image; all data on the target disk is lost", true},
	{explain.StartReboot, "ingot reboot ", "reboots the machine; what runs on it is interrupted", true},
}

// noImageToWrite is why every reimage of a machine is refused while the catalogue has no system for it.
const noImageToWrite = "IMAGE_NOT_FOUND"

func addImage() explain.Action {
	return explain.Action{Command: "ingot image add NAME FILE",
		Consequence: "stores a system that machines can be installed with; there is none"}
}

// restActions are what may be started while nothing is active, as the calls themselves decide.
func (s *scene) restActions(e *explain.Explanation) []explain.Action {
	var out []explain.Action
	if s.Named && e.OperationID != "" {
		out = append(out, explain.Action{Command: "ingot why " + s.id(), Consequence: "says what the machine is doing now"})
	}
	for _, c := range startCommands {
		a := explain.Action{Command: c.command + s.id(), Consequence: c.consequence, Destructive: c.destructive}
		if c.start == explain.StartEnter && s.status.GetPhase() == baremetalv1.MachineStatus_MAINTENANCE {
			continue // it is allowed, and changes nothing
		}
		if s.Op != nil && s.Op.Phase == operation.Failed && s.Op.Type == c.start.Type {
			a.Consequence = "starts the same work again, from its first step; " + c.consequence
		}
		if c.start == explain.StartReimage {
			switch r := s.Offers.Starts[explain.StartReimage]; {
			case r != nil && r.Reason == noImageToWrite:
				out = append(out, addImage())
			case s.Offers.NamesImage:
				a.Command += " --image IMAGE"
			default:
				a.Command += s.imageFlag()
			}
		}
		out = append(out, a.Starting(c.start))
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

func list(words []string) string { return strings.Join(words, ", ") }
