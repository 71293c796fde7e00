package kind

import (
	"time"
)

// WorkflowStage is a check or an action of the controller's own in a workflow. Its mode is the stage.
const WorkflowStage Kind = "workflow_stage"

var workflowStage = Declaration{
	Kind:    WorkflowStage,
	Step:    true,
	Harm:    Harmless,
	Timeout: 600 * time.Second,
	Retries: 2,
	Started: "Checking",
	Done:    "Checked",
}
