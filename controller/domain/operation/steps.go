package operation

import (
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// IsStage reports whether the step checks a stage of a workflow.
func (s Step) IsStage() bool { return kind.Of(s.Kind).Control == kind.ChecksStage }

// ReplacesSystem reports whether the system that runs on the machine now is gone after the step.
func (s Step) ReplacesSystem() bool {
	of := kind.Of(s.Kind)
	switch {
	case of.DestroysSystem:
		return true
	case of.Route == kind.ThroughProvider:
		return slices.Contains([]string{"deploy", "release", "erase", "commission"}, s.Mode)
	case s.IsStage():
		return s.Mode == workflow.PowerOffNode || s.Mode == workflow.SwitchOff
	}
	return false
}

// AsksCluster reports whether the site's agent asks the machine's cluster for the step, or for a part of it.
func (s Step) AsksCluster() bool {
	return kind.Of(s.Kind).AsksCluster || s.IsStage() && s.Mode == workflow.DrainNode
}

// LacksExecutor reports whether a step that waits for this reason lacks an agent that can take it. Some steps wait by
// themselves.
func (s Step) LacksExecutor(reason string) bool {
	byItself := kind.Of(s.Kind).Control == kind.AwaitsAgent || s.Mode == workflow.AwaitReplacement
	return !byItself && (reason == WaitAgent || reason == WaitNobody)
}
