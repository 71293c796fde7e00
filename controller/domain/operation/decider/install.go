package decider

import (
	"fmt"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// An install attempt is one round of the plan's tries of the repave step. It counts from the grant of the write on:
// what fails before, on the way into the installer, has touched no disk and is a failure of its own.

// mayTryAgain reports whether a failed try of the step is followed by another: a further one of the same round, or,
// where the attempt counts for the node, the first one of the next.
func (d *decider) mayTryAgain(s *operation.Step) bool {
	if !kind.Of(s.Kind).WritesSystem || !d.w.Install.Counted {
		return s.RetryCount < s.MaxRetries
	}
	return !roundOver(s) || d.wrote() && !d.w.Install.Last()
}

// roundOver reports whether the try that has just failed was the last one of its round.
func roundOver(s *operation.Step) bool { return (s.RetryCount+1)%(s.MaxRetries+1) == 0 }

// wrote reports whether the write of the attempt under way was granted: what is on the disk may have changed.
func (d *decider) wrote() bool {
	if d.step().Mode == workflow.ReportedInstall {
		return true
	}
	if slices.ContainsFunc(d.op.Steps, func(s operation.Step) bool {
		return kind.Of(s.Kind).WritesSystem && s.State == operation.StepSucceeded
	}) {
		return true
	}
	s, c := d.step(), d.cmd
	if c == nil || !kind.Of(c.Kind).WritesSystem || c.StepIdx != d.op.CurrentStep || c.GrantedAt.IsZero() {
		return false
	}
	ofThisTry := !c.GrantedAt.Before(s.RetryAt) && c.SettledBy != byPowerCycle
	return ofThisTry || s.RetryCount%(s.MaxRetries+1) != 0
}

// attemptFailed counts an attempt that is followed by another; it returns what to say of the failed try.
func (d *decider) attemptFailed(s *operation.Step, code, message string) string {
	if !kind.Of(s.Kind).WritesSystem || !d.w.Install.Counted || !roundOver(s) || !d.wrote() {
		return message
	}
	d.out.AttemptFailed = code + ": " + message
	return d.attemptText()
}

func (d *decider) attemptText() string {
	return fmt.Sprintf("install attempt %d of %d has failed: %s", d.w.Install.Failed+1, d.w.Install.Max,
		d.out.AttemptFailed)
}

// endAttempt counts the attempt that ends the operation, if one is under way. Where it was the last one, that is what
// the operation fails with; a command that may still act is settled first, and so keeps its name.
func (d *decider) endAttempt(e *operation.Error) {
	if !d.w.Install.Counted || !d.wrote() {
		return
	}
	d.out.AttemptFailed = e.Code + ": " + e.Message
	if d.step().Mode == workflow.ReportedInstall {
		d.out.AttemptFailed = e.Message // in the installer's own words
	}
	if !d.w.Install.Last() || d.cmd != nil && d.cmd.State == operation.Unknown {
		return
	}
	e.Details["cause"] = e.Code
	e.Code, e.Message, e.Retryable = "INSTALL_ATTEMPTS_EXHAUSTED", d.attemptText(), false
}

// Instant ends a pending operation at once, with what it has recorded for evidence. It is for operations that change a
// record and do no work: their one step is done in the transaction that creates them.
func Instant(op operation.Operation, evidence map[string]string, now time.Time) operation.Decision {
	d := &decider{now: now, op: op.Clone()}
	d.setPhase(operation.Running)
	d.op.StartedAt = now
	d.note("started", "")
	d.setStep(operation.StepRunning)
	s := d.step()
	s.StartedAt = now
	d.op.CurrentStage = s.Name
	d.stepDone(evidence)
	return d.answer(operation.Snapshot{Op: op})
}
