package decider

import (
	"fmt"
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// An install attempt is one round of the plan's tries of the repave step. It counts from the grant of the write on: a
// failure before, on the way into the installer, has touched no disk and is a failure of its own.

// mayTryAgain reports whether a failed try of the step is followed by another: a further one of the same round, or,
// where the attempt counts for the node, the first one of the next.
func mayTryAgain(s Situation) bool {
	if !s.StepKind.WritesSystem || !s.World.Install.Counted {
		return s.Step.RetryCount < s.Step.MaxRetries
	}
	return !roundOver(s.Step) || wrote(s) && !s.World.Install.Last()
}

// roundOver reports whether the try that has just failed was the last one of its round.
func roundOver(s *operation.Step) bool { return (s.RetryCount+1)%(s.MaxRetries+1) == 0 }

// wrote reports whether the write of the attempt under way was granted: the disk may have changed.
func wrote(s Situation) bool {
	if s.Step.Mode == workflow.ReportedInstall {
		return true
	}
	if slices.ContainsFunc(s.Op.Steps, func(s operation.Step) bool {
		return kind.Lookup(s.Kind).WritesSystem && s.State == operation.StepSucceeded
	}) {
		return true
	}
	if !s.CommandKind.WritesSystem || s.Command.GrantedAt.IsZero() {
		return false
	}
	ofThisTry := !s.Command.GrantedAt.Before(s.Step.RetryAt) && s.Command.SettledBy != byPowerCycle
	return ofThisTry || s.Step.RetryCount%(s.Step.MaxRetries+1) != 0
}

// tryAgain has the step tried again after a failure.
func tryAgain(s Situation, code, message string) verdict {
	attempt, why := attemptFailed(s, code, message)
	return retries(s, why).after(replies{attemptFailed: attempt})
}

// attemptFailed returns the failure of an attempt that is followed by another, empty where only a try has failed, and
// the sentence about it. It is asked where mayTryAgain holds.
func attemptFailed(s Situation, code, message string) (attempt, sentence string) {
	if !s.StepKind.WritesSystem || !s.World.Install.Counted || !roundOver(s.Step) {
		return "", message
	}
	attempt = code + ": " + message
	return attempt, attemptText(s, attempt)
}

func attemptText(s Situation, failure string) string {
	return fmt.Sprintf("install attempt %d of %d has failed: %s", s.World.Install.Failed+1, s.World.Install.Max, failure)
}

// endAttempt returns the failure of the attempt that ends the operation; empty where none is under way. The last one
// changes the operation's error, unless its command may still act: that is settled first, and so keeps its name.
func endAttempt(s Situation, e *operation.Error) (attempt string) {
	if !s.World.Install.Counted || !wrote(s) {
		return ""
	}
	attempt = e.Code + ": " + e.Message
	if s.Step.Mode == workflow.ReportedInstall {
		attempt = e.Message // in the installer's own words
	}
	if !s.World.Install.Last() || s.Command != nil && s.Command.State == operation.Unknown {
		return attempt
	}
	e.Details["cause"] = e.Code
	e.Code, e.Message, e.Retryable = "INSTALL_ATTEMPTS_EXHAUSTED", attemptText(s, attempt), false
	return attempt
}

// A granted command of an installer that falls silent is settled only where something proves that the installer is
// gone.

// oldSystemUp reports whether the system that was on the disk before runs again, in another boot than it had before the
// grant: the installer, which lived in the machine's memory, is gone, and nothing that it wrote is in the way. A
// session that merely outlived the system is of the old boot. The system that this operation writes proves other
// things.
func oldSystemUp(s Situation) bool {
	h := s.Host
	return h != nil && h.Live && h.OperationID != s.Op.ID && s.ByInstaller && !s.World.ExecutorLive &&
		s.HostIsBefore() && operation.ProvesReboot(s.Command.Evidence[evidence.HostBootID], h.BootID)
}

func executorLost(s Situation) bool {
	return !s.World.ExecutorLive && fleet.Silence(s.World.ExecutorSilentFrom, s.Now) >= operation.InstallerLost
}

// installerRestarted takes another installer on the same machine as proof that the one that was granted the command is
// gone. What it wrote is not bootable, and the next attempt starts from the top.
func installerRestarted() verdict {
	return installerGone("installer_restarted", "the machine was restarted while the installer worked")
}

func installerGone(proof, message string) verdict {
	const reason = "EXECUTION_FAILED"
	return notDone(
		operation.Resulted{Outcome: operation.OutcomeFailed, Reason: reason, Message: message, Retryable: true},
	).after(commandEnds{
		state: operation.Done, outcome: operation.OutcomeFailed, reason: reason, message: message, by: proof,
	})
}

// byPowerCycle settles a command whose machine is switched off next.
const byPowerCycle = "power_cycle"

// supersede settles a granted command without a result, because the machine is about to be switched off: the command
// ends there. The next one is that power cycle.
func supersede(why string) verdict {
	return verdict{moves: []move{commandEnds{
		state: operation.Done, outcome: operation.OutcomeUnknown, message: why, by: byPowerCycle,
	}}, then: advance}
}
