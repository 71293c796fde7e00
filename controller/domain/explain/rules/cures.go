package rules

import (
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
)

// cureWords say what takes a cause away besides an admin's word.
var cureWords = map[fleet.Cure]string{
	fleet.CuredByImage:      "a verified image",
	fleet.CuredByBoot:       "a proven boot of the right system",
	fleet.CuredByJoin:       "a join to its cluster",
	fleet.CuredBySame:       "the same work, done well",
	fleet.CuredByWork:       "any work that its agent does well",
	fleet.CuredBySettlement: "the settlement of the command",
	fleet.CuredByRelease:    "the end of the quarantine",
	fleet.CuredByRestart:    "a move to pending with another plan",
	fleet.CuredByProvider:   "its provider's report that it is well",
	fleet.CuredByWorkflow:   "the good end of the workflow, or its cancel",
}

// cures adds what takes each cause away that the machine has, and offers what does so.
func (s *scene) cures(e *explain.Explanation) {
	for _, c := range s.Causes {
		var by []string
		for _, cure := range c.Cause.Cures() {
			by = append(by, cureWords[cure])
		}
		e.Cause.Facts = append(e.Cause.Facts, "needs intervention for "+string(c.Cause)+", until "+strings.Join(by, " or "))
		e.Actions = append(e.Actions, s.cureOf(c)...)
	}
}

// cureOf is the command that brings a cause's cure about. A reboot and a reimage are offered with the other starts.
func (s *scene) cureOf(c explain.MachineCause) []explain.Action {
	switch c.Cause {
	case fleet.CauseUnknown:
		if s.fenced() {
			return s.Settle()
		}
	case fleet.CauseJoin:
		return []explain.Action{explain.Action{Command: "ingot cluster join " + s.ID(),
			Consequence: "joins the machine to its cluster again"}.Starting(explain.StartJoin)}
	case fleet.CauseNetboot:
		return []explain.Action{explain.Action{Command: "ingot netboot " + s.ID(),
			Consequence: "sets the next boot again"}.Starting(explain.StartNetboot)}
	case fleet.CauseHardware:
		return []explain.Action{explain.Action{Command: "ingot test " + s.ID(),
			Consequence: "tests the hardware again"}.Starting(explain.StartTest)}
	case fleet.CausePlan:
		return []explain.Action{explain.Action{
			Command:     "ingot run start " + s.ID() + " --plan " + c.Subject,
			Consequence: "runs the plan again, from its first step", Destructive: true,
		}.Starting(explain.Start{Type: fleet.RunPlan, Plan: c.Subject})}
	}
	return nil
}

// unusable reports whether a machine in service lacks something to be used.
func (s *scene) unusable() bool {
	return s.status.GetAttentionReason() != "" && s.status.GetPhase() == baremetalv1.MachineStatus_READY
}

func (s *scene) sayUnusable(e *explain.Explanation) {
	e.WaitsOn, e.WaitsFor, e.Since = explain.OnOperator, "an operator", explain.When(s.status.GetNodeStateChangedAt())
	e.Cause = explain.Cause{Reason: s.status.GetAttentionReason(), Text: s.status.GetAttentionMessage()}
	if e.Cause.Reason == fleet.AttentionUnprovisioned {
		e.Since = explain.When(s.Condition(fleet.Provisioned).GetLastTransition())
	}
	if s.wasCanceled() {
		e.Cause.Facts = append(e.Cause.Facts, string(s.Op.Type)+" was cancelled at step "+s.Op.CurrentStage+", "+
			s.Ago(s.Op.FinishedAt)+s.cancelledBy())
	}
	e.Actions = s.transitions()
	e.Summary = "in service and not to be used: " + e.Cause.Text
}
