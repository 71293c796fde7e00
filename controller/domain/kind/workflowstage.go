package kind

import (
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// WorkflowStage is a check or an action of the controller's own in a workflow. Its mode is the stage.
const WorkflowStage Kind = "workflow_stage"

var workflowStage = Declaration{
	Kind:     WorkflowStage,
	Step:     true,
	Control:  ChecksStage,
	Reserved: "workflow_stage belongs to the built-in plans of workflows",
	Mode:     "stage",
	HarmOf: func(s *baremetalv1.Step) Harm {
		switch s.GetWorkflowStage().GetStage() {
		case StageNothingToDrain:
			return Interrupts // the machine leaves service all the same
		case StageSwitchOff:
			return Destroys
		}
		return Harmless
	},
	Harm:    Harmless,
	Timeout: 600 * time.Second,
	Retries: 2,
	Started: "Checking",
	Done:    "Checked",
}

// Stages whose step does more than check.
const (
	StageNothingToDrain = "nothing_to_drain"
	StageSwitchOff      = "switch_off"
)
