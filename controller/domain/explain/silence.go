package explain

import (
	"fmt"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// NotObserved reports whether the witness of the machine's reachability is silent.
func (f *Facts) NotObserved() bool {
	c := f.Condition(fleet.Reachable)
	return c != nil && !c.GetKnown() && !c.GetStatus()
}

// ExplainSilence names the silence of the site as the cause: nothing is known to be wrong with the machine.
func (f *Facts) ExplainSilence(e *Explanation) {
	c := f.Condition(fleet.Reachable)
	who := "the agent of site " + f.SiteName()
	if c.GetObservedBy() != "" {
		who += ", " + c.GetObservedBy() + ","
	}
	e.WaitsOn, e.WaitsFor = OnAgent, "the agent of site "+f.SiteName()
	e.Since = When(c.GetObservedAt())
	e.Cause = Cause{Reason: fleet.AttentionNotObserved,
		Text: who + " is silent, and nothing else observes the machine",
		Facts: []string{"nothing is known to be wrong with the machine: it was observed last at " + f.At(e.Since) + ", " +
			f.Ago(e.Since)}}
	if f.Site == nil || f.Site.SilentSince.IsZero() {
		e.Cause.Text = who + " is back, and has not reported the machine yet"
	}
	e.Next = "the machine counts as reachable again once the agent of its site reports it"
	e.Actions = []Action{
		{Command: "ingot agent list", Consequence: "shows which agents are connected, and since when the others are not"},
		{Command: "ingot-agent doctor   (on the agent's machine)",
			Consequence: "checks clock, certificate, controller, disk and privileges"},
		{Command: fmt.Sprintf("ingot list --filter site=%s,attention_reason=%s", f.SiteName(), fleet.AttentionNotObserved),
			Consequence: "lists all machines that wait for the same agent"},
	}
	e.Summary = "nothing is under way; " + e.Cause.Text
}
