package budget_test

import (
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// A machine that another client has at its provider is drift, though its state is the expected one: work that destroys
// data is refused until it is ours again, or an operator has accepted it.
func TestAMachineThatSomebodyElseHasIsDrift(t *testing.T) {
	s := storetest.New(t)
	agent := storetest.MAASMachine(t, s)
	held := func(by string) {
		t.Helper()
		o := &fleetv1.ProviderObservation{
			MachineId: "m-1", Provider: "maas", Reachable: true, Present: true, Status: int32(maasstatus.Deployed),
			StatusName: "Deployed",
			SystemId:   "abc", HeldBy: by,
		}
		report := sitestore.SiteReport{Site: "lab", AgentID: agent, LeasesSame: true,
			Providers: []*fleetv1.ProviderObservation{o}}
		if _, err := s.Sites.RecordSite(t.Context(), report, storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	erase := func() error {
		_, _, err := s.Workflows.StartWorkflow(t.Context(), workflowstore.WorkflowStart{
			MachineID: "m-1", RequestID: "r-1", Kind: workflow.Decommission, Mode: workflow.Reimage, Actor: "tester",
			DryRun: true, Inputs: storetest.Inputs("img"),
		}, storetest.Now())
		return err
	}
	held("it belongs to eve there")
	if c := storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.ProviderDrift); c == nil ||
		!strings.Contains(c.GetMessage(), "eve") {
		t.Errorf("the condition is %v", c)
	}
	if f := storetest.WantReason(t, erase(), baremetalv1.Reason_PROVIDER_DRIFT.String()); !strings.Contains(f.Message,
		"eve") {
		t.Errorf("the refusal says %q", f.Message)
	}
	if _, err := s.Nodes.UpdateNode(t.Context(), "m-1", nodestore.NodeUpdate{AdoptProviderState: true}, "tester",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if err := erase(); err != nil {
		t.Errorf("what was accepted still blocks: %v", err)
	}
	for _, by := range []string{"it belongs to bob there", "its hardware there is another machine's: the serial number is SN-2"} {
		held(by)
		storetest.WantReason(t, erase(), baremetalv1.Reason_PROVIDER_DRIFT.String())
	}
	held("")
	if err := erase(); err != nil || storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.ProviderDrift) != nil {
		t.Errorf("a machine that is ours again: %v", err)
	}
}
