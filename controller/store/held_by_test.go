package store_test

import (
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"

	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/controller/workflow"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

// A machine that somebody else has at its provider is drift, though its state is the one that is expected: work that
// destroys data is refused until it is ours again, or an operator has accepted it.
func TestAMachineThatSomebodyElseHasIsDrift(t *testing.T) {
	s := storetest.New(t)
	agent := maasMachine(t, s)
	held := func(by string) {
		t.Helper()
		o := &fleetv1.ProviderObservation{
			MachineId: "m-1", Provider: "maas", Reachable: true, Present: true, Status: int32(maasstatus.Deployed), StatusName: "Deployed",
			SystemId: "abc", HeldBy: by,
		}
		report := store.SiteReport{Site: "lab", AgentID: agent, LeasesSame: true, Providers: []*fleetv1.ProviderObservation{o}}
		if _, err := s.RecordSite(t.Context(), report, now()); err != nil {
			t.Fatal(err)
		}
	}
	erase := func() error {
		_, _, err := s.StartWorkflow(t.Context(), store.WorkflowStart{
			MachineID: "m-1", RequestID: "r-1", Kind: workflow.Decommission, Mode: workflow.Reimage, Actor: "tester", DryRun: true, Inputs: inputs("img"),
		}, now())
		return err
	}
	held("it belongs to eve there")
	if c := condition(machine(t, s, "m-1"), fleet.ProviderDrift); c == nil || !strings.Contains(c.GetMessage(), "eve") {
		t.Errorf("the condition is %v", c)
	}
	if f := wantReason(t, erase(), baremetalv1.Reason_PROVIDER_DRIFT.String()); !strings.Contains(f.Message, "eve") {
		t.Errorf("the refusal says %q", f.Message)
	}
	if _, err := s.UpdateNode(t.Context(), "m-1", store.NodeUpdate{AdoptProviderState: true}, "tester", now()); err != nil {
		t.Fatal(err)
	}
	if err := erase(); err != nil {
		t.Errorf("what was accepted still blocks: %v", err)
	}
	held("it belongs to bob there")
	wantReason(t, erase(), baremetalv1.Reason_PROVIDER_DRIFT.String())
	held("")
	if err := erase(); err != nil || condition(machine(t, s, "m-1"), fleet.ProviderDrift) != nil {
		t.Errorf("a machine that is ours again: %v", err)
	}
}
