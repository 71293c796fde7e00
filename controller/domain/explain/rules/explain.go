package rules

import (
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/explain"
)

// offered reports whether the call behind an action would accept it.
func (s *scene) offered(a explain.Action) bool {
	return !a.Refused && (a.Start == nil || s.Offers.May(*a.Start))
}

// rule explains the machines that it fits.
type rule struct {
	name string
	// reads are the sources of the rule's decision and texts. A text about the past is never read from the present.
	reads explain.Input
	when  func(*scene) bool
	say   func(*scene, *explain.Explanation)
}

// The sources that rules declare.
const (
	past    = explain.Past
	present = explain.Present
	record  = explain.Record
)

// RuleNames lists the rules of every table.
func RuleNames() []string {
	var out []string
	for _, table := range [][]rule{activeRules, restRules, endedRules} {
		for _, r := range table {
			out = append(out, r.name)
		}
	}
	return out
}

// RuleReads returns what the rules of a name declare that they read, over all tables.
func RuleReads(name string) (reads explain.Input) {
	for _, r := range slices.Concat(activeRules, restRules, endedRules) {
		if r.name == name {
			reads |= r.reads
		}
	}
	return reads
}

// Explain answers by the first rule that fits.
func Explain(f explain.Facts) explain.Explanation {
	s := newScene(f)
	rules := restRules
	switch {
	case s.active && f.Machine.GetDeletedAt() == nil:
		rules = activeRules
	case f.Named && f.Op != nil:
		rules = endedRules
	}
	for _, r := range rules {
		if !r.when(s) {
			continue
		}
		e := explain.Explanation{Rule: r.name, WaitsOn: explain.OnNobody}
		r.say(s, &e)
		s.complete(&e)
		return e
	}
	return explain.Explanation{} // not reached: the last rule of each table always fits
}

// complete adds the parts that all rules share.
func (s *scene) complete(e *explain.Explanation) {
	if s.active && s.step != nil {
		e.OperationID, e.Step, e.StepKind, e.StepStarted = s.Op.ID, s.step.Name, string(s.step.Kind), s.step.StartedAt
		e.Normal = s.Normal
	}
	if e.LastEvidence == "" {
		e.LastEvidence, e.LastEvidenceAt = s.lastEvidence()
	}
	e.Cause.Facts = append(e.Cause.Facts, s.HardwareFacts()...)
	if s.active {
		s.partOfRollout(e)
		if s.Workflow != nil {
			e.Cause.Facts = append(e.Cause.Facts, "it is an attempt of "+s.workflowName()+", at stage "+s.Workflow.Stage)
			e.Cause.Facts = append(e.Cause.Facts, s.stagesSoFar()...)
		}
		if e.Next == "" {
			e.Next, e.NextAt = s.next()
		}
		e.Actions = append(e.Actions, s.activeActions()...)
		e.Stuck = s.stuck(e.NextAt)
	} else {
		e.Actions = append(e.Actions, s.restActions(e)...)
	}
	e.Actions = unique(slices.DeleteFunc(e.Actions, func(a explain.Action) bool { return !s.offered(a) }))
	if e.Summary == "" {
		e.Summary = s.summary(e)
	}
}

// summary puts the answer into one line.
func (s *scene) summary(e *explain.Explanation) string {
	if s.active && s.step != nil {
		head := string(s.Op.Type) + ", step " + s.Op.CurrentStage
		if e.WaitsFor != "" {
			head += ", waits for " + e.WaitsFor
		}
		if e.Cause.Text != "" {
			head += ": " + e.Cause.Text
		}
		return head
	}
	return e.Cause.Text
}

func unique(all []explain.Action) []explain.Action {
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(a explain.Action) bool {
		known := seen[a.Command]
		seen[a.Command] = true
		return known
	})
}
