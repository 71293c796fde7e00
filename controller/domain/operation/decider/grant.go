package decider

import (
	"bytes"
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/planted"
)

// acked records that the executor holds the command.
func acked(s Situation, e operation.AckedByAgent) verdict {
	c := s.Command
	if c == nil || c.ID != e.CommandID || c.ExecutorID != e.AgentID || c.State != operation.Sent {
		return verdict{}
	}
	return does(commandAcked{})
}

// grantAsked decides whether an executor may start.
func grantAsked(s Situation, e operation.GrantAsked) verdict {
	switch {
	case s.World.StaleEpoch:
		return does(refuses("SESSION_SUPERSEDED", "a newer session of this agent is open"))
	case e.Seq <= s.World.LastGrantSeq:
		refused := []move{replies{flagRollback: true}, refuses("AGENT_STATE_ROLLED_BACK",
			"the grant number was used before: the agent's memory is an older copy")}
		if !live(s, e.CommandID, e.AgentID) {
			return does(refused...)
		}
		return stop(s, "AGENT_STATE_ROLLED_BACK", "the agent's memory was rolled back to an older copy").after(refused...)
	case askedByAnother(s, e):
		const why = "another copy of the agent's memory was granted the command"
		return stop(s, "AGENT_STATE_ROLLED_BACK", why).
			after(replies{flagRollback: true}, refuses("AGENT_STATE_ROLLED_BACK", why))
	}
	if reason, message := whyNoGrant(s, e); reason != "" {
		if reason == "COMMAND_EXPIRED" && s.Outlived() {
			return replaceCommand("its time ran out while the controllers were away").after(refuses(reason, message))
		}
		return does(refuses(reason, message))
	}
	if grantedInAnotherBoot(s, e) {
		return bootedSinceGrant(e)
	}
	return grant(s, e)
}

// grant permits the executor to start.
func grant(s Situation, e operation.GrantAsked) verdict {
	moves := []move{
		replies{grant: true},
		commandGranted{seq: e.Seq, bootBefore: bootBefore(s, e), timeout: s.Step.Timeout},
	}
	if !s.Granted {
		moves = append(append(moves, notesHost(s)...), unprovision(s)...)
	}
	return verdict{moves: moves, then: func(s Situation) verdict {
		return does(waits{operation.WaitResult, nextEvaluation(s)})
	}}
}

// unprovision takes the claim away that a verified system is on the disk, with the grant that begins to destroy it. The
// faults of that system go with it.
func unprovision(s Situation) []move {
	if !destroysSystem(s) {
		return nil
	}
	m := operation.MachineChange{Unprovision: true}
	for _, c := range []fleet.ConditionType{fleet.Provisioned, fleet.Degraded, fleet.RAIDDegraded} {
		m.Conditions = append(m.Conditions, condition(c, false, "DiskBeingWritten", ""))
	}
	return []move{changesMachine(m)}
}

// askedByAnother reports whether the command was granted on an ask that the asking memory does not know of: a copy of
// it has asked.
func askedByAnother(s Situation, e operation.GrantAsked) bool {
	granted := live(s, e.CommandID, e.AgentID) && s.Granted && s.Command.GrantSeq != 0
	return granted && s.Command.ExecutorStateID == e.StateID && e.Seq != s.Command.GrantSeq &&
		!slices.Contains(e.Earlier, s.Command.GrantSeq) &&
		!planted.StateID
}

// grantedInAnotherBoot reports whether a host agent asks again for a command that was granted in another boot. A copy
// of its memory from before the start knows nothing of the work in that boot.
func grantedInAnotherBoot(s Situation, e operation.GrantAsked) bool {
	return s.Granted && s.ByHost && operation.ProvesReboot(s.Command.BootIDBefore, e.BootID) &&
		!planted.MemoryNumbers && !planted.StateID && !planted.DedupCache && !planted.IntentRecord
}

// bootedSinceGrant settles a granted command whose executor asks in a later boot: nothing that was begun before it goes
// on. Where neither that boot nor the system in it shows the end of the work, the outcome is unknown.
func bootedSinceGrant(e operation.GrantAsked) verdict {
	const why = "the machine was restarted after the command was granted, which may have been begun"
	return verdict{
		moves: []move{refuses("GRANT_REFUSED", why), hears{agentID: e.AgentID, bootID: e.BootID}},
		then: func(s Situation) verdict {
			switch {
			case s.RebootSeen():
				return confirmReboot(s, "new_boot")
			case s.Entering && !s.Strayed().None():
				return cameBack(s, s.Strayed())
			}
			return unknown(s, "OUTCOME_UNKNOWN", why)
		},
	}
}

// live reports whether the named command is the one that the operation waits for.
func live(s Situation, commandID, agentID string) bool {
	return !s.Settled && s.Command.ID == commandID && s.Command.ExecutorID == agentID && !s.Over
}

func whyNoGrant(s Situation, e operation.GrantAsked) (reason, message string) {
	switch {
	case !live(s, e.CommandID, e.AgentID):
		return "GRANT_REFUSED", "the command is settled or superseded"
	case s.Command.State == operation.Queued:
		return "GRANT_REFUSED", "the command has not been sent"
	case s.Command.ExecutorStateID != e.StateID:
		return "AGENT_MEMORY_LOST", "the command was sent to another memory of this agent"
	case e.SessionBootID != "" && e.BootID != e.SessionBootID && !planted.AskedBoot:
		return "GRANT_REFUSED", "the agent asks from another boot than that of its session"
	case !bytes.Equal(s.Command.Digest, e.Digest):
		return "GRANT_REFUSED", "the digest of the command differs"
	case s.Canceling:
		return "CANCELED_BY_REQUEST", "the operation is being cancelled"
	case s.Past(s.Command.Deadline) || s.Outlived():
		return "COMMAND_EXPIRED", "the step's deadline has passed"
	case s.World.Machine.Freeze.Active():
		return "FLEET_FROZEN", "the fleet is frozen: " + s.World.Machine.Freeze.Cause()
	case s.LacksSlot:
		return "BUDGET_REQUIRED", "the operation holds no slot of the budgets for its work"
	case s.World.Machine.NodeState == fleet.Quarantined:
		return "MACHINE_QUARANTINED", "the machine is quarantined"
	case s.Blocked && !s.Forgets:
		return "MACHINE_BLOCKED", "the machine has been blocked since"
	case s.Claimed:
		return "GRANT_REFUSED", "the command has a result already"
	case s.CommandKind.Ungranted:
		return "GRANT_REFUSED", "a preflight changes nothing and needs no grant"
	}
	return "", ""
}

// bootBefore returns the boot that must be gone for a reboot to count.
func bootBefore(s Situation, e operation.GrantAsked) string {
	if !s.BySite {
		return e.BootID
	}
	if s.Host != nil && s.Host.BootID != "" {
		return s.Host.BootID // the machine's newest boot may have been an installer's
	}
	return s.World.TargetBootID
}
