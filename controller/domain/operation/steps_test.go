package operation_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/kind"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
)

func TestStepsThatAskACluster(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step operation.Step
		want bool
	}{
		{operation.Step{Kind: kind.Verify}, true},
		{operation.Step{Kind: kind.Join}, true},
		{operation.Step{Kind: kind.Reboot}, false},
		{operation.Step{Kind: kind.WorkflowStage, Mode: workflow.DrainNode}, true},
		{operation.Step{Kind: kind.WorkflowStage, Mode: workflow.VerifyNode}, false},
		{operation.Step{Kind: kind.Reboot, Mode: workflow.DrainNode}, false},
	} {
		if got := c.step.AsksCluster(); got != c.want {
			t.Errorf("%s %s asks a cluster: %t", c.step.Kind, c.step.Mode, got)
		}
	}
}

// TestStepsThatReplaceTheSystem: after them, what the machine's agent could do before is not known.
func TestStepsThatReplaceTheSystem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		step operation.Step
		want bool
	}{
		{operation.Step{Kind: kind.Repave}, true},
		{operation.Step{Kind: kind.Erase}, true},
		{operation.Step{Kind: kind.Reboot}, false},
		{operation.Step{Kind: kind.ProviderAction, Mode: "deploy"}, true},
		{operation.Step{Kind: kind.ProviderAction, Mode: "power_query"}, false},
		{operation.Step{Kind: kind.WorkflowStage, Mode: workflow.PowerOffNode}, true},
		{operation.Step{Kind: kind.WorkflowStage, Mode: workflow.DrainNode}, false},
	} {
		if got := c.step.ReplacesSystem(); got != c.want {
			t.Errorf("%s %s replaces the system: %t", c.step.Kind, c.step.Mode, got)
		}
	}
}

// TestACloneSharesNothing holds that a change to a copy of an operation leaves the operation as it was.
func TestACloneSharesNothing(t *testing.T) {
	t.Parallel()
	op := operation.Operation{
		Evidence: map[string]string{"boot_id": "a"},
		Steps:    []operation.Step{{Evidence: map[string]string{"boot_id": "a"}}},
	}
	if none := (*operation.Command)(nil).Clone(); none != nil {
		t.Errorf("the copy of no command is %+v", none)
	}
	twin := op.Clone()
	twin.Evidence["boot_id"] = "b"
	twin.Steps[0].Evidence["boot_id"] = "b"
	twin.Steps[0].RetryCount = 7
	if op.Evidence["boot_id"] != "a" || op.Steps[0].Evidence["boot_id"] != "a" || op.Steps[0].RetryCount == 7 {
		t.Errorf("a change of the copy reached the operation: %+v", op)
	}
}
