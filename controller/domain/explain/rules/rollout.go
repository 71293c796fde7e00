package rules

import (
	"fmt"
	"strings"

	"github.com/ingot-metal/ingot/controller/domain/explain"
)

func (s *scene) waitsInRollout() bool { return s.Rollout != nil && s.Rollout.Waiting }

// sayRollout explains a machine that is well and waits for its turn.
func (s *scene) sayRollout(e *explain.Explanation) {
	r := s.Rollout
	e.WaitsOn, e.WaitsFor = explain.OnLimit, r.Name()
	e.Cause = explain.Cause{Text: "nothing is wrong with it: it waits for its turn in " + r.Name()}
	e.Next = "its operation begins when its wave does, and there is room in it"
	switch {
	case r.State == "AWAITING_APPROVAL":
		e.WaitsOn, e.Cause.Text, e.Next = explain.OnOperator, r.Name()+" waits for a second person's approval", ""
		e.Actions = []explain.Action{{
			Command:     "ingot rollout approve " + r.ID + " --digest " + r.Digest,
			Consequence: "lets the rollout begin on all of its machines; by another admin than " + r.CreatedBy,
			Destructive: true,
		}}
	case r.State == "PAUSED":
		e.WaitsOn, e.Cause.Text, e.Next = explain.OnOperator, r.Name()+" is paused ("+strings.ToLower(r.WaitReason)+")", ""
		e.Actions = []explain.Action{{Command: "ingot rollout resume " + r.ID,
			Consequence: "goes on with the other machines of the rollout", Destructive: true}}
	case r.WaitReason != "":
		e.Cause.Facts = []string{fmt.Sprintf("wave %d is under way, and waits: %s", r.At, r.WaitReason)}
	}
	e.Actions = append(e.Actions, explain.Action{Command: "ingot rollout get " + r.ID,
		Consequence: "shows how far the rollout is"})
}

// partOfRollout is a fact about an operation.
func (s *scene) partOfRollout(e *explain.Explanation) {
	if s.Rollout != nil && !s.Rollout.Waiting {
		e.Cause.Facts = append(e.Cause.Facts, "it is part of "+s.Rollout.Name())
	}
}
