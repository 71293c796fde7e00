package plan

import (
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// DrainNone is the plan by which a machine drains that is in no cluster.
const DrainNone = "drain-none"

// standaloneStep is a check that belongs to no workflow. Only the controller itself starts plans with it, but for those
// that switch a machine.
func standaloneStep(name, stage string, timeout time.Duration) *baremetalv1.Step {
	return &baremetalv1.Step{Name: name, TimeoutSeconds: int32(timeout.Seconds()), Kind: &baremetalv1.Step_WorkflowStage{
		WorkflowStage: &baremetalv1.WorkflowStage{Stage: stage},
	}}
}
