package cli

import (
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// TestActionsAreKnown holds that every action that is completed is one of the API's.
func TestActionsAreKnown(t *testing.T) {
	for _, name := range actionNames {
		if pb.WorkflowAction_value["WORKFLOW_ACTION_"+enumName(name)] == 0 {
			t.Errorf("%s is no action", name)
		}
	}
}
