package catalog

import (
	"strings"
	"testing"

	"github.com/ingot-metal/ingot/internal/failure"
)

func TestRefusalsOfRemovalsInTheirOrder(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		got           error
		reason, shows string
	}{
		{MayRemoveImage("i", ImageUse{System: true, Served: true, Boots: true}), "", ""},
		{MayRemoveImage("i", ImageUse{System: true, ServerDefault: true, Machine: "m-1", Operation: "op-1"}),
			"IMAGE_IN_USE", "i is the server's default image"},
		{MayRemoveImage("i", ImageUse{System: true, Machine: "m-1", Operation: "op-1"}),
			"IMAGE_IN_USE", "i is the default image of machine m-1"},
		{MayRemoveImage("i", ImageUse{System: true, Operation: "op-1"}), "IMAGE_IN_USE", "operation op-1 writes i"},
		{MayRemoveImage("i", ImageUse{Served: true, Boots: true}), "IMAGE_IN_USE", "machines boot the installer"},
		{MayRemoveImage("i", ImageUse{Served: true}), "", ""},
		{MayRemoveImage("i", ImageUse{Boots: true, ServerDefault: true, Machine: "m-1", Operation: "op-1"}), "", ""},
		{MayDeletePlan("p", PlanUse{}), "", ""},
		{MayDeletePlan("p", PlanUse{BuiltIn: true, Used: true, NamedBy: "x"}), "PLAN_IN_USE", "plan p is built in"},
		{MayDeletePlan("p", PlanUse{Used: true, NamedBy: "x"}), "PLAN_IN_USE", "a run has used plan p"},
		{MayDeletePlan("p", PlanUse{NamedBy: "machine m-1"}), "PLAN_IN_USE", "machine m-1 names plan p"},
		{MayRemoveScript("s", ""), "", ""},
		{MayRemoveScript("s", "op-1"), "SCRIPT_IN_USE", "operation op-1 needs s"},
	} {
		f := failure.From(c.got)
		if failure.ReasonOf(c.got) != c.reason || f != nil && !strings.HasPrefix(f.Message, c.shows) {
			t.Errorf("want %s %q: %v", c.reason, c.shows, c.got)
		}
	}
	f := failure.From(MayRemoveImage("i", ImageUse{System: true, Machine: "m-1", Operation: "op-1"}))
	if f.Metadata["machine_id"] != "m-1" || f.Metadata["operation_id"] != "" {
		t.Errorf("%v", f.Metadata)
	}
}
