package operation

import (
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// ReplacesSystem reports whether the system that runs on the machine now is gone after the step.
func (s Step) ReplacesSystem() bool {
	if kind.Of(s.Kind).DestroysSystem {
		return true
	}
	switch s.Kind {
	case kind.ProviderAction:
		return slices.Contains([]string{"deploy", "release", "erase", "commission"}, s.Mode)
	case kind.WorkflowStage:
		return s.Mode == workflow.PowerOffNode || s.Mode == workflow.SwitchOff
	}
	return false
}

// AsksCluster reports whether the site's agent asks the machine's cluster for the step, or for a part of it.
func (s Step) AsksCluster() bool {
	return kind.Of(s.Kind).AsksCluster || s.Kind == kind.WorkflowStage && s.Mode == workflow.DrainNode
}

// LacksExecutor reports whether a step that waits for this reason lacks an agent that can take it. Some steps wait by
// themselves.
func (s Step) LacksExecutor(reason string) bool {
	byItself := s.Kind == kind.WaitForAgent || s.Mode == workflow.AwaitReplacement
	return !byItself && (reason == WaitAgent || reason == WaitNobody)
}
