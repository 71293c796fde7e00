package check

import (
	"slices"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// work is what the world shows of a command that has done what it was for.
type work struct {
	effects []sim.Kind
	// stage is the record that completes the work. The first byte of a repave is an effect; its last byte is the work.
	stage sim.Stage
	// repeatable work may be done by several attempts of a step: doing it again changes nothing.
	repeatable bool
}

// restarts are the effects of which one completes a reboot: the system restarts itself, or its BMC switches it on after
// it was off.
var restarts = []sim.Kind{sim.KindReboot, sim.KindPowerOn}

// workOf declares the work of each kind of command that the simulated world records. It is a table of the judge's own:
// the product's tables are what it judges.
var workOf = map[string]work{
	"reboot": {effects: restarts, stage: sim.StageEffect},
	"repave": {effects: []sim.Kind{sim.KindRepave}, stage: sim.StageVerified},
	// An erasure that broke off is FAILED with disks that may be erased in part. Erasing them again is safe.
	"erase":   {effects: []sim.Kind{sim.KindErase}, stage: sim.StageEffect, repeatable: true},
	"netboot": {effects: []sim.Kind{sim.KindBootNext}, stage: sim.StageEffect, repeatable: true},
}

// done returns the record that completed a command's work, and reports whether there is one.
func (p *problems) done(c *baremetalv1.Command) (sim.EffectRecord, bool) {
	w, known := workOf[c.GetKind()]
	if !known {
		return sim.EffectRecord{}, false
	}
	i := slices.IndexFunc(p.h.Journal, func(r sim.EffectRecord) bool {
		return r.CommandID == c.GetCommandId() && slices.Contains(w.effects, r.Kind) &&
			(r.Stage == w.stage || w.stage == sim.StageVerified && r.Stage == sim.StageEffect && r.Fault == sim.Late)
	})
	if i < 0 {
		return sim.EffectRecord{}, false
	}
	return p.h.Journal[i], true
}

// saidNotDone reports whether a command is closed as one whose work was not done. An unknown outcome claims nothing,
// and has its fence. Proof that came later, such as another system that booted, is more than a claim.
func saidNotDone(c *baremetalv1.Command) bool {
	switch c.GetSettledBy() {
	case "operator:did_not_happen":
		return true
	case "", "late_result":
		return c.GetState() == "CANCELED" || c.GetState() == "EXPIRED" ||
			c.GetState() == "DONE" && slices.Contains([]string{"FAILED", "CANCELED", "REFUSED"}, c.GetOutcome())
	}
	return false
}

// attempts: the work of a step is done by one attempt, and an attempt that is said not to have done it has not. An
// operation whose only step was done has succeeded, and one that ended unknown has a command that was unresolved.
func (p *problems) attempts() {
	type step struct{ operation, name, kind string }
	first := map[step]string{}
	unresolved, succeeded := map[string]bool{}, map[string]string{}
	for _, c := range p.h.Commands {
		if c.GetState() == "UNKNOWN" || c.GetSettledBy() != "" {
			unresolved[c.GetOperationId()] = true
		}
		// What was settled later leaves its operation as it ended: unknown.
		if c.GetKind() == "reboot" && c.GetState() == "DONE" && c.GetOutcome() == "SUCCEEDED" && c.GetSettledBy() == "" {
			succeeded[c.GetOperationId()] = c.GetCommandId()
		}
		r, done := p.done(c)
		if !done || workOf[c.GetKind()].repeatable {
			continue
		}
		if saidNotDone(c) {
			p.add(RuleNotDone, "command %s is %s %s (%s), no fence stood for it, and it acted: %v", c.GetCommandId(),
				c.GetState(), c.GetOutcome(), c.GetMessage(), r)
		}
		s := step{c.GetOperationId(), c.GetStep(), c.GetKind()}
		if first[s] != "" {
			p.add(RuleAttempt, "step %s of operation %s was done by command %s and again by %s", s.name, s.operation, first[s],
				c.GetCommandId())
		}
		first[s] = c.GetCommandId()
	}
	for _, o := range p.h.Operations {
		id := o.GetOperationId()
		if o.GetError().GetCode() == "OUTCOME_UNKNOWN" && !unresolved[id] {
			p.add(RuleNotDone, "operation %s ended unknown, and none of its commands was unresolved", id)
		}
		// One that ended unknown stays so where its result comes late.
		known := o.GetError().GetCode() != "OUTCOME_UNKNOWN"
		if o.GetType() == baremetalv1.Operation_REBOOT && Ended(o) && o.GetPhase() != baremetalv1.Operation_SUCCEEDED &&
			known && succeeded[id] != "" {
			p.add(RuleNotDone, "operation %s is %s, and its reboot is done by %s", id, o.GetPhase(), succeeded[id])
		}
	}
}
