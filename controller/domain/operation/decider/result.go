package decider

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/planted"
)

// resulted takes an executor's result. The first one counts, whatever session carries it; it must come from the
// executor that the command was sent to.
func resulted(s Situation, e operation.Resulted) verdict {
	if s.Command == nil || s.Command.ID != e.CommandID ||
		s.Command.ExecutorID != e.AgentID && !planted.ForeignResult {
		return does(refuses("GRANT_REFUSED", "the command was not given to this agent"), replies{ack: true})
	}
	first := append([]move{replies{ack: true}},
		told(s, operation.NoteOthers, operation.SwitchedByOthers(s.Command, e))...)
	return judgeResult(s, e).after(first...)
}

func judgeResult(s Situation, e operation.Resulted) verdict {
	switch {
	case s.Command.State == operation.Unknown:
		return lateResult(s, e)
	case s.Settled || s.Over:
		return verdict{} // seen before, or settled without it
	case s.Command.State == operation.Queued:
		return does(refuses("GRANT_REFUSED", "the command was never sent"))
	case s.Claimed && e.Outcome == operation.OutcomeSucceeded:
		return rebootClaimed(s, e)
	case s.Claimed:
		// The first result counts: another outcome does not take the claim back, or a retry would follow an effect that is
		// still on its way.
		return verdict{}
	}
	return liveResult(s, e)
}

// lateResult settles a command that had ended as unknown. The operation is finished and stays as it is.
func lateResult(s Situation, e operation.Resulted) verdict {
	success := e.Outcome == operation.OutcomeSucceeded
	switch {
	case e.Outcome == operation.OutcomeUnknown || s.Claimed:
		return verdict{} // a claim that nothing confirmed in time is no better for being repeated
	case provesNothing(s, e):
		return verdict{}
	case success && (s.Command.GrantedAt.IsZero() || deniedByBoot(s, e)) && !planted.LateClaim:
		return verdict{} // nothing starts without a grant, and no machine is rebooted in the boot before
	case success && lacksEvidence(s, e) && !planted.EmptyEvidence:
		return verdict{} // a late success must show no less than one in time
	}
	m := operation.MachineChange{Unfence: s.Command.ID, Happened: settled(s.Command.ID)}
	if e.Outcome == operation.OutcomeFailed || e.Outcome == operation.OutcomeRefused {
		m.Raise = &operation.RaisedCause{
			Cause: fleet.CauseOf(s.Op.Type), Subject: subject(s.Op), Reason: cmp.Or(e.Reason, "EXECUTION_FAILED"),
			Message: e.Message,
		}
	}
	return does(stored(s, e), commandEnds{state: operation.Done, by: "late_result"}, changesMachine(m))
}

// provesNothing reports a refusal after a grant: a copy of the agent may have been granted the command, and have begun.
func provesNothing(s Situation, e operation.Resulted) bool {
	return e.Outcome == operation.OutcomeRefused && e.Reason == "GRANT_REFUSED" && !s.Command.GrantedAt.IsZero()
}

// deniedByBoot reports whether an agent reports a reboot of its machine in a session of the boot that was to end.
func deniedByBoot(s Situation, e operation.Resulted) bool {
	return s.CommandKind.ProvenByBoot && s.ByHost && e.SessionBootID != "" &&
		!operation.ProvesReboot(s.Command.BootIDBefore, e.SessionBootID)
}

// lacksEvidence reports whether a success lacks the evidence that its kind must read back. A reboot and a path into the
// installer are proven by the system that comes up instead, and the token of a join by its use.
func lacksEvidence(s Situation, e operation.Resulted) bool {
	of := s.CommandKind
	return !of.ProvenByBoot && !of.Prepares && !s.Entering && (of.Evidence == "" || e.Evidence[of.Evidence] == "")
}

// stored returns the move that stores a result with its command.
func stored(s Situation, e operation.Resulted) move {
	return commandAnswers{e.Outcome, e.Reason, e.Message, keepHost(s, e.Evidence)}
}

// liveResult takes the result of a command that the operation waits for.
func liveResult(s Situation, e operation.Resulted) verdict {
	granted := s.Granted || planted.UngrantedResult
	claims := e.Outcome == operation.OutcomeUnknown || e.Outcome == operation.OutcomeSucceeded
	switch {
	case provesNothing(s, e):
		e.Outcome, e.Reason = operation.OutcomeUnknown, "OUTCOME_UNKNOWN"
		e.Message = "granted before, and refused when asked again; a copy of the agent may have begun: " + e.Message
	case claims && !granted && !s.CommandKind.Ungranted:
		// Nothing may start without a grant: an executor that reports otherwise is not believed.
		e.Message, e.Evidence = "result without a grant: "+e.Message, nil
		return verdict{
			moves: []move{stored(s, e)},
			then:  func(s Situation) verdict { return unknown(s, "OUTCOME_UNKNOWN", e.Message) },
		}
	}
	return verdict{moves: []move{stored(s, e)}, then: func(s Situation) verdict { return judgeStored(s, e) }}
}

// judgeStored continues with a result that is stored with its command.
func judgeStored(s Situation, e operation.Resulted) verdict {
	switch {
	case s.CommandKind.Ungranted:
		return preflightEnded(s, e)
	case e.Outcome == operation.OutcomeSucceeded:
		return succeeded(s, e)
	case e.Outcome == operation.OutcomeUnknown && s.RebootSeen():
		return confirmReboot(s, "new_boot")
	case e.Outcome == operation.OutcomeUnknown:
		return unknown(s, cmp.Or(e.Reason, "OUTCOME_UNKNOWN"),
			cmp.Or(e.Message, "the executor cannot know whether the command acted"))
	case e.Reason == "COMMAND_EXPIRED" && s.Outlived():
		return replaceCommand(e.Message)
	}
	return notDone(e).after(commandEnds{state: operation.Done})
}

// notDone continues after a command whose executor reports that the step was not done, and that nothing acts any more.
// The command must be settled before.
func notDone(e operation.Resulted) verdict {
	return verdict{then: func(s Situation) verdict {
		if !s.Canceling && e.Outcome != operation.OutcomeCanceled {
			if v, found := nextPath(s); found {
				return v
			}
		}
		code := cmp.Or(e.Reason, "EXECUTION_FAILED")
		message := cmp.Or(e.Message, "the executor gave no message")
		switch {
		case s.Canceling:
			return canceled(s, "canceled by request: "+message)
		case s.TurnedBack:
			return advance(s) // by another way
		case e.Outcome == operation.OutcomeCanceled && !s.CommandKind.Ungranted:
			return fails("EXECUTION_FAILED", "the executor stopped by itself: "+message, true)
		case e.Retryable && mayTryAgain(s):
			return tryAgain(s, code, message)
		case s.CommandKind.Ungranted:
			return turnBack(code, message, e.Retryable)
		}
		return fails(code, message, e.Retryable)
	}}
}

// retries waits before the next try of the step.
func retries(s Situation, message string) verdict {
	at := s.Now.Add(operation.Backoff(s.Step.RetryCount + 1))
	return does(stepRetries{message, at}, waits{operation.WaitRetry, at})
}

// succeeded takes a claim of success: it counts when the evidence stands.
func succeeded(s Situation, e operation.Resulted) verdict {
	done := commandEnds{state: operation.Done}
	switch {
	case s.Entering && s.ByHost:
		return hostClaimsEntry(s, e)
	case s.Entering, s.TurnedBack && s.BySite:
		// The switch was read back, and no more was asked of it.
		return verdict{moves: []move{done}, then: advance}
	case s.CommandKind.ProvenByBoot:
		return rebootClaimed(s, e)
	case s.CommandKind.Prepares:
		return verdict{moves: []move{done}, then: advance}
	}
	key := s.CommandKind.Evidence
	if (key == "" || e.Evidence[key] == "") && !planted.EmptyEvidence {
		why := "the executor claims success without " + key
		return fails("EVIDENCE_MISSING", why, false).after(commandEnds{
			state: operation.Done, outcome: operation.OutcomeUnknown, reason: "EVIDENCE_MISSING", message: why,
		})
	}
	moves := append([]move{done}, leaveInstaller(s)...)
	if list := followed(s, e.Evidence); len(list) > 0 {
		moves = append(moves, conditions(list...))
	}
	return stepDone(s, e.Evidence).after(moves...)
}

// hostClaimsEntry takes a claim of an agent that has sent its machine into the installer. The agent lives in the system
// that was to be left: its answer shows the wrong system, unless the installer has reported.
func hostClaimsEntry(s Situation, e operation.Resulted) verdict {
	if !s.Arrived().None() {
		return enteredInstaller()
	}
	return cameBack(s, arrival{
		AgentID: s.Command.ExecutorID, BootID: cmp.Or(e.SessionBootID, e.Evidence[evidence.BootIDAfter]),
		By: operation.ByAgentIdentity,
	})
}

// rebootClaimed confirms a reboot by the system that was to come up; else it waits for that.
func rebootClaimed(s Situation, e operation.Resulted) verdict {
	if s.ByHost && e.SessionBootID != "" && !s.World.StaleEpoch && !s.RebootSeen() {
		return verdict{
			moves: []move{hears{agentID: e.AgentID, bootID: e.SessionBootID}},
			then:  func(s Situation) verdict { return judgeClaim(s, e) },
		}
	}
	return judgeClaim(s, e)
}

func judgeClaim(s Situation, e operation.Resulted) verdict {
	switch {
	case s.RebootSeen():
		return confirmReboot(s, "")
	case !s.Strayed().None():
		return cameBack(s, s.Strayed())
	case answersProbe(s, e):
		return claimProven(s, e, operation.ByProbe)
	case (s.World.TargetAgentID == "" || planted.BootClaim) &&
		slices.Contains([]operation.System{operation.SystemSame, operation.SystemElsewhere}, s.Boots) &&
		readBack(e.Evidence):
		// A machine without an agent: what the site agent has read back is all the evidence there is.
		return claimProven(s, e, operation.ByProvider)
	}
	return does(commandClaimed{}, waits{operation.WaitEvidence, s.GivenUpAt()})
}

func claimProven(s Situation, e operation.Resulted, by string) verdict {
	proof := maps.Clone(e.Evidence)
	proof[evidence.BootedBy] = by
	return stepDone(s, proof).after(commandEnds{state: operation.Done})
}

func readBack(seen map[string]string) bool {
	before, after := seen[evidence.BootIDBefore], seen[evidence.BootIDAfter]
	return before != "" && after != "" && before != after
}

// answersProbe reports whether a machine without an agent was seen off, then on, and then its system on the network.
func answersProbe(s Situation, e operation.Resulted) bool {
	off, on := e.Evidence[evidence.PowerOffSeenAt], e.Evidence[evidence.PowerOnSeenAt]
	return s.World.Machine.Agentless && s.BySite && s.Boots == operation.SystemSame && off != "" &&
		on != "" && e.Evidence[evidence.ProbeAnsweredAt] != ""
}
