package decider

import (
	"fmt"
	"strconv"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// Before an installer is permitted to write, it proves that the write can begin. That command destroys nothing and
// needs no grant. Where the installer refuses, the machine is sent back to the system that it came from, and is as it
// was before.

// PreflightPatience bounds how long a preflight may take.
const PreflightPatience = 5 * time.Minute

// needsPreflight reports whether the installer is to look before it is sent the write.
func needsPreflight(s Situation) bool {
	k := s.StepKind.Preflight
	return k != "" && s.Installer.CanDo(kind.Lookup(k).Capability) && s.Step.Evidence[evidence.PreflightDisk] == ""
}

// preflight asks the installer whether it can write.
func preflight(s Situation) verdict {
	made := newCommand(s, s.StepKind.Preflight, s.Installer)
	wait := made.wait(s)
	made.deadline = operation.Earliest(made.deadline, s.Now.Add(PreflightPatience))
	if now := s.HostNow(); now != nil && s.Step.Evidence[evidence.HostAgentID] == "" {
		return does(stepProves{now}, made, wait)
	}
	return does(made, wait)
}

// preflightEnded takes the installer's answer.
func preflightEnded(s Situation, e operation.Resulted) verdict {
	switch e.Outcome {
	case operation.OutcomeSucceeded:
		return preflightPassed(e.Evidence)
	case operation.OutcomeUnknown:
		e.Retryable = true // nothing was changed, whatever came of it
	}
	return notDone(e).after(commandEnds{state: operation.Done})
}

// preflightExpired ends a preflight that was never answered.
func preflightExpired() verdict {
	return turnBack("STEP_TIMEOUT", "the installer has not said in time whether it can write", true).
		after(commandEnds{state: operation.Expired})
}

// preflightPassed goes on to the write.
func preflightPassed(seen map[string]string) verdict {
	done := commandEnds{state: operation.Done}
	disk := seen[evidence.PreflightDisk]
	if disk == "" {
		return turnBack("EVIDENCE_MISSING", "the installer says that it can write, and names no disk", false).after(done)
	}
	return verdict{moves: []move{done, stepProves{map[string]string{evidence.PreflightDisk: disk}}}, then: advance}
}

// turnBack ends the step before anything was written: the machine boots from its disk again.
func turnBack(code, message string, retryable bool) verdict {
	return verdict{moves: []move{
		stepProves{map[string]string{
			evidence.Refused: code, evidence.RefusedWhy: message, evidence.RefusedAgain: strconv.FormatBool(retryable),
		}},
		noted{"boot_path", "out of the installer, because it cannot do it: " + message},
	}, then: advance}
}

// goBack boots the system that the machine came from, once the machine is assigned to boot its disk.
func goBack(s Situation) verdict {
	site := s.Site("power")
	leaving, left := s.CommandKind.ProvenByBoot, s.Command.Outcome == operation.OutcomeSucceeded
	until := s.Command.FinishedAt.Add(patience(s))
	switch {
	case s.Step.Evidence[evidence.HostAgentID] == "":
		return endTurnedBack(s, "the machine had no system of its own to go back to")
	case isBackAgain(s):
		return endTurnedBack(s, backAgain)
	case s.Past(until) || leaving && s.CyclesPower && !left:
		return endTurnedBack(s, "its own system has not reported since; start it through its BMC or by hand")
	case !s.World.Boot.Served():
		return does(waits{operation.WaitSite, s.SoonOr(until)})
	case !leaving && s.Installer != nil:
		return makeCommand(s, kind.Reboot, s.Installer)
	case site != nil && !s.CyclesPower && (!leaving || !left):
		return makeCommand(s, kind.Power, site)
	}
	return does(waits{operation.WaitAgent, s.SoonOr(until)})
}

// backAgain ends the message of a step whose machine runs the system again that it came from.
const backAgain = "its own system runs again, as before"

// isBackAgain reports whether the system that the machine came from has come up since.
func isBackAgain(s Situation) bool {
	h := s.Host
	return h != nil && h.Live && h.AgentID == s.Step.Evidence[evidence.HostAgentID] &&
		operation.ProvesReboot(s.Step.Evidence[evidence.HostBootID], h.BootID)
}

// endTurnedBack ends the operation with the installer's reason.
func endTurnedBack(s Situation, where string) verdict {
	of := s.Step.Evidence
	return fails(of[evidence.Refused], fmt.Sprintf("%s; nothing was written, and %s", of[evidence.RefusedWhy], where),
		of[evidence.RefusedAgain] == "true")
}

// evaluateLeaving evaluates a granted restart out of the installer, and reports whether that ends the command.
func evaluateLeaving(s Situation) (v verdict, ended bool) {
	switch {
	case !s.Past(s.Command.GrantedAt.Add(patience(s))):
		return verdict{}, false
	case s.PathNow(kind.PathBMC) != nil:
		return supersede("the machine has not left the installer; it is switched off and on through its BMC"), true
	}
	return unknown(s, "OUTCOME_UNKNOWN", "the machine was told to leave the installer, and no system has reported since"),
		true
}
