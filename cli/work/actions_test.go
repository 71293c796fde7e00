package work

import (
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/command"
)

// TestActionsAreKnown holds that every action that is completed is one of the API's.
func TestActionsAreKnown(t *testing.T) {
	for _, name := range actionNames {
		if pb.WorkflowAction_value["WORKFLOW_ACTION_"+command.EnumName(name)] == 0 {
			t.Errorf("%s is no action", name)
		}
	}
}
