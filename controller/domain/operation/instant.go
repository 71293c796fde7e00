package operation

import "time"

// Instant ends a pending operation at once, with what it has recorded for evidence. It is for operations that change a
// record and do no work: their one step is done in the transaction that creates them.
func Instant(op Operation, evidence map[string]string, now time.Time) Decision {
	d := &decider{now: now, op: op.clone()}
	d.setPhase(Running)
	d.op.StartedAt = now
	d.note("started", "")
	d.setStep(StepRunning)
	s := d.step()
	s.StartedAt = now
	d.op.CurrentStage = s.Name
	d.stepDone(evidence)
	return d.answer(Snapshot{Op: op})
}
