package decider

import (
	"bytes"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/planted"
)

// Decide answers one event. It changes nothing in the snapshot.
func Decide(s operation.Snapshot, e operation.Event, now time.Time) operation.Decision {
	d := &decider{now: now, w: s.World, op: s.Op.Clone(), cmd: s.Command.Clone()}
	switch e := e.(type) {
	case operation.Evaluate:
		d.evaluate()
	case operation.Due:
		if !d.now.Add(operation.ClockSlack).Before(d.op.WakeAt) {
			d.evaluate()
		}
	case operation.AckedByAgent:
		d.acked(e)
	case operation.GrantAsked:
		d.grantAsked(e)
	case operation.Resulted:
		d.resulted(e)
	case operation.SessionOpened:
		d.sessionOpened(e)
	case operation.CancelAsked:
		d.cancelAsked(e)
	case operation.Reported:
		d.reported(e)
	case operation.Impostor:
		d.tell("identity_refused", e.Reason+": "+e.Message)
	case operation.PowerSeen:
		d.tell(operation.NoteOthers, operation.PowerByOthers(&d.op, d.cmd, e))
	case operation.Quarantine:
		d.stop(e.Reason, e.Message)
	}
	return d.answer(s)
}

// decider carries one decision while it is being made.
type decider struct {
	now time.Time
	w   operation.World
	op  operation.Operation
	cmd *operation.Command

	opChanged  bool
	cmdChanged bool
	cmdNew     bool
	retired    *operation.Command // the attempt that a new command of this same decision replaces
	out        operation.Decision
}

func (d *decider) answer(s operation.Snapshot) operation.Decision {
	out := d.out
	out.Op = d.op
	out.OpChanged = d.opChanged
	out.Changed = d.opChanged || d.cmdChanged // a command that retires another is a change itself
	if d.retired != nil {
		out.Commands = append(out.Commands, d.retired)
	}
	if d.cmdChanged && d.cmd != nil {
		out.Commands = append(out.Commands, d.cmd)
	}
	if d.cmdNew {
		out.NewCommand = d.cmd
	}
	if !d.opChanged {
		out.Op = s.Op
	}
	return out
}

func (d *decider) step() *operation.Step { return &d.op.Steps[d.op.CurrentStep] }

func (d *decider) note(kind, message string) {
	d.opChanged = true
	d.out.Notes = append(
		d.out.Notes,
		operation.Note{Kind: kind, Step: d.op.CurrentStage, Message: message, Phase: d.op.Phase},
	)
}

// tell tells the operation's watchers what others do, as long as it goes on.
func (d *decider) tell(kind, what string) {
	if what != "" && (d.op.Phase == operation.Pending || d.op.Phase == operation.Running) {
		d.note(kind, what)
	}
}

func (d *decider) setPhase(p operation.Phase) {
	operation.MayMove(operation.PhaseTable, d.op.Phase, p)
	d.op.Phase, d.opChanged = p, true
}

func (d *decider) setStep(st operation.StepState) {
	s := d.step()
	operation.MayMove(operation.StepTable, s.State, st)
	s.State, d.opChanged = st, true
}

func (d *decider) setCommand(cs operation.CommandState) {
	operation.MayMove(operation.CommandTable, d.cmd.State, cs)
	d.cmd.State, d.cmdChanged = cs, true
	if operation.IsFinalCommand(cs) && d.cmd.FinishedAt.IsZero() {
		d.cmd.FinishedAt = d.now
	}
}

// wait stores why nothing moves and when to look again.
func (d *decider) wait(reason string, until time.Time) {
	if d.op.WaitReason != reason && reason != "" && reason != operation.WaitResult {
		d.note("waiting", reason)
	}
	if !until.After(d.now) && d.now.Before(d.w.CaughtUpAt) {
		until = operation.Earliest(d.w.CaughtUpAt, d.now.Add(operation.LookAgain))
	}
	if d.op.WaitReason != reason || !d.op.WakeAt.Equal(until) {
		d.opChanged = true
	}
	d.op.WaitReason, d.op.WakeAt = reason, until
}

// past reports whether a deadline is over. None is while agents come back after their controllers were away.
func (d *decider) past(deadline time.Time) bool {
	return !d.now.Before(deadline) && !d.now.Before(d.w.CaughtUpAt)
}

// outlived reports whether the command's time ran out while its controllers were away, before it was granted.
func (d *decider) outlived() bool {
	return d.cmd.GrantedAt.IsZero() && !d.now.Before(d.cmd.Deadline) && !d.past(d.cmd.Deadline)
}

// evaluate sees whether anything is due.
func (d *decider) evaluate() {
	switch d.op.Phase {
	case operation.Pending:
		if d.op.NeedsSlot() && !d.w.SlotHeld {
			// Whoever gives the slot wakes the operation.
			d.wait(operation.WaitBudget, d.now.Add(operation.LookAgain))
			return
		}
		d.setPhase(operation.Running)
		d.op.StartedAt = d.now
		d.note("started", "")
		d.advance()
	case operation.Running:
		d.evaluateRunning()
	}
}

func (d *decider) evaluateRunning() {
	switch {
	case d.cmd == nil || d.cmd.StepIdx != d.op.CurrentStep || d.cmd.Settled():
		d.advance()
	case d.cmd.State == operation.Granted:
		d.evaluateGranted()
	case d.past(d.cmd.Deadline) && kind.Of(d.cmd.Kind).Ungranted:
		d.preflightExpired()
	case d.past(d.cmd.Deadline):
		d.setCommand(operation.Expired)
		d.fail("AGENT_UNAVAILABLE",
			"leave to start the command was not given before the step's deadline; nothing was started", true)
	case d.shouldHandOver():
		d.replaceCommand("handed over: the executor is silent and was never granted the command")
	default:
		// Whoever committed SENT may have failed before the command left. The agent knows it by its id if it has it.
		d.out.Resend = d.cmd.State == operation.Sent && d.w.ExecutorLive
		d.waitForTaker()
	}
}

// waitForTaker waits for the executor to ask for its grant.
func (d *decider) waitForTaker() {
	reason := operation.WaitResult
	if !d.w.ExecutorLive {
		reason = operation.WaitAgent
	}
	d.wait(reason, operation.Earliest(d.cmd.Deadline, d.now.Add(operation.LookAgain)))
}

func (d *decider) evaluateGranted() {
	switch {
	case d.rebootSeen() && (!d.cmd.ClaimedAt.IsZero() || d.due() || d.cmd.ExecutorRole == "installer"):
		d.confirmReboot("new_boot")
	case d.boots() != "" && !d.entering() && (!d.cmd.ClaimedAt.IsZero() || d.due()) && !d.strayed().none():
		d.cameBack(d.strayed())
	case d.evaluateGrantedBoot():
	case !d.op.CancelRequested.IsZero() && d.due():
		d.unknown("OUTCOME_UNKNOWN", "the executor did not answer the cancel in time; the command may still act")
	case d.past(d.cmd.Deadline) && d.awaitsPhoneHome():
		d.noPhoneHome()
	case d.past(d.cmd.Deadline) && !d.cmd.ClaimedAt.IsZero():
		d.unknown("EVIDENCE_MISSING", "the executor says that it is done, and the machine shows no new boot")
	case d.past(d.cmd.Deadline) && planted.DeadlineFails:
		d.calledFailed("COMMAND_EXPIRED", "no result came before the deadline")
	case d.past(d.cmd.Deadline):
		d.unknown("OUTCOME_UNKNOWN", "the command was granted and no result came before the deadline; it may have acted")
	default:
		d.wait(d.op.WaitReason, d.nextEvaluation())
	}
}

func (d *decider) due() bool { return d.past(d.grantedWake()) }

// grantedWake is when a granted command is given up on.
func (d *decider) grantedWake() time.Time {
	if d.op.CancelRequested.IsZero() {
		return d.cmd.Deadline
	}
	return operation.Earliest(d.cmd.Deadline, d.op.CancelRequested.Add(operation.CancelPatience))
}

// shouldHandOver reports whether another agent should take the step: the executor is silent, was never granted the
// command, and no answer that it may still hold can be in its window any more.
func (d *decider) shouldHandOver() bool {
	if d.w.ExecutorLive || fleet.Silence(d.w.ExecutorSilentFrom, d.now) < fleet.HandOverAfter {
		return false
	}
	if d.bootsInstaller(d.step()) {
		return d.otherExecutor(d.step())
	}
	next := d.route()
	return next != nil && next.AgentID != d.cmd.ExecutorID && next.CanDo(kind.Of(d.step().Kind).Capability)
}

func (d *decider) route() *fleet.Candidate {
	s := d.step()
	switch kind.Of(s.Kind).Route {
	case kind.OverSSH:
		return fleet.SiteForSSH(d.w.Candidates)
	case kind.ThroughProvider:
		return fleet.SiteFor(d.w.Candidates, string(kind.ProviderAction), d.w.Provider)
	}
	if s.AsksCluster() {
		return d.routeInCluster(s)
	}
	return fleet.Route(d.w.Candidates, kind.Of(s.Kind).Capability, d.w.Provider, s.Mode == "bmc", d.now)
}

// replaceCommand gives up a command that was never granted, and so never acted, for a new attempt.
func (d *decider) replaceCommand(why string) {
	d.setCommand(operation.CommandCanceled)
	d.cmd.Message = why
	d.note("step_retrying", why)
	d.advance()
}

// acked records that the executor holds the command.
func (d *decider) acked(e operation.AckedByAgent) {
	if d.cmd == nil || d.cmd.ID != e.CommandID || d.cmd.ExecutorID != e.AgentID || d.cmd.State != operation.Sent {
		return
	}
	d.setCommand(operation.Acked)
	d.cmd.AckedAt = d.now
}

// cancelAsked stops what can be stopped.
func (d *decider) cancelAsked(e operation.CancelAsked) {
	switch {
	case operation.IsTerminal(d.op.Phase):
		d.out.Refusal = &fleet.Refusal{Reason: "OPERATION_FINISHED",
			Message: "the operation is already " + string(d.op.Phase)}
	case e.Why == "" && d.tooLate():
		d.out.Refusal = &fleet.Refusal{Reason: "CANCEL_TOO_LATE",
			Message: "the machine is restarting or being switched, which nothing can stop any more; the operation goes on to " +
				"its end"}
	case d.cmd != nil && d.cmd.State == operation.Granted:
		d.cancelGranted(e)
	default:
		d.dropCommand("canceled by request")
		d.finishCanceled("canceled " + e.By())
	}
}

// tooLate reports whether a client's cancel could change nothing: the last step has been allowed to do what no executor
// takes back. Where steps follow, those are cancelled.
func (d *decider) tooLate() bool {
	if d.cmd == nil || d.cmd.State != operation.Granted || !d.op.CancelRequested.IsZero() ||
		d.op.CurrentStep != len(d.op.Steps)-1 {
		return false
	}
	return kind.Of(d.cmd.Kind).Unstoppable
}

func (d *decider) cancelGranted(e operation.CancelAsked) {
	d.out.CancelOnAgent = d.cmd.ID
	if !d.op.CancelRequested.IsZero() {
		return
	}
	d.op.CancelRequested = d.now
	d.note("cancel_requested", e.By())
	d.wait(operation.WaitCancelling, d.grantedWake())
}

// dropCommand cancels a command that was never granted. The executor is told, so that it forgets it early.
func (d *decider) dropCommand(why string) {
	if d.cmd.Settled() {
		return
	}
	d.out.CancelOnAgent = d.cmd.ID
	d.setCommand(operation.CommandCanceled)
	d.cmd.Message = why
}

// stop ends the operation because the machine must not be acted upon.
func (d *decider) stop(reason, message string) {
	if operation.IsTerminal(d.op.Phase) {
		return
	}
	if d.cmd != nil && d.cmd.State == operation.Granted {
		if planted.RolledBackStops {
			d.calledFailed(reason, message)
			return
		}
		d.unknown(reason, message)
		return
	}
	d.dropCommand(message)
	d.fail(reason, message, false)
}

// grantAsked decides whether an executor may start.
func (d *decider) grantAsked(e operation.GrantAsked) {
	if d.w.StaleEpoch {
		d.refuseGrant("SESSION_SUPERSEDED", "a newer session of this agent is open")
		return
	}
	if e.Seq <= d.w.LastGrantSeq {
		d.out.FlagRollback = true
		d.refuseGrant("AGENT_STATE_ROLLED_BACK", "the grant number was used before: the agent's memory is an older copy")
		if d.live(e.CommandID, e.AgentID) {
			d.stop("AGENT_STATE_ROLLED_BACK", "the agent's memory was rolled back to an older copy")
		}
		return
	}
	if d.askedByAnother(e) {
		const why = "another copy of the agent's memory was granted the command"
		d.out.FlagRollback = true
		d.refuseGrant("AGENT_STATE_ROLLED_BACK", why)
		d.stop("AGENT_STATE_ROLLED_BACK", why)
		return
	}
	if reason, message := d.whyNoGrant(e); reason != "" {
		d.refuseGrant(reason, message)
		if reason == "COMMAND_EXPIRED" && d.outlived() {
			d.replaceCommand("its time ran out while the controllers were away")
		}
		return
	}
	if d.grantedInAnotherBoot(e) {
		d.bootedSinceGrant(e)
		return
	}
	d.out.Grant = true
	first := d.cmd.State != operation.Granted
	if first {
		d.setCommand(operation.Granted)
		d.cmd.GrantedAt = d.now
		if d.cmd.AckedAt.IsZero() {
			d.cmd.AckedAt = d.now
		}
		d.cmd.Deadline = d.now.Add(d.step().Timeout)
		d.noteSystem()
		d.unprovision()
	}
	d.cmdChanged = true
	d.cmd.GrantSeq = e.Seq
	d.cmd.BootIDBefore = d.bootBefore(e)
	d.wait(operation.WaitResult, d.nextEvaluation())
}

// askedByAnother reports whether the command was granted on an ask that the asking memory does not know of: a copy of
// it has asked.
func (d *decider) askedByAnother(e operation.GrantAsked) bool {
	granted := d.live(e.CommandID, e.AgentID) && d.cmd.State == operation.Granted && d.cmd.GrantSeq != 0
	return granted && d.cmd.ExecutorStateID == e.StateID && e.Seq != d.cmd.GrantSeq &&
		!slices.Contains(e.Earlier, d.cmd.GrantSeq) &&
		!planted.StateID
}

// grantedInAnotherBoot reports whether a host agent asks again for a command that was granted in another boot. A copy
// of its memory from before the start knows nothing of what was done in that boot.
func (d *decider) grantedInAnotherBoot(e operation.GrantAsked) bool {
	return d.cmd.State == operation.Granted && d.cmd.ExecutorRole == "host" &&
		operation.ProvesReboot(d.cmd.BootIDBefore, e.BootID) &&
		!planted.MemoryNumbers && !planted.StateID && !planted.DedupCache && !planted.IntentRecord
}

// bootedSinceGrant settles a granted command whose executor asks in a later boot: nothing that was begun before it goes
// on. Where that boot, or the system in it, does not show what was done, nobody knows.
func (d *decider) bootedSinceGrant(e operation.GrantAsked) {
	const why = "the machine was restarted after the command was granted, which may have been begun"
	d.refuseGrant("GRANT_REFUSED", why)
	d.heard(e.AgentID, e.BootID)
	switch {
	case d.rebootSeen():
		d.confirmReboot("new_boot")
	case d.entering() && !d.strayed().none():
		d.cameBack(d.strayed())
	default:
		d.unknown("OUTCOME_UNKNOWN", why)
	}
}

func (d *decider) refuseGrant(reason, message string) {
	d.out.Refusal = &fleet.Refusal{Reason: reason, Message: message}
}

// live reports whether the named command is the one that the operation waits for.
func (d *decider) live(commandID, agentID string) bool {
	return d.cmd != nil && d.cmd.ID == commandID && d.cmd.ExecutorID == agentID && !d.cmd.Settled() &&
		!operation.IsTerminal(d.op.Phase)
}

func (d *decider) whyNoGrant(e operation.GrantAsked) (reason, message string) {
	switch {
	case !d.live(e.CommandID, e.AgentID):
		return "GRANT_REFUSED", "the command is settled or superseded"
	case d.cmd.State == operation.Queued:
		return "GRANT_REFUSED", "the command has not been sent"
	case d.cmd.ExecutorStateID != e.StateID:
		return "AGENT_MEMORY_LOST", "the command was sent to another memory of this agent"
	case e.SessionBootID != "" && e.BootID != e.SessionBootID && !planted.AskedBoot:
		return "GRANT_REFUSED", "the agent asks from another boot than that of its session"
	case !bytes.Equal(d.cmd.Digest, e.Digest):
		return "GRANT_REFUSED", "the digest of the command differs"
	case !d.op.CancelRequested.IsZero():
		return "CANCELED_BY_REQUEST", "the operation is being cancelled"
	case d.past(d.cmd.Deadline) || d.outlived():
		return "COMMAND_EXPIRED", "the step's deadline has passed"
	case d.w.Machine.Freeze.Active():
		return "FLEET_FROZEN", "the fleet is frozen: " + d.w.Machine.Freeze.Cause()
	case d.op.NeedsSlot() && !d.w.SlotHeld:
		return "BUDGET_REQUIRED", "the operation holds no slot of the budgets for its work"
	case d.w.Machine.NodeState == fleet.Quarantined:
		return "MACHINE_QUARANTINED", "the machine is quarantined"
	case d.blocked() && !d.forgets():
		return "MACHINE_BLOCKED", "the machine has been blocked since"
	case !d.cmd.ClaimedAt.IsZero():
		return "GRANT_REFUSED", "the command has a result already"
	case kind.Of(d.cmd.Kind).Ungranted:
		return "GRANT_REFUSED", "a preflight changes nothing and needs no grant"
	}
	return "", ""
}

// forgets reports whether the step only makes the provider forget a machine that its workflow has retired.
func (d *decider) forgets() bool {
	return d.op.Type == fleet.Decommission && kind.Of(d.step().Kind).Route == kind.ThroughProvider &&
		d.step().Mode == workflow.ForgetAction &&
		!d.w.Machine.Conditions[fleet.RMA]
}

// bootBefore is the boot that must be gone for a reboot to count.
func (d *decider) bootBefore(e operation.GrantAsked) string {
	if d.cmd.ExecutorRole != "site" {
		return e.BootID
	}
	if h := fleet.Host(d.w.Candidates); h != nil && h.BootID != "" {
		return h.BootID // the machine's newest boot may have been an installer's
	}
	return d.w.TargetBootID
}
