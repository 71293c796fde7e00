package explain

import (
	"fmt"
	"strings"
)

func (s *scene) waitsInRollout() bool { return s.Rollout != nil && s.Rollout.Waiting }

// sayRollout: the machine itself is well, and its turn has not come.
func (s *scene) sayRollout(e *Explanation) {
	r := s.Rollout
	e.WaitsOn, e.WaitsFor = OnLimit, r.name()
	e.Cause = Cause{Text: "nothing is wrong with it: its turn in " + r.name() + " has not come"}
	e.Next = "its operation begins when its wave does, and there is room in it"
	switch {
	case r.State == "AWAITING_APPROVAL":
		e.WaitsOn, e.Cause.Text, e.Next = OnOperator, r.name()+" waits for a second person's approval", ""
		e.Actions = []Action{{
			Command:     "ingot rollout approve " + r.ID + " --digest " + r.Digest,
			Consequence: "lets the rollout begin on all of its machines; by another admin than " + r.CreatedBy,
			Destructive: true,
		}}
	case r.State == "PAUSED":
		e.WaitsOn, e.Cause.Text, e.Next = OnOperator, r.name()+" is paused ("+strings.ToLower(r.WaitReason)+")", ""
		e.Actions = []Action{{Command: "ingot rollout resume " + r.ID,
			Consequence: "goes on with the other machines of the rollout", Destructive: true}}
	case r.WaitReason != "":
		e.Cause.Facts = []string{fmt.Sprintf("wave %d is under way, and waits: %s", r.At, r.WaitReason)}
	}
	e.Actions = append(e.Actions, Action{Command: "ingot rollout get " + r.ID,
		Consequence: "shows how far the rollout is"})
}

// partOfRollout is a fact about an operation.
func (s *scene) partOfRollout(e *Explanation) {
	if s.Rollout != nil && !s.Rollout.Waiting {
		e.Cause.Facts = append(e.Cause.Facts, "it is part of "+s.Rollout.name())
	}
}
