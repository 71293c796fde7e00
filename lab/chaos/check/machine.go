package check

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ingot-metal/ingot/agent/host/sim"
	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// States of a command that nothing but a late result, proof or an operator moves any more.
var settled = []string{"DONE", "CANCELED", "EXPIRED", "UNKNOWN"}

// MachineHistory is everything that happened to one machine: the API's data, and the world's.
type MachineHistory struct {
	Machine    *baremetalv1.Machine
	Operations []*baremetalv1.Operation // oldest first
	Commands   []*baremetalv1.Command   // oldest first
	Journal    []sim.EffectRecord
	// Pending counts effects that the world has accepted and that are still to come.
	Pending int
	// ClocksDiffer is set when the times come from clocks that were set meanwhile: their order proves nothing, and rules
	// about it are left out. Effects and their number are judged as ever.
	ClocksDiffer bool
}

// Ended reports whether an operation never changes again.
func Ended(o *baremetalv1.Operation) bool {
	return o.GetPhase() >= baremetalv1.Operation_SUCCEEDED
}

// Problems is Violations as text.
func (h MachineHistory) Problems() []string {
	var out []string
	for _, v := range h.Violations() {
		out = append(out, v.What)
	}
	return out
}

// Violations returns every contradiction: with the controller's promises, and between its data and the world's. It
// expects a machine at rest.
func (h MachineHistory) Violations() []Violation {
	p := &problems{h: h, effects: map[string][]sim.EffectRecord{}, asked: map[string][]sim.EffectRecord{}}
	for _, r := range h.Journal {
		switch r.Stage {
		case sim.StageEffect:
			p.effects[r.CommandID] = append(p.effects[r.CommandID], r)
		case sim.StageAsked:
			p.asked[r.CommandID] = append(p.asked[r.CommandID], r)
		}
	}
	p.operations()
	p.fence()
	for i, c := range h.Commands {
		p.command(c)
		if i > 0 {
			p.follows(h.Commands[i-1], c)
		}
	}
	p.attempts()
	p.strangers()
	return p.found
}

type problems struct {
	h              MachineHistory
	effects, asked map[string][]sim.EffectRecord
	found          []Violation
}

func (p *problems) add(rule, format string, args ...any) {
	p.found = append(p.found, Violation{Rule: rule, Subject: p.h.Machine.GetMachineId(),
		What: fmt.Sprintf(format, args...)})
}

// operations: each has ended, none overlaps another, and the machine points to none.
func (p *problems) operations() {
	if id := p.h.Machine.GetStatus().GetActiveOperationId(); id != "" {
		p.add(RuleEnds, "the machine points to operation %s", id)
	}
	for _, o := range p.h.Operations {
		if !Ended(o) {
			p.add(RuleEnds, "operation %s is %s", o.GetOperationId(), o.GetPhase())
		}
		if (o.GetPhase() == baremetalv1.Operation_FAILED) != (o.GetError() != nil &&
			o.GetPhase() != baremetalv1.Operation_CANCELED) {
			p.add(RuleEnds, "operation %s is %s with error %v", o.GetOperationId(), o.GetPhase(), o.GetError())
		}
		if o.GetPhase() == baremetalv1.Operation_SUCCEEDED {
			p.succeeded(o)
		}
	}
	p.oneAfterTheOther()
}

// oneAfterTheOther: no operation began while another was active. Operations are created when they are asked for, and
// the one that was asked for later may be admitted first: so those that ended are compared in the order in which they
// began.
func (p *problems) oneAfterTheOther() {
	if p.h.ClocksDiffer {
		return
	}
	ended := slices.DeleteFunc(slices.Clone(p.h.Operations),
		func(o *baremetalv1.Operation) bool { return o.GetFinishedAt() == nil })
	slices.SortStableFunc(ended, func(a, b *baremetalv1.Operation) int { return began(a).Compare(began(b)) })
	for i := 1; i < len(ended); i++ {
		if before, o := ended[i-1], ended[i]; began(o).Before(before.GetFinishedAt().AsTime()) {
			p.add(RuleOneOperation, "operation %s began before %s ended", o.GetOperationId(), before.GetOperationId())
		}
	}
}

// began is the first moment at which an operation is known to have been active. All that is known of one that never
// started is its end.
func began(o *baremetalv1.Operation) time.Time {
	if o.GetStartedAt() == nil {
		return o.GetFinishedAt().AsTime()
	}
	return o.GetStartedAt().AsTime()
}

// fence: the machine names an unresolved command exactly when there is one.
func (p *problems) fence() {
	fenced := p.h.Machine.GetStatus().GetUnresolvedCommandId()
	var open []string
	for _, c := range p.h.Commands {
		if c.GetState() == "UNKNOWN" {
			open = append(open, c.GetCommandId())
		}
	}
	switch {
	case fenced == "" && len(open) > 0:
		p.add(RuleFence, "commands %v are unresolved and the machine is not fenced", open)
	case fenced != "" && (len(open) != 1 || open[0] != fenced):
		p.add(RuleFence, "the machine is fenced over %s, unresolved are %v", fenced, open)
	}
}

// command: settled, at most one effect of a kind, and none without a grant, before it, or after the end.
func (p *problems) command(c *baremetalv1.Command) {
	id := c.GetCommandId()
	if !slices.Contains(settled, c.GetState()) {
		p.add(RuleEnds, "command %s is still %s", id, c.GetState())
	}
	effects := p.effects[id]
	if kinds, ok := effectOf[c.GetKind()]; ok && c.GetState() == "DONE" && c.GetOutcome() == "SUCCEEDED" &&
		len(effects) == 0 {
		p.add(RuleEvidence, "command %s has succeeded without an effect of %v", id, kinds)
	}
	byKind := map[sim.Kind]int{}
	for _, e := range effects {
		byKind[e.Kind]++
	}
	for kind, n := range byKind {
		if n > 1 {
			p.add(RuleOnce, "command %s had %d effects of kind %s", id, n, kind)
		}
	}
	touched := slices.Concat(p.asked[id], effects)
	if len(touched) > 0 && c.GetOutcome() == "REFUSED" {
		p.add(RuleEvidence, "command %s says that it was never started (%s), and touched the world: %v", id, c.GetMessage(),
			touched[0])
	}
	if len(touched) > 0 && c.GetGrantedAt() == nil {
		p.add(RuleGrant, "command %s (%s) touched the world without a grant: %v", id, c.GetState(), touched[0])
	}
	for _, e := range touched {
		if p.h.ClocksDiffer {
			break
		}
		if c.GetGrantedAt() != nil && e.At.Before(c.GetGrantedAt().AsTime().Add(-clockSlack)) {
			p.add(RuleGrant, "command %s touched the world %v before its grant", id, c.GetGrantedAt().AsTime().Sub(e.At))
		}
		// What was settled later than its operation ended may have acted in between; that is what the fence is for.
		if c.GetState() == "DONE" && c.GetSettledBy() == "" && e.At.After(c.GetFinishedAt().AsTime().Add(clockSlack)) {
			p.add(RuleGrant, "command %s acted (%s %s) %v after its result", id, e.Stage, e.Kind,
				e.At.Sub(c.GetFinishedAt().AsTime()))
		}
	}
}

// clockSlack covers the rounding of stored times to microseconds.
const clockSlack = time.Millisecond

// follows: attempts do not overlap, in the database or in the world, and none comes after a success.
func (p *problems) follows(a, b *baremetalv1.Command) {
	if !p.h.ClocksDiffer && b.GetCreatedAt().AsTime().Before(a.GetFinishedAt().AsTime()) {
		p.add(RuleOverlap, "command %s was made before %s was settled", b.GetCommandId(), a.GetCommandId())
	}
	if p.h.ClocksDiffer && b.GetAttempt() <= a.GetAttempt() {
		return // they may have been sorted wrongly
	}
	sameStep := a.GetOperationId() == b.GetOperationId() && a.GetStep() == b.GetStep()
	if sameStep && a.GetOutcome() == "SUCCEEDED" {
		p.add(RuleOverlap, "attempt %d of step %s follows a success", b.GetAttempt(), b.GetStep())
	}
	if sameStep && a.GetState() == "UNKNOWN" {
		p.add(RuleOverlap, "attempt %d of step %s follows one whose outcome is unknown", b.GetAttempt(), b.GetStep())
	}
	first := slices.MinFunc(append(p.asked[b.GetCommandId()], sim.EffectRecord{At: endOfTime}), byTime)
	for _, e := range p.effects[a.GetCommandId()] {
		if !p.h.ClocksDiffer && e.At.After(first.At) && a.GetSettledBy() == "" {
			p.add(RuleOverlap, "command %s acted after %s had begun to", a.GetCommandId(), b.GetCommandId())
		}
	}
}

var endOfTime = time.Now().AddDate(100, 0, 0)

func byTime(a, b sim.EffectRecord) int { return a.At.Compare(b.At) }

// effectOf are the effects of which a successful command of a kind has had one.
var effectOf = map[string][]sim.Kind{"reboot": restarts, "repave": {sim.KindRepave}}

// succeeded: each step that cannot be true without an effect has had exactly one, by its last command.
func (p *problems) succeeded(o *baremetalv1.Operation) {
	last := map[string]*baremetalv1.Command{}
	for _, c := range p.h.Commands {
		if c.GetOperationId() == o.GetOperationId() {
			last[c.GetStep()] = c
		}
	}
	for step, c := range last {
		if c.GetState() != "DONE" || c.GetOutcome() != "SUCCEEDED" {
			p.add(RuleEvidence, "operation %s succeeded with step %s %s %s", o.GetOperationId(), step, c.GetState(),
				c.GetOutcome())
		}
		kinds, ok := effectOf[c.GetKind()]
		if n := sim.CountByCommand(p.h.Journal, kinds...)[c.GetCommandId()]; ok && n != 1 {
			p.add(RuleEvidence, "operation %s succeeded and command %s of step %s had %d effects", o.GetOperationId(),
				c.GetCommandId(), step, n)
		}
		if c.GetKind() == "repave" && !p.verified(c.GetCommandId()) {
			p.add(RuleEvidence, "operation %s succeeded over a disk that was not written to its end by %s", o.GetOperationId(),
				c.GetCommandId())
		}
	}
}

func (p *problems) verified(commandID string) bool {
	return slices.ContainsFunc(p.h.Journal, func(r sim.EffectRecord) bool {
		// A late write is one piece: it is on the disk or it is not.
		return r.CommandID == commandID && (r.Stage == sim.StageVerified || r.Fault == sim.Late)
	})
}

// strangers: nothing acts but commands, their rollbacks, what the agent restores at its start, and the test itself.
func (p *problems) strangers() {
	known := map[string]bool{"restore-at-start": true}
	for _, c := range p.h.Commands {
		known[c.GetCommandId()] = true
		known[c.GetCommandId()+"-rollback"] = true
	}
	for _, id := range slices.Sorted(maps.Keys(p.effects)) {
		if !known[id] && !isOurs(id) {
			p.add(RuleStranger, "effects of command %q, which the controller does not know", id)
		}
	}
}

// Outside marks effects that a test causes itself.
const Outside = "outside"

func isOurs(id string) bool { return id == Outside }
