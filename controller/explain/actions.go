package explain

import (
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/operation"
)

func thaw() Action {
	return Action{"ingot server thaw", "lifts the freeze for the whole fleet; first compare what agents hold with what the database knows (ingot server info)", true}
}

func doctor() Action {
	return Action{Command: "ingot-agent doctor   (on the agent's machine)", Consequence: "checks clock, certificate, controller, disk and privileges"}
}

func unlock() Action {
	return Action{Command: "ingot-agent unlock   (on the agent's machine)", Consequence: "the agent takes commands again; ask first who locked it, and why"}
}

func unflag(id, flag string) Action {
	return Action{"ingot flag " + id + " " + flag + " --off", "work may be started on the machine again", true}
}

func (s *scene) giveBMC() Action {
	return Action{Command: "ingot machine update " + s.id() + " --bmc-endpoint HOST --bmc-credentials NAME", Consequence: "the site's agent can switch the machine from outside"}
}

func (s *scene) setCredentials() Action {
	return Action{Command: "ingot bmc credentials set " + orElse(s.spec.GetBmcCredentialsRef(), "NAME") + " --username USER",
		Consequence: "the BMC is asked again with the new password, once"}
}

func (s *scene) console() Action {
	if s.Op != nil {
		return Action{Command: "ingot logs " + s.Op.ID, Consequence: "shows the operation's log, and for admins the machine's serial console"}
	}
	return Action{Command: "look at the machine's console", Consequence: "shows whether it boots, and where it stays"}
}

func (s *scene) siteGet() Action {
	return Action{Command: "ingot site get " + s.siteName(), Consequence: "shows each segment: whether it is served, its pool, other DHCP servers"}
}

func (s *scene) rebootBMC() Action {
	return Action{"ingot reboot " + s.id() + " --mode bmc", "switches the machine off and on through its BMC; what runs on it is interrupted", true}
}

func (s *scene) clear() Action {
	return Action{Command: "ingot clear " + s.id(), Consequence: "takes NeedsIntervention away; it repairs nothing"}
}

// settle are the two words that an operator may give on an outcome that nobody knows.
func (s *scene) settle() []Action {
	base := "ingot settle " + s.id() + " " + s.Unresolved.ID + " --verdict "
	return []Action{
		{base + "happened", "records that the command has acted, and lifts the fence; be sure that it cannot act any more", true},
		{base + "did-not-happen", "records that it has not acted, and lifts the fence; be sure that it cannot act any more", true},
	}
}

// activeActions are legal while an operation is active.
func (s *scene) activeActions() []Action {
	id := s.Op.ID
	out := []Action{{Command: "ingot watch " + id, Consequence: "follows it"}}
	switch {
	case !s.Op.CancelRequested.IsZero():
		return out
	case s.granted() && (s.cmd.Kind == operation.KindRepave || s.cmd.Kind == operation.KindErase):
		return append(out, Action{"ingot cancel " + id, "asks the installer to stop at its next safe point; the disk may hold half an image and not boot; without an answer within 30 s the outcome is UNKNOWN and the machine is fenced", true})
	case s.granted():
		return append(out, Action{"ingot cancel " + id, "asks the executor to stop; without an answer within 30 s the outcome is UNKNOWN and the machine is fenced", true})
	}
	return append(out, Action{Command: "ingot cancel " + id, Consequence: "ends it as CANCELED; " + s.whatCancelLeaves()})
}

func (s *scene) whatCancelLeaves() string {
	if s.Op.CurrentStep == 0 && s.cmd == nil {
		return "nothing has been started on the machine"
	}
	return "nothing is under way on the machine right now; what earlier steps did stays"
}

// commands that start an operation, by its type.
var startCommands = []struct {
	kind        fleet.OperationType
	command     string
	consequence string
	destructive bool
}{
	{fleet.ExitMaintenance, "ingot exit-maintenance ", "puts the machine back into service", false},
	{fleet.EnterMaintenance, "ingot enter-maintenance ", "takes the machine out of service, so that it can be imaged; nothing is drained", false},
	{fleet.Reimage, "ingot reimage ", "writes an OS image; all data on the target disk is lost", true},
	{fleet.Reboot, "ingot reboot ", "reboots the machine; what runs on it is interrupted", true},
}

// restActions are legal while nothing is active: they are those that the gate lets in.
func (s *scene) restActions(e *Explanation) []Action {
	var out []Action
	if s.Named && e.OperationID != "" {
		out = append(out, Action{Command: "ingot why " + s.id(), Consequence: "says what the machine is doing now"})
	}
	if s.status.GetActiveOperationId() != "" {
		return out
	}
	for _, c := range startCommands {
		if c.kind == fleet.Reimage && s.spent() {
			continue // an operator brings another plan first
		}
		again := s.Op != nil && s.Op.Phase == operation.Failed && s.Op.Type == c.kind
		if fleet.Admit(s.gate(), c.kind, c.kind == fleet.Reimage) != nil || c.kind == fleet.EnterMaintenance && s.gate().Phase == fleet.Maintenance {
			continue
		}
		a := Action{c.command + s.id(), c.consequence, c.destructive}
		if again {
			a = Action{s.again(), "starts the same work again, from its first step; " + c.consequence, c.destructive}
		}
		out = append(out, a)
	}
	return out
}

// again is the command that asks for the same work.
func (s *scene) again() string {
	switch s.Op.Type {
	case fleet.Reimage:
		cmd := "ingot reimage " + s.id()
		if i := s.Params["image_ref"]; i != "" {
			cmd += " --image " + i
		}
		return cmd
	case fleet.Reboot:
		return "ingot reboot " + s.id()
	case fleet.Reconfigure:
		return "ingot reconfigure " + s.id() + " …"
	case fleet.Netboot:
		return "ingot netboot " + s.id()
	}
	return "ingot run start " + s.id() + " --plan " + orElse(s.PlanID, "PLAN")
}

// gate is what decides whether an operation may start.
func (s *scene) gate() fleet.Facts {
	f := fleet.Facts{
		Phase: fleet.Phase(s.status.GetPhase().String()), NodeState: fleet.NodeState(s.nodeState()), Conditions: map[fleet.ConditionType]bool{},
		ActiveOperation: s.status.GetActiveOperationId() != "", UnresolvedCommand: s.status.GetUnresolvedCommandId(),
		Deleted: s.Machine.GetDeletedAt() != nil, ActiveWorkflow: s.status.GetActiveWorkflowId() != "", Frozen: !s.FrozenSince.IsZero(),
	}
	for _, c := range s.status.GetConditions() {
		f.Conditions[fleet.ConditionType(c.GetType())] = c.GetStatus()
	}
	return f
}
