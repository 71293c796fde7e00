package decider

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
)

// move is one change that a verdict makes. The types of this file are all that there are. A field that is empty leaves
// the value as it is, where no comment states otherwise.
type move interface{ apply(d *draft) }

// noted is an event for the operation's watchers.
type noted struct{ kind, message string }

func (m noted) apply(d *draft) { d.note(m.kind, m.message) }

// waits stores why nothing moves, and the time of the next evaluation.
type waits struct {
	reason string
	until  time.Time
}

func (m waits) apply(d *draft) {
	if d.op.WaitReason != m.reason && m.reason != operation.WaitResult {
		d.note("waiting", m.reason)
	}
	until := m.until
	if !until.After(d.now) && d.now.Before(d.world.CaughtUpAt) {
		until = operation.Earliest(d.world.CaughtUpAt, d.now.Add(operation.LookAgain))
	}
	if d.op.WaitReason != m.reason || !d.op.WakeAt.Equal(until) {
		d.opChanged = true
	}
	d.op.WaitReason, d.op.WakeAt = m.reason, until
}

// replies is the answer to the event, and to agents beside it.
type replies struct {
	grant, ack, resend, flagRollback bool
	refusal                          *fleet.Refusal
	cancelOnAgent                    string
	attemptFailed                    string
}

func (m replies) apply(d *draft) {
	d.out.Grant = d.out.Grant || m.grant
	d.out.Ack = d.out.Ack || m.ack
	d.out.Resend = d.out.Resend || m.resend
	d.out.FlagRollback = d.out.FlagRollback || m.flagRollback
	d.out.CancelOnAgent = cmp.Or(m.cancelOnAgent, d.out.CancelOnAgent)
	d.out.AttemptFailed = cmp.Or(m.attemptFailed, d.out.AttemptFailed)
	d.out.Refusal = cmp.Or(m.refusal, d.out.Refusal)
}

func refuses(reason, message string) move {
	return replies{refusal: &fleet.Refusal{Reason: reason, Message: message}}
}

// begins starts a pending operation.
type begins struct{}

func (begins) apply(d *draft) {
	d.setPhase(operation.Running)
	d.op.StartedAt = d.now
}

// cancelBegins records that a cancel waits for the executor of a granted command.
type cancelBegins struct{}

func (cancelBegins) apply(d *draft) { d.op.CancelRequested, d.opChanged = d.now, true }

// finishes ends the operation.
type finishes struct {
	phase         operation.Phase
	err           *operation.Error
	note, message string
}

func (m finishes) apply(d *draft) {
	d.op.Error = cmp.Or(m.err, d.op.Error)
	d.setPhase(m.phase)
	d.op.FinishedAt = d.now
	d.op.WaitReason = ""
	d.note(m.note, m.message)
	d.op.WakeAt = time.Time{}
	d.out.Machine.ClearCurrent = true
}

// proves adds evidence to the operation.
type proves struct{ evidence map[string]string }

func (m proves) apply(d *draft) { d.prove(m.evidence) }

// entersStage makes the current step the stage that the operation shows.
type entersStage struct{}

func (entersStage) apply(d *draft) { d.op.CurrentStage = d.op.Steps[d.op.CurrentStep].Name }

// stepBegins starts the current step, and enters its stage.
type stepBegins struct{}

func (stepBegins) apply(d *draft) {
	d.setStep(operation.StepRunning)
	d.step().StartedAt = d.now
	entersStage{}.apply(d)
}

// stepSucceeds ends the current step well. The next one is current then, unless this was the last one or the operation
// is cancelled.
type stepSucceeds struct{ proof map[string]string }

func (m stepSucceeds) apply(d *draft) {
	d.setStep(operation.StepSucceeded)
	s := d.step()
	s.FinishedAt, s.Evidence = d.now, m.proof
	d.prove(m.proof)
	d.op.WaitReason = ""
	d.note("step_succeeded", kind.Lookup(s.Kind).Done)
	if d.op.CurrentStep < len(d.op.Steps)-1 && d.op.CancelRequested.IsZero() {
		d.op.CurrentStep++
	}
}

// stepFails ends the current step, which may not have begun.
type stepFails struct{ message string }

func (m stepFails) apply(d *draft) {
	s := d.step()
	if s.State == operation.StepWaiting {
		d.setStep(operation.StepRunning)
		s.StartedAt = d.now
	}
	d.setStep(operation.StepFailed)
	s.FinishedAt, s.Message = d.now, m.message
}

// stepRetries counts a failed try of the current step. With a time, the next try waits until then, and the message is
// kept with the step.
type stepRetries struct {
	message string
	at      time.Time
}

func (m stepRetries) apply(d *draft) {
	s := d.step()
	s.RetryCount++
	if !m.at.IsZero() {
		s.RetryAt, s.Message = m.at, m.message
	}
	d.note("step_retrying", m.message)
}

// stepMessage replaces the message of the current step. By itself it is no change that is stored.
type stepMessage struct{ message string }

func (m stepMessage) apply(d *draft) {
	if d.op.Steps[d.op.CurrentStep].Message != m.message {
		d.step().Message = m.message
	}
}

// stepProves adds evidence to the current step.
type stepProves struct{ evidence map[string]string }

func (m stepProves) apply(d *draft) {
	s := d.step()
	s.Evidence, d.opChanged = merged(s.Evidence, m.evidence), true
}

// commandMade is a new attempt of the current step. It is sent at once where its executor has a session: the store
// commits SENT and the executor's memory before the first byte leaves.
type commandMade struct {
	kind     kind.Kind
	attempt  int
	deadline time.Time
	executor *fleet.Candidate
}

func (m commandMade) apply(d *draft) {
	if d.cmdChanged {
		d.retired = d.cmd
	}
	d.cmd = &operation.Command{
		ID: d.world.NewCommandID, StepIdx: d.op.CurrentStep, Attempt: m.attempt, Kind: m.kind, State: operation.Queued,
		ExecutorID: m.executor.AgentID, ExecutorRole: m.executor.Role, Deadline: m.deadline,
	}
	d.ownCommand, d.cmdChanged, d.cmdNew, d.opChanged = true, true, true, true
	if m.executor.Live {
		commandSent{m.executor.StateID}.apply(d)
	}
}

// commandSent records to which memory of its executor the command goes.
type commandSent struct{ stateID string }

func (m commandSent) apply(d *draft) {
	c := d.setCommand(operation.Sent)
	c.SentAt, c.ExecutorStateID = d.now, m.stateID
}

// commandAcked records that the executor has made the command durable.
type commandAcked struct{}

func (commandAcked) apply(d *draft) { d.setCommand(operation.Acked).AckedAt = d.now }

// commandGranted permits the executor to begin, or repeats the permission for another ask. The first one begins the
// command's time.
type commandGranted struct {
	seq        uint64
	bootBefore string
	timeout    time.Duration
}

func (m commandGranted) apply(d *draft) {
	c := d.command()
	if c.State != operation.Granted {
		d.setCommand(operation.Granted)
		c.GrantedAt = d.now
		if c.AckedAt.IsZero() {
			c.AckedAt = d.now
		}
		c.Deadline = d.now.Add(m.timeout)
	}
	c.GrantSeq, c.BootIDBefore = m.seq, m.bootBefore
}

// commandProves replaces the evidence of the command.
type commandProves struct{ evidence map[string]string }

func (m commandProves) apply(d *draft) { d.command().Evidence = m.evidence }

// commandAnswers stores the result of an executor, empty fields too.
type commandAnswers struct {
	outcome         operation.Outcome
	reason, message string
	evidence        map[string]string
}

func (m commandAnswers) apply(d *draft) {
	c := d.command()
	c.Outcome, c.Reason, c.Message, c.Evidence = m.outcome, m.reason, m.message, m.evidence
}

// commandClaimed records when the executor first reported the success of a command that a boot must prove.
type commandClaimed struct{}

func (commandClaimed) apply(d *draft) {
	if d.cmd.ClaimedAt.IsZero() {
		d.command().ClaimedAt = d.now
	}
}

// commandEnds settles the command.
type commandEnds struct {
	state           operation.CommandState
	outcome         operation.Outcome
	reason, message string
	by              string
	evidence        map[string]string
}

func (m commandEnds) apply(d *draft) {
	c := d.setCommand(m.state)
	c.Outcome = cmp.Or(m.outcome, c.Outcome)
	c.Reason = cmp.Or(m.reason, c.Reason)
	c.Message = cmp.Or(m.message, c.Message)
	c.SettledBy = cmp.Or(m.by, c.SettledBy)
	if m.evidence != nil {
		c.Evidence = m.evidence
	}
}

// hears replaces the boot and session that were read of an agent by those that it has just reported. ofMachine reports
// whether the agent runs on the operation's machine.
type hears struct {
	agentID, bootID string
	ofMachine       bool
}

func (m hears) apply(d *draft) {
	if m.ofMachine {
		d.world.TargetBootID = m.bootID
	}
	d.world.Candidates = slices.Clone(d.world.Candidates)
	for i := range d.world.Candidates {
		if c := &d.world.Candidates[i]; c.AgentID == m.agentID {
			c.BootID, c.Live, c.LastSeen = m.bootID, true, d.now
		}
	}
}

// assigns changes what the machine boots from the network.
type assigns struct{ mode string }

func (m assigns) apply(d *draft) {
	d.out.Machine.Assign = &operation.Assignment{Mode: m.mode, OperationID: d.op.ID, Token: d.world.NewBootToken}
	// Whatever revision the store assigns, the site does not know it yet.
	b := &d.world.Boot
	b.Mode, b.OperationID, b.InstallerAgentID, b.Revision = m.mode, d.op.ID, "", b.Applied+1
}

// flags sets or clears the condition that blocks a machine that is returned or replaced.
type flags struct{ rma bool }

func (m flags) apply(d *draft) {
	conditions(condition(fleet.RMA, m.rma, "RmaOperation", "")).apply(d)
	d.world.Machine.Conditions = maps.Clone(d.world.Machine.Conditions)
	if d.world.Machine.Conditions != nil {
		d.world.Machine.Conditions[fleet.RMA] = m.rma
	}
}

// changesMachine changes the machine's row.
type changesMachine operation.MachineChange

func (m changesMachine) apply(d *draft) {
	to := &d.out.Machine
	to.SetPhase = cmp.Or(m.SetPhase, to.SetPhase)
	to.Fence, to.Unfence = cmp.Or(m.Fence, to.Fence), cmp.Or(m.Unfence, to.Unfence)
	to.Repeated = cmp.Or(m.Repeated, to.Repeated)
	to.Conditions = append(to.Conditions, m.Conditions...)
	to.ImageDigest = cmp.Or(m.ImageDigest, to.ImageDigest)
	to.Unprovision = to.Unprovision || m.Unprovision
	to.Raise = cmp.Or(m.Raise, to.Raise)
	if len(m.Happened.Cures) > 0 {
		to.Happened = m.Happened
	}
	to.RevokeHosts, to.Agentless = to.RevokeHosts || m.RevokeHosts, to.Agentless || m.Agentless
	to.ProbeAddress = cmp.Or(m.ProbeAddress, to.ProbeAddress)
}

// conditions returns the move that changes conditions of the machine, in their order.
func conditions(list ...operation.ConditionChange) move {
	return changesMachine{Conditions: list}
}

func condition(t fleet.ConditionType, status bool, reason, message string) operation.ConditionChange {
	return operation.ConditionChange{Type: t, Status: status, Reason: reason, Message: message}
}
