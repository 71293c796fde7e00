package decider

import (
	"cmp"
	"maps"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/operation/situation"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/planted"
)

type arrival = situation.Arrival

// notesHost keeps with the grant of a command which system the machine had before it.
func notesHost(s Situation) []move {
	now := s.HostNow()
	switch {
	case now == nil || s.Boots == "" && !s.ByInstaller:
		return nil
	case s.Entering:
		// The step has it too, to know the system again when the machine is sent back.
		return []move{commandProves{now}, stepProves{now}}
	}
	return []move{commandProves{now}}
}

// keepHost carries the notes of the machine's system over into an executor's evidence, which cannot replace them.
func keepHost(s Situation, reported map[string]string) map[string]string {
	out := maps.Clone(reported)
	for _, key := range situation.HostKeys {
		if v, ok := s.Command.Evidence[key]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[key] = v
		}
	}
	return out
}

// cameBack settles a command that has brought up another system than the intended one: it acted, and is over.
func cameBack(s Situation, a arrival) verdict {
	const reason = "WRONG_SYSTEM_BOOTED"
	message, again := wrongSystem[s.Boots], s.Boots == operation.SystemInstaller
	return notDone(
		operation.Resulted{Outcome: operation.OutcomeFailed, Reason: reason, Message: message, Retryable: again},
	).after(commandEnds{
		state: operation.Done, outcome: operation.OutcomeFailed, reason: reason, message: message,
		by: "other_system_booted", evidence: keepHost(s, a.Proof()),
	})
}

var wrongSystem = map[operation.System]string{
	operation.SystemInstaller: "the machine was restarted and came back in its own system, not in the installer",
	operation.SystemRescue: "the machine was restarted and came back in its own system, not in the one that it was to " +
		"boot from the network",
	operation.SystemSame: "the machine was restarted, and another system than before has come up",
}

// confirmReboot settles a command by the system that it was meant to bring up.
func confirmReboot(s Situation, settledBy string) verdict {
	done := commandEnds{state: operation.Done, outcome: operation.OutcomeSucceeded, by: settledBy}
	if s.TurnedBack {
		return endTurnedBack(s, backAgain).after(done)
	}
	if s.Boots == operation.SystemWritten {
		if v, differs := newSystemDiffers(s); differs {
			return v.after(done)
		}
	}
	proof := s.Arrived().Proof()
	proof[evidence.BootIDBefore] = s.Command.BootIDBefore
	return stepDone(s, proof).after(done)
}

// newSystemDiffers fails the operation if the new system was made from another image than was read back from the disk.
// A system without an agent reports no image.
func newSystemDiffers(s Situation) (v verdict, differs bool) {
	written, reported := s.Op.Evidence[evidence.ImageDigest], s.Target().ImageDigest
	if s.Agentless() || situation.SameDigest(written, reported) {
		return verdict{}, false
	}
	return fails("EVIDENCE_MISSING", "the system that came up says that it was made from "+
		cmp.Or(reported, "no known image")+", and "+written+" was written", false), true
}

// noPhoneHome ends an operation whose system has not phoned home in time. A power cycle that was read back is over; a
// restart that the installer was to make may still come.
func noPhoneHome(s Situation) verdict {
	const code = "PHONE_HOME_MISSING"
	message := "the disk was written and verified, and the new system has not phoned home within " +
		s.Step.Timeout.Round(time.Second).String() + "; look at its console: did it boot, run cloud-init, get an address, " +
		"and reach the boot server of its site?"
	if posted := s.World.Boot.PhonedHome[evidence.InstanceID]; posted != "" {
		message += " One with the right secret called, as instance " + posted + " and not " +
			evidence.InstanceOf(s.Op.ID) + "."
	}
	if s.BySite && s.Claimed {
		return fails(code, message, true).after(commandEnds{state: operation.Done})
	}
	return verdict{
		moves: []move{commandAnswers{s.Command.Outcome, s.Command.Reason, message, s.Command.Evidence}},
		then:  func(s Situation) verdict { return unknown(s, code, message) },
	}
}

// uncorroborated is the evidence of an installer that proved no more than its place on the network, where no BMC has
// seen the machine do what the installer reports.
const uncorroborated = "uncorroborated"

// withIdentity adds to a step's evidence how the installer proved which machine it is.
func withIdentity(s Situation, proof map[string]string) map[string]string {
	b := &s.World.Boot
	if b.IdentityLevel == "" {
		return proof
	}
	out := merged(proof, map[string]string{evidence.IdentityLevel: b.IdentityLevel})
	if b.IdentityTrust != "" {
		out[evidence.IdentityTrust] = b.IdentityTrust
	}
	if b.IdentityLevel == "network" {
		out[evidence.Corroboration] = uncorroborated
	}
	return out
}

// sessionOpened takes a new session of an agent. An agent's session that a newer one has overtaken shows nothing that
// the newer one does not.
func sessionOpened(s Situation, e operation.SessionOpened) verdict {
	if s.Over || s.World.StaleEpoch {
		return verdict{}
	}
	return verdict{
		moves: []move{hears{agentID: e.AgentID, bootID: e.BootID, ofMachine: e.OfTarget || e.Installer}},
		then:  func(s Situation) verdict { return judgeSession(s, e) },
	}
}

// judgeSession decides whether a new session settles, moves or replaces the command.
func judgeSession(s Situation, e operation.SessionOpened) verdict {
	ofExecutor := !s.Settled && s.Command.ExecutorID == e.AgentID
	if e.Installer && !ofExecutor {
		if v, shown := installerOpened(s); shown {
			return v
		}
	}
	switch {
	case ofExecutor && e.RolledBack:
		return stop(s, "AGENT_STATE_ROLLED_BACK", "the agent came back with an older copy of its memory")
	case ofExecutor && s.Command.State == operation.Queued:
		return does(commandSent{e.StateID}, waits{operation.WaitResult, s.SoonOr(s.Command.Deadline)})
	case e.OfTarget && s.Granted && s.Entering && s.ByHost && !s.Strayed().None():
		return cameBack(s, s.Strayed())
	case ofExecutor && s.Command.ExecutorStateID != e.StateID:
		return memoryLost(s)
	case bootAwaited(s) && s.RebootSeen():
		return confirmReboot(s, "new_boot")
	case bootAwaited(s) && !s.Entering && !s.Strayed().None():
		return cameBack(s, s.Strayed())
	case ofExecutor && !s.Granted:
		return waitForTaker(s)
	case s.Op.Phase == operation.Running && s.Settled:
		return advance(s)
	}
	return verdict{}
}

// bootAwaited reports whether only a system that comes up is waited for.
func bootAwaited(s Situation) bool {
	return s.Granted && s.Boots != "" && (s.Claimed || s.ByInstaller)
}

// memoryLost handles an executor that has come back with another memory than the one that was sent the command.
func memoryLost(s Situation) verdict {
	switch {
	case !s.Granted:
		return replaceCommand("the agent lost its memory before it was granted the command; nothing was started")
	case s.RebootSeen():
		return confirmReboot(s, "new_boot")
	case planted.MemoryLostFails:
		return calledFailed("AGENT_MEMORY_LOST", "the agent lost its memory")
	}
	return unknown(s, "OUTCOME_UNKNOWN", "the agent lost its memory after it was granted the command")
}
