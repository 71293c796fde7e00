package operation

import (
	"slices"

	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

// AsksHost reports whether an agent on the machine takes steps of the kind.
func AsksHost(k Kind) bool {
	switch k {
	case KindReset, KindReconfig, KindTestHardware, KindJoin:
		return true
	}
	return false
}

// ReplacesSystem reports whether the system that runs on the machine now is gone after the step.
func (s Step) ReplacesSystem() bool {
	switch s.Kind {
	case KindRepave, KindErase:
		return true
	case KindProvider:
		return slices.Contains([]string{"deploy", "release", "erase", "commission"}, s.Mode)
	case KindStage:
		return s.Mode == workflow.PowerOffNode || s.Mode == workflow.SwitchOff
	}
	return false
}

// LacksExecutor reports whether a step that waits for this reason lacks an agent that can take it. Some steps wait by
// themselves.
func (s Step) LacksExecutor(reason string) bool {
	byItself := s.Kind == KindWaitForAgent || s.Mode == workflow.AwaitReplacement
	return !byItself && (reason == WaitAgent || reason == WaitNobody)
}
