package explain

import (
	"slices"
	"time"
)

// Party is on whom a machine waits.
type Party string

// The parties.
const (
	OnAgent    Party = "agent"
	OnBMC      Party = "bmc"
	OnDHCP     Party = "dhcp"
	OnProvider Party = "provider"
	OnOperator Party = "operator"
	OnLimit    Party = "limit"
	OnNobody   Party = "nobody"
)

// Explanation is the answer.
type Explanation struct {
	// Rule is the name of the rule that gave it.
	Rule    string
	Summary string
	// OperationID, Step, StepKind and StepStarted are empty where no operation is part of the answer.
	OperationID, Step, StepKind string
	StepStarted                 time.Time
	WaitsOn                     Party
	// WaitsFor names the party: an agent, a site, an address.
	WaitsFor string
	Since    time.Time
	Cause    Cause
	// LastEvidence is the last thing that the world has shown.
	LastEvidence   string
	LastEvidenceAt time.Time
	// Next is what happens next by itself, at the latest at NextAt; empty when nothing does.
	Next    string
	NextAt  time.Time
	Actions []Action
	Normal  Baseline
	Stuck   bool
}

// Cause is the root cause, as far as the facts show it.
type Cause struct {
	// Reason is one of the API's closed set; empty when nothing is wrong.
	Reason string
	Text   string
	// Facts are what it is read from.
	Facts []string
}

// Action is something that a person may do.
type Action struct {
	Command, Consequence string
	// Destructive: it loses data, interrupts what runs, or overrides a safeguard.
	Destructive bool
	// start is what must be accepted for the action to be offered; nil where the call takes it in any state.
	start *Start
	// refused: the call would refuse it now, so that it is not offered.
	refused bool
}

// offered reports whether the call behind an action would accept it.
func (s *scene) offered(a Action) bool {
	return !a.refused && (a.start == nil || s.Offers.may(*a.start))
}

// starting makes the action depend on a start.
func (a Action) starting(s Start) Action {
	a.start = &s
	return a
}

// rule gives an answer where it fits.
type rule struct {
	name string
	when func(*scene) bool
	say  func(*scene, *Explanation)
}

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

// Explain answers by the first rule that fits.
func Explain(f Facts) Explanation {
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
		e := Explanation{Rule: r.name, WaitsOn: OnNobody}
		r.say(s, &e)
		s.complete(&e)
		return e
	}
	return Explanation{} // not reached: the last rule of each table always fits
}

// complete adds what is the same for all rules.
func (s *scene) complete(e *Explanation) {
	if s.active && s.step != nil {
		e.OperationID, e.Step, e.StepKind, e.StepStarted = s.Op.ID, s.step.Name, string(s.step.Kind), s.step.StartedAt
		e.Normal = s.Normal
	}
	if e.LastEvidence == "" {
		e.LastEvidence, e.LastEvidenceAt = s.lastEvidence()
	}
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
	e.Actions = unique(slices.DeleteFunc(e.Actions, func(a Action) bool { return !s.offered(a) }))
	if e.Summary == "" {
		e.Summary = s.summary(e)
	}
}

// summary puts the answer into one line.
func (s *scene) summary(e *Explanation) string {
	text := e.Cause.Text
	if s.active && s.step != nil {
		head := string(s.Op.Type) + ", step " + s.Op.CurrentStage
		if e.WaitsFor != "" {
			head += ", waits for " + e.WaitsFor
		}
		if text != "" {
			head += ": " + text
		}
		return head
	}
	return text
}

func unique(all []Action) []Action {
	seen := map[string]bool{}
	var out []Action
	for _, a := range all {
		if !seen[a.Command] {
			seen[a.Command] = true
			out = append(out, a)
		}
	}
	return out
}
