package decider

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/planted"
)

// resulted takes an executor's result. The first one counts, whatever session carries it; it must come from the
// executor that the command was sent to.
func (d *decider) resulted(e operation.Resulted) {
	if d.cmd == nil || d.cmd.ID != e.CommandID || d.cmd.ExecutorID != e.AgentID && !planted.ForeignResult {
		d.refuseGrant("GRANT_REFUSED", "the command was not given to this agent")
		d.out.Ack = true
		return
	}
	d.out.Ack = true
	d.tell(operation.NoteOthers, operation.SwitchedByOthers(d.cmd, e))
	switch {
	case d.cmd.State == operation.Unknown:
		d.lateResult(e)
	case d.cmd.Settled() || operation.IsTerminal(d.op.Phase):
		// Seen before, or settled without it.
	case d.cmd.State == operation.Queued:
		d.refuseGrant("GRANT_REFUSED", "the command was never sent")
	case !d.cmd.ClaimedAt.IsZero():
		d.resultAfterClaim(e)
	default:
		d.liveResult(e)
	}
}

// resultAfterClaim takes what an executor says after it has claimed success. The first result counts: another outcome
// does not take the claim back, or a retry would follow an effect that is still on its way.
func (d *decider) resultAfterClaim(e operation.Resulted) {
	if e.Outcome == operation.OutcomeSucceeded {
		d.rebootClaimed(e)
	}
}

// lateResult settles a command that had ended as unknown. The operation is finished and stays as it is.
func (d *decider) lateResult(e operation.Resulted) {
	if e.Outcome == operation.OutcomeUnknown || !d.cmd.ClaimedAt.IsZero() {
		// Nothing new: a claim that nothing confirmed in time is no better for being repeated.
		return
	}
	if d.provesNothing(e) {
		return
	}
	if e.Outcome == operation.OutcomeSucceeded && (d.cmd.GrantedAt.IsZero() || d.deniedByBoot(e)) && !planted.LateClaim {
		// Nothing starts without a grant, and no machine is rebooted in the boot before.
		return
	}
	if e.Outcome == operation.OutcomeSucceeded && d.lacksEvidence(e) && !planted.EmptyEvidence {
		return // said late, a success shows no less than in time
	}
	d.store(e)
	d.settle("late_result")
	if e.Outcome == operation.OutcomeFailed || e.Outcome == operation.OutcomeRefused {
		// It is known now, and what is known is that it failed.
		d.out.Machine.Raise = &operation.RaisedCause{
			Cause: fleet.CauseOf(d.op.Type), Subject: subject(d.op), Reason: cmp.Or(e.Reason, "EXECUTION_FAILED"),
			Message: e.Message,
		}
	}
}

// provesNothing reports a refusal after a grant: a copy of the agent may have been granted the command, and have begun.
func (d *decider) provesNothing(e operation.Resulted) bool {
	return e.Outcome == operation.OutcomeRefused && e.Reason == "GRANT_REFUSED" && !d.cmd.GrantedAt.IsZero()
}

// deniedByBoot reports whether an agent reports a reboot of its machine in a session of the boot that was to end.
func (d *decider) deniedByBoot(e operation.Resulted) bool {
	own := kind.Of(d.cmd.Kind).ProvenByBoot && d.cmd.ExecutorRole == "host" && e.SessionBootID != ""
	return own && !operation.ProvesReboot(d.cmd.BootIDBefore, e.SessionBootID)
}

// lacksEvidence reports whether a success does not show what was to be read back. A reboot and a way into the installer
// are proven by what is seen of the machine instead, a token to join with by its use; a look before an installation
// does nothing.
func (d *decider) lacksEvidence(e operation.Resulted) bool {
	of := kind.Of(d.cmd.Kind)
	return !of.ProvenByBoot && !of.Prepares && !d.entering() && (of.Evidence == "" || e.Evidence[of.Evidence] == "")
}

func (d *decider) settle(by string) {
	d.setCommand(operation.Done)
	d.cmd.SettledBy = by
	d.out.Machine.Unfence = d.cmd.ID
	d.settledBy(d.cmd.ID)
}

// store copies what the executor says into the command.
func (d *decider) store(e operation.Resulted) {
	d.cmdChanged = true
	d.cmd.Outcome, d.cmd.Reason, d.cmd.Message, d.cmd.Evidence = e.Outcome, e.Reason, e.Message, d.keepSystem(e.Evidence)
}

func (d *decider) liveResult(e operation.Resulted) {
	granted := d.cmd.State == operation.Granted || planted.UngrantedResult
	if d.provesNothing(e) {
		e.Outcome, e.Reason = operation.OutcomeUnknown, "OUTCOME_UNKNOWN"
		e.Message = "granted before, and refused when asked again; a copy of the agent may have begun: " + e.Message
	}
	d.store(e)
	switch {
	case kind.Of(d.cmd.Kind).Ungranted:
		d.preflightEnded(e)
	case e.Outcome == operation.OutcomeSucceeded && granted:
		d.succeeded(e)
	case e.Outcome == operation.OutcomeUnknown && granted && d.rebootSeen():
		d.confirmReboot("new_boot")
	case (e.Outcome == operation.OutcomeUnknown || e.Outcome == operation.OutcomeSucceeded) && !granted:
		// Nothing may start without a grant: an executor that says otherwise is not to be believed.
		d.cmd.Message, d.cmd.Evidence = "result without a grant: "+e.Message, nil
		d.unknown("OUTCOME_UNKNOWN", d.cmd.Message)
	case e.Outcome == operation.OutcomeUnknown:
		d.unknown(cmp.Or(e.Reason, "OUTCOME_UNKNOWN"),
			cmp.Or(e.Message, "the executor cannot know whether the command acted"))
	case e.Reason == "COMMAND_EXPIRED" && d.outlived():
		d.replaceCommand(e.Message)
	default:
		d.setCommand(operation.Done)
		d.notDone(e)
	}
}

// notDone handles a result that says that the step was not done, and that nothing acts any more.
func (d *decider) notDone(e operation.Resulted) {
	if d.op.CancelRequested.IsZero() && e.Outcome != operation.OutcomeCanceled && d.nextPath() {
		return
	}
	s := d.step()
	code := cmp.Or(e.Reason, "EXECUTION_FAILED")
	message := cmp.Or(e.Message, "the executor gave no message")
	switch {
	case !d.op.CancelRequested.IsZero():
		d.finishCanceled("canceled by request: " + message)
	case operation.TurnedBack(*s):
		d.advance() // by another way
	case e.Outcome == operation.OutcomeCanceled && !kind.Of(d.cmd.Kind).Ungranted:
		d.fail("EXECUTION_FAILED", "the executor stopped by itself: "+message, true)
	case e.Retryable && d.mayTryAgain(s):
		d.retry(s, d.attemptFailed(s, code, message))
	case kind.Of(d.cmd.Kind).Ungranted:
		d.turnBack(code, message, e.Retryable)
	default:
		d.fail(code, message, e.Retryable)
	}
}

func (d *decider) retry(s *operation.Step, message string) {
	s.RetryCount++
	s.RetryAt = d.now.Add(operation.Backoff(s.RetryCount))
	s.Message = message
	d.note("step_retrying", message)
	d.wait(operation.WaitRetry, s.RetryAt)
}

// succeeded takes a claim of success: it counts when the evidence stands.
func (d *decider) succeeded(e operation.Resulted) {
	switch {
	case d.entering() && d.cmd.ExecutorRole == "host":
		d.hostClaimsEntry(e)
		return
	case d.entering(), operation.TurnedBack(*d.step()) && d.cmd.ExecutorRole == "site":
		// The switch was read back, and no more was asked of it.
		d.setCommand(operation.Done)
		d.advance()
		return
	}
	if kind.Of(d.cmd.Kind).ProvenByBoot {
		d.rebootClaimed(e)
		return
	}
	if kind.Of(d.cmd.Kind).Prepares {
		d.setCommand(operation.Done)
		d.advance()
		return
	}
	d.setCommand(operation.Done)
	key := kind.Of(d.cmd.Kind).Evidence
	if (key == "" || e.Evidence[key] == "") && !planted.EmptyEvidence {
		d.fail("EVIDENCE_MISSING", "the executor claims success without "+key, false)
		return
	}
	d.leaveInstaller()
	d.follow(e.Evidence)
	d.stepDone(e.Evidence)
	d.advance()
}

// hostClaimsEntry takes a claim of an agent that has sent its machine into the installer: it lives in the system that
// was to be left, so that whoever hears it again hears of the wrong system, unless the installer has reported.
func (d *decider) hostClaimsEntry(e operation.Resulted) {
	if !d.arrived().none() {
		d.enteredInstaller()
		return
	}
	d.cameBack(
		arrival{agentID: d.cmd.ExecutorID, bootID: cmp.Or(e.SessionBootID, e.Evidence[evidence.BootIDAfter]),
			by: operation.ByAgentIdentity},
	)
}

// rebootClaimed confirms a reboot by the system that was to come up; else it waits for that.
func (d *decider) rebootClaimed(e operation.Resulted) {
	if d.cmd.ExecutorRole == "host" && e.SessionBootID != "" && !d.rebootSeen() {
		d.heard(e.AgentID, e.SessionBootID)
	}
	switch {
	case d.rebootSeen():
		d.confirmReboot("")
	case !d.strayed().none():
		d.cameBack(d.strayed())
	case d.answersProbe(e):
		d.setCommand(operation.Done)
		proof := maps.Clone(e.Evidence)
		proof[evidence.BootedBy] = operation.ByProbe
		d.stepDone(proof)
		d.advance()
	case (d.w.TargetAgentID == "" || planted.BootClaim) &&
		slices.Contains([]operation.System{operation.SystemSame, operation.SystemElsewhere}, d.boots()) &&
		readBack(e.Evidence):
		// A machine without an agent: what the site agent has read back is all the evidence there is.
		d.setCommand(operation.Done)
		proof := maps.Clone(e.Evidence)
		proof[evidence.BootedBy] = operation.ByProvider
		d.stepDone(proof)
		d.advance()
	default:
		if d.cmd.ClaimedAt.IsZero() {
			d.cmd.ClaimedAt = d.now
		}
		d.wait(operation.WaitEvidence, d.grantedWake())
	}
}

func readBack(seen map[string]string) bool {
	before, after := seen[evidence.BootIDBefore], seen[evidence.BootIDAfter]
	return before != "" && after != "" && before != after
}

// rebootSeen reports whether the system that the granted command was to bring up has come up.
func (d *decider) rebootSeen() bool {
	if d.cmd == nil || !kind.Of(d.cmd.Kind).ProvenByBoot || d.cmd.State != operation.Granted || d.entering() {
		return false
	}
	return !d.arrived().none()
}

func (d *decider) confirmReboot(settledBy string) {
	a, system := d.arrived(), d.boots()
	d.setCommand(operation.Done)
	d.cmd.Outcome = operation.OutcomeSucceeded
	if settledBy != "" {
		d.cmd.SettledBy = settledBy
	}
	switch {
	case operation.TurnedBack(*d.step()):
		d.endTurnedBack(backAgain)
		return
	case system == operation.SystemWritten && !d.newSystemTrue():
		return
	}
	proof := a.proof()
	proof[evidence.BootIDBefore] = d.cmd.BootIDBefore
	d.stepDone(proof)
	d.advance()
}

// sessionOpened looks at what a new session of an agent means for the operation.
func (d *decider) sessionOpened(e operation.SessionOpened) {
	if operation.IsTerminal(d.op.Phase) || d.w.StaleEpoch {
		return // the newer session tells the same of itself
	}
	if e.OfTarget || e.Installer {
		d.w.TargetBootID = e.BootID
	}
	d.heard(e.AgentID, e.BootID)
	ofExecutor := d.cmd != nil && !d.cmd.Settled() && d.cmd.ExecutorID == e.AgentID
	switch {
	case e.Installer && !ofExecutor && d.installerOpened():
	case ofExecutor && e.RolledBack:
		d.stop("AGENT_STATE_ROLLED_BACK", "the agent came back with an older copy of its memory")
	case ofExecutor && d.cmd.State == operation.Queued:
		d.setCommand(operation.Sent)
		d.cmd.SentAt, d.cmd.ExecutorStateID = d.now, e.StateID
		d.wait(operation.WaitResult, operation.Earliest(d.cmd.Deadline, d.now.Add(operation.LookAgain)))
	case e.OfTarget && d.cmd != nil && d.cmd.State == operation.Granted && d.entering() && d.cmd.ExecutorRole == "host" &&
		!d.strayed().none():
		d.cameBack(d.strayed())
	case ofExecutor && d.cmd.ExecutorStateID != e.StateID:
		d.memoryLost()
	case d.bootAwaited() && d.rebootSeen():
		d.confirmReboot("new_boot")
	case d.bootAwaited() && !d.entering() && !d.strayed().none():
		d.cameBack(d.strayed())
	case ofExecutor && d.cmd.State != operation.Granted:
		d.waitForTaker()
	case d.op.Phase == operation.Running && (d.cmd == nil || d.cmd.Settled()):
		d.advance()
	}
}

// bootAwaited reports whether nothing but a system that comes up is waited for.
func (d *decider) bootAwaited() bool {
	return d.cmd != nil && d.cmd.State == operation.Granted && d.boots() != "" &&
		(!d.cmd.ClaimedAt.IsZero() || d.cmd.ExecutorRole == "installer")
}

// memoryLost handles an executor that has come back with another memory than the one that was sent the command.
func (d *decider) memoryLost() {
	switch {
	case d.cmd.State != operation.Granted:
		d.replaceCommand("the agent lost its memory before it was granted the command; nothing was started")
	case d.rebootSeen():
		d.confirmReboot("new_boot")
	case planted.MemoryLostFails:
		d.calledFailed("AGENT_MEMORY_LOST", "the agent lost its memory")
	default:
		d.unknown("OUTCOME_UNKNOWN", "the agent lost its memory after it was granted the command")
	}
}

// calledFailed ends a granted command as failed that may have acted. Only planted bugs do that.
func (d *decider) calledFailed(code, message string) {
	d.setCommand(operation.Done)
	d.cmd.Outcome = operation.OutcomeFailed
	d.fail(code, message, false)
}
