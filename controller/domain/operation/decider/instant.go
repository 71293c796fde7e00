package decider

import (
	"time"

	"github.com/ingot-metal/ingot/controller/domain/operation"
)

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
