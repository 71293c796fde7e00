package rules

import (
	"fmt"

	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// notObserved reports whether the witness of the machine's reachability is silent.
func (s *scene) notObserved() bool { return unknown(s, fleet.Reachable) }

// unknown reports whether a condition is false only because its witness is silent.
func unknown(s *scene, t fleet.ConditionType) bool {
	c := s.Condition(t)
	return c != nil && !c.GetKnown() && !c.GetStatus()
}

// explainSilence names the silence of the site as the cause: nothing is known to be wrong with the machine.
func (s *scene) explainSilence(e *explain.Explanation) {
	c := s.Condition(fleet.Reachable)
	who := "the agent of site " + s.SiteName()
	if c.GetObservedBy() != "" {
		who += ", " + c.GetObservedBy() + ","
	}
	e.WaitsOn, e.WaitsFor = explain.OnAgent, "the agent of site "+s.SiteName()
	e.Since = explain.When(c.GetObservedAt())
	e.Cause = explain.Cause{Reason: fleet.AttentionNotObserved,
		Text: who + " is silent, and nothing else observes the machine",
		Facts: []string{"nothing is known to be wrong with the machine: it was observed last at " + s.At(e.Since) + ", " +
			s.Ago(e.Since)}}
	e.Next = "the machine counts as reachable again once the agent of its site reports it"
	if s.Site == nil || s.Site.SilentSince.IsZero() {
		e.Cause.Text = who + " is back, and has not reported the machine yet"
	}
	e.Actions = []explain.Action{
		{Command: "ingot agent list", Consequence: "shows which agents are connected, and since when the others are not"},
		doctor(),
		{Command: fmt.Sprintf("ingot list --filter site=%s,attention_reason=%s", s.SiteName(), fleet.AttentionNotObserved),
			Consequence: "lists all machines that wait for the same agent"},
	}
	e.Summary = "nothing is under way; " + e.Cause.Text
}
