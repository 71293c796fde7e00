package decider

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
	"github.com/ingot-metal/ingot/internal/planted"
)

// advance starts the current step, or its next attempt, and goes on through steps that end at once.
func (d *decider) advance() {
	for !operation.IsTerminal(d.op.Phase) {
		s := d.step()
		d.op.CurrentStage = s.Name
		if s.State == operation.StepWaiting {
			d.setStep(operation.StepRunning)
			s.StartedAt = d.now
			d.note("step_started", kind.Of(s.Kind).Started)
		}
		if s.RetryAt.After(d.now) {
			d.wait(operation.WaitRetry, s.RetryAt)
			return
		}
		if !d.attempt(s) {
			return
		}
	}
}

// attempt tries the current step once; it returns true if the step has ended and the next one may start.
func (d *decider) attempt(s *operation.Step) bool {
	switch kind.Of(s.Kind).Control {
	case kind.SetsPhase:
		d.out.Machine.SetPhase = fleet.Phase(s.Mode)
		d.stepDone(map[string]string{"phase": s.Mode})
		return true
	case kind.ChecksStage:
		return d.attemptStage(s)
	case kind.AwaitsAgent:
		return d.attemptWaitForAgent(s)
	case kind.FlagsRMA:
		d.flagRMA(s)
		return true
	default:
		return d.dispatch(s)
	}
}

// untaken returns the message of a step that no agent could take in time. Of an earlier attempt it repeats the end.
func untaken(s *operation.Step) string {
	if s.RetryCount > 0 {
		return "no agent could take the next attempt before the step's deadline; the one before has failed: " + s.Message
	}
	return "no agent could take the step before its deadline; nothing was started"
}

// flagRMA sets or clears the condition that blocks a machine that is returned or replaced.
func (d *decider) flagRMA(s *operation.Step) {
	on := s.Mode != "return"
	d.condition(fleet.RMA, on, "RmaOperation", "")
	d.w.Machine.Conditions = maps.Clone(d.w.Machine.Conditions)
	if d.w.Machine.Conditions != nil {
		d.w.Machine.Conditions[fleet.RMA] = on
	}
	d.stepDone(map[string]string{"rma": map[bool]string{true: "flagged", false: "returned"}[on]})
}

func (d *decider) attemptWaitForAgent(s *operation.Step) bool {
	limit := s.StartedAt.Add(s.Timeout)
	switch {
	case d.w.TargetAgentLive:
		d.stepDone(map[string]string{"agent_id": d.w.TargetAgentID, "boot_id": d.w.TargetBootID})
		return true
	case d.past(limit):
		d.fail("AGENT_UNAVAILABLE", "the machine's agent did not come up in time", true)
	default:
		d.wait(operation.WaitAgent, limit)
	}
	return false
}

// blocked reports whether nothing may run on the machine.
func (d *decider) blocked() bool {
	removes := d.op.Type == fleet.Decommission && d.w.Stage.Mode == workflow.FullDecommission
	return d.w.Machine.Conditions[fleet.RMA] || d.w.Machine.Conditions[fleet.RetiredFlag] && !removes
}

func (d *decider) failBlocked() {
	d.fail("MACHINE_BLOCKED", "the machine has been flagged RMA or Retired since, and nothing runs on a blocked machine",
		false)
}

// dispatch makes the command of the next attempt, if somebody can take it.
func (d *decider) dispatch(s *operation.Step) bool {
	if d.blocked() && !d.forgets() {
		d.failBlocked()
		return false
	}
	limit := d.limitOf(s)
	next := d.route()
	switch {
	case next == nil && d.noExecutor(s) && !s.AsksCluster():
		d.waitForAgent(s, limit)
	case d.bootsInstaller(s):
		return d.dispatchThroughInstaller(s, limit)
	case s.AsksCluster():
		d.dispatchInCluster(s, limit)
	case next == nil && d.past(limit):
		d.fail("AGENT_UNAVAILABLE", untaken(s), true)
	case next == nil:
		d.wait(operation.WaitAgent, operation.Earliest(limit, d.now.Add(operation.LookAgain)))
	case !next.CanDo(kind.Of(s.Kind).Capability):
		d.fail(kind.Of(s.Kind).Missing, fmt.Sprintf("agent %s cannot %s on this machine", next.AgentID,
			kind.Of(s.Kind).Capability), false)
	default:
		d.makeCommand(s, s.Kind, next)
	}
	return false
}

// noExecutor reports whether no agent could ever take the step as things are: the machine has none of its own, and no
// agent of its site has a way to it.
func (d *decider) noExecutor(s *operation.Step) bool {
	if kind.Of(s.Kind).Route != kind.Direct {
		return false // which have other ways to the machine
	}
	for i := range d.w.Candidates {
		c := &d.w.Candidates[i]
		through := len(c.Capabilities) == 0 ||
			slices.ContainsFunc(c.Capabilities, func(s string) bool { return strings.HasPrefix(s, "provider:") })
		if c.Role != "site" || through {
			return false
		}
	}
	return true
}

// waitForAgent gives somebody the time to enrol an agent, and no more.
func (d *decider) waitForAgent(s *operation.Step, limit time.Time) {
	limit = operation.Earliest(limit, s.StartedAt.Add(operation.NobodyGrace))
	if !d.past(limit) {
		d.wait(operation.WaitNobody, limit)
		return
	}
	d.fail(operation.WaitNobody,
		"nothing can reach the machine: it has no agent, and its site has no agent with a way to it; enrol one of them, "+
			"or set the BMC's endpoint; nothing was started", false)
}

// limitOf is when the current try of a step has taken too long to find an executor.
func (d *decider) limitOf(s *operation.Step) time.Time {
	from := s.StartedAt
	if s.RetryAt.After(from) {
		from = s.RetryAt
	}
	return from.Add(s.Timeout)
}

func (d *decider) makeCommand(s *operation.Step, k kind.Kind, executor *fleet.Candidate) {
	attempt, deadline := 1, d.now.Add(s.Timeout)
	if d.cmd != nil && d.cmd.StepIdx == d.op.CurrentStep {
		attempt = d.cmd.Attempt + 1
		if d.cmd.State == operation.CommandCanceled && !d.outlived() {
			// A replacement gets no more time than what it replaces: an operation ends, however often agents change.
			deadline = d.cmd.Deadline
		}
	}
	if d.cmdChanged {
		d.retired = d.cmd
	}
	d.cmd = &operation.Command{
		ID: d.w.NewCommandID, StepIdx: d.op.CurrentStep, Attempt: attempt, Kind: k, State: operation.Queued,
		ExecutorID: executor.AgentID, ExecutorRole: executor.Role, Deadline: deadline,
	}
	d.cmdChanged, d.cmdNew, d.opChanged = true, true, true
	reason := operation.WaitResult
	if executor.Live {
		// The store commits SENT and the executor's memory before the first byte leaves.
		d.setCommand(operation.Sent)
		d.cmd.SentAt = d.now
		d.cmd.ExecutorStateID = executor.StateID
	} else {
		reason = operation.WaitAgent
	}
	d.wait(reason, operation.Earliest(d.cmd.Deadline, d.now.Add(operation.LookAgain)))
}

// stepDone ends the current step well and moves to the next, or ends the operation.
func (d *decider) stepDone(proof map[string]string) {
	s := d.step()
	d.setStep(operation.StepSucceeded)
	s.FinishedAt = d.now
	proof = d.withIdentity(proof)
	s.Evidence = proof
	if d.op.Evidence == nil {
		d.op.Evidence = map[string]string{}
	}
	maps.Copy(d.op.Evidence, proof)
	d.op.WaitReason = ""
	d.note("step_succeeded", kind.Of(s.Kind).Done)
	switch {
	case d.op.CurrentStep == len(d.op.Steps)-1:
		d.finishSucceeded()
	case !d.op.CancelRequested.IsZero():
		d.finishCanceled("canceled between two steps")
	default:
		d.op.CurrentStep++
	}
}

// fail ends the current step and the operation.
func (d *decider) fail(code, message string, retryable bool) {
	code, message, retryable = d.asRefused(code, message, retryable)
	s := d.step()
	if s.State == operation.StepWaiting {
		d.setStep(operation.StepRunning)
		s.StartedAt = d.now
	}
	d.setStep(operation.StepFailed)
	s.FinishedAt = d.now
	s.Message = message
	d.op.CurrentStage = s.Name
	d.note("step_failed", message)
	if d.op.Phase == operation.Pending {
		d.setPhase(operation.Running)
		d.op.StartedAt = d.now
	}
	d.op.Error = &operation.Error{Code: code, Message: message, Retryable: retryable, Details: d.details()}
	d.endAttempt(d.op.Error)
	d.raise()
	d.reachedBySite(d.op.Error.Code)
	d.finish(operation.Failed, "failed", d.op.Error.Message)
}

func (d *decider) details() map[string]string {
	out := map[string]string{"step": d.step().Name, "machine_id": d.op.MachineID}
	if d.cmd != nil && d.cmd.StepIdx == d.op.CurrentStep {
		out["command_id"] = d.cmd.ID
		out["executor"] = d.cmd.ExecutorID
	}
	return out
}

// unknown ends the operation over a granted command that may have acted, and fences the machine.
func (d *decider) unknown(code, message string) {
	if reason := kind.Of(d.cmd.Kind).Unfinished; reason != "" {
		d.unfinished(reason, message)
		return
	}
	if s := d.step(); planted.UnknownRetried && s.RetryCount == 0 {
		d.setCommand(operation.Done)
		d.cmd.Outcome = operation.OutcomeFailed
		d.retry(s, message)
		return
	}
	d.setCommand(operation.Unknown)
	d.cmd.Outcome = operation.OutcomeUnknown
	d.cmd.Reason = cmp.Or(d.cmd.Reason, code)
	d.settleRepeated()
	if !planted.Fence {
		d.out.Machine.Fence = d.cmd.ID
	}
	d.fail(code, message, false)
}

// unfinished ends a test that has no result. Whatever came of it, nothing was changed.
func (d *decider) unfinished(reason, why string) {
	d.setCommand(operation.Done)
	d.cmd.Outcome, d.cmd.Reason, d.cmd.Message = operation.OutcomeFailed, reason, why
	if !d.op.CancelRequested.IsZero() {
		d.finishCanceled("canceled by request; the test, which changes nothing, may run on for its time")
		return
	}
	d.fail(reason, "the tests have no result, and have changed nothing: "+why, true)
}

// settleRepeated settles the command of an earlier operation of which this one is the repeat.
func (d *decider) settleRepeated() {
	if id := d.w.Machine.UnresolvedCommand; id != "" && !fleet.Housekeeping(d.op.Type) {
		d.out.Machine.Unfence, d.out.Machine.Repeated = id, id
		d.settledBy(id)
	}
}

func (d *decider) finishSucceeded() {
	d.cure(proven(d.op))
	d.settleRepeated()
	d.reachedBySite("")
	d.condition(fleet.OperationCanceled, false, "OperationSucceeded", "")
	if d.op.Type == fleet.ExitMaintenance {
		d.condition(fleet.Drained, false, "ExitMaintenance", "")
	}
	if digest := d.op.Evidence[evidence.ImageDigest]; digest != "" {
		d.out.Machine.ImageDigest = digest
		d.condition(fleet.Provisioned, true, "ImageVerified", digest)
		if d.op.Evidence[evidence.NodeReadyAt] == "" {
			d.condition(fleet.InCustomerCluster, false, "Reimaged", "")
		}
	}
	d.reachedByPhone()
	if what := d.op.Evidence[evidence.Deployed]; what != "" {
		d.condition(fleet.Provisioned, true, "Provider", what)
	}
	if d.op.Evidence[evidence.Redeployed] != "" {
		d.condition(fleet.InCustomerCluster, false, "Redeployed", "")
	}
	d.finish(operation.Succeeded, "succeeded", "")
}

func (d *decider) finishCanceled(message string) {
	if s := d.step(); s.State == operation.StepRunning {
		d.setStep(operation.StepFailed)
		s.FinishedAt, s.Message = d.now, message
	}
	d.op.Error = &operation.Error{Code: "CANCELED_BY_REQUEST", Message: message}
	d.condition(fleet.OperationCanceled, true, "CANCELED_BY_REQUEST", "")
	d.finish(operation.Canceled, "canceled", message)
}

func (d *decider) finish(p operation.Phase, note, message string) {
	d.setPhase(p)
	d.op.FinishedAt = d.now
	d.op.WaitReason = ""
	d.note(note, message)
	d.op.WakeAt = time.Time{}
	d.out.Machine.ClearCurrent = true
	d.endBoot(p)
}

func (d *decider) condition(t fleet.ConditionType, status bool, reason, message string) {
	d.out.Machine.Conditions = append(d.out.Machine.Conditions, operation.ConditionChange{
		Type: t, Status: status, Reason: reason, Message: message,
	})
}
