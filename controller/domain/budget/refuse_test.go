package budget_test

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/budget"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/internal/failure"
)

func TestRefusalsOfSlots(t *testing.T) {
	t.Parallel()
	if err := (budget.Verdict{Admitted: true}).Refuse(); err != nil {
		t.Error(err)
	}
	f := failure.From(budget.Verdict{Rule: budget.Rule{Name: "racks"}, Used: 2, Limit: 2}.Refuse())
	if f == nil || f.Reason != "BUDGET_REQUIRED" || f.Metadata["budget"] != "racks" ||
		f.Message != "budget racks has no room for one more machine: 2 of 2" {
		t.Errorf("%+v", f)
	}
	for phase, reason := range map[operation.Phase]string{
		operation.Pending: "BUDGET_SLOT_IN_USE", operation.Running: "BUDGET_SLOT_IN_USE",
		operation.Succeeded: "", operation.Failed: "", operation.Canceled: "",
	} {
		if got := failure.ReasonOf(budget.MayRelease("op-1", phase)); got != reason {
			t.Errorf("%s: %q", phase, got)
		}
	}
}
