package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/node"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/controller/workflow"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

func failsWith(reason string) operation.Resulted {
	return operation.Resulted{Outcome: operation.OutcomeFailed, Reason: reason, Message: "the disk said no"}
}

// The failures of a stage are counted over attempts, whatever their reasons are, until a person must act.
func TestRetriesOfAStageEnd(t *testing.T) {
	r := newLifeRig(t)
	r.start(workflow.Decommission, workflow.FullDecommission)
	for i := range workflow.DefaultBound {
		r.fail = map[string]operation.Resulted{"erase": failsWith([]string{"EXECUTION_FAILED", "DISK_WRITE_ERROR"}[i%2])}
		w := r.run()
		want := baremetalv1.Workflow_FAILED_RETRYABLE
		if i == workflow.DefaultBound-1 {
			want = baremetalv1.Workflow_FAILED_MANUAL_INTERVENTION
		}
		if w.GetState() != want || w.GetCurrentStage() != workflow.CleanupStorage {
			t.Fatalf("failure %d leads to %v", i+1, w)
		}
		r.mustAct(workflow.RetryStage, fmt.Sprint("again-", i))
	}
	// A person may go on, and the bound holds; a rerun begins the count anew.
	r.fail = map[string]operation.Resulted{"erase": failsWith("EXECUTION_FAILED")}
	if w := r.run(); w.GetState() != baremetalv1.Workflow_FAILED_MANUAL_INTERVENTION {
		t.Errorf("one more failure leads to %v", w)
	}
	r.mustAct(workflow.Rerun, "rerun")
	r.fail = map[string]operation.Resulted{"erase": failsWith("EXECUTION_FAILED")}
	if w := r.run(); w.GetState() != baremetalv1.Workflow_FAILED_RETRYABLE {
		t.Errorf("after a rerun the first failure leads to %v", w)
	}
}

// A cleanup that fails leaves the node quarantined with the failure as its reason, and a further attempt goes on from there.
func TestAFailedCleanupQuarantines(t *testing.T) {
	for mode, kind := range map[workflow.Mode]string{workflow.FullDecommission: "erase", workflow.StorageCleanup: "erase", workflow.SoftReset: "reboot", workflow.Reimage: "repave"} {
		t.Run(string(mode), func(t *testing.T) {
			r := newLifeRig(t)
			r.start(workflow.Decommission, mode)
			for i := 0; r.workflow().GetState() != baremetalv1.Workflow_FAILED_RETRYABLE && i < 5; i++ {
				r.fail = map[string]operation.Resulted{kind: failsWith("EXECUTION_FAILED")}
				r.run()
				storetest.Age(t, r.s, r.workflow().GetOperationId(), 0)
			}
			n, err := r.s.GetNode(t.Context(), "m-1")
			if err != nil || n.GetState() != node.Quarantined || n.GetQuarantineReason() != "EXECUTION_FAILED" || n.GetQuarantinedFrom() != node.Draining {
				t.Fatalf("%v (%v), workflow %v", n, err, r.workflow())
			}
			// It came from work: an admin's clear does not put it in service.
			_, err = r.s.ClearIntervention(t.Context(), "m-1", "tester", "", now())
			wantReason(t, err, "NODE_GUARD_FAILED")
			r.fail = nil
			r.mustAct(workflow.Resume, "go-on")
			if w := r.run(); w.GetState() != baremetalv1.Workflow_COMPLETED {
				t.Errorf("it ended as %v", w)
			}
		})
	}
}

// A decommission that is cancelled after its disks were begun to be erased does not come back into service.
func TestACancelledCleanupQuarantines(t *testing.T) {
	r := newLifeRig(t)
	r.fail = map[string]operation.Resulted{"erase": failsWith("EXECUTION_FAILED")}
	r.start(workflow.Decommission, workflow.FullDecommission)
	r.run()
	r.mustAct(workflow.Resume, "go-on")
	r.decide(r.workflow().GetOperationId(), operation.Look{})
	r.mustAct(workflow.Cancel, "no")
	for range 5 {
		r.decide(r.workflow().GetOperationId(), operation.Look{})
	}
	if w := r.workflow(); w.GetState() != baremetalv1.Workflow_CANCELLED || r.node() != "QUARANTINED" {
		t.Errorf("%v, the node %s", w, r.node())
	}
}

// An admin quarantines a node with a comment, and it goes back to where it was.
func TestAnAdminQuarantinesAndReleases(t *testing.T) {
	s := storetest.New(t)
	live(t, s, "m-1")
	r := store.TransitionRequest{MachineID: "m-1", RequestID: "q", To: node.Quarantined, Actor: "tester"}
	_, _, err := s.TransitionNode(t.Context(), r, now())
	wantReason(t, err, "NODE_GUARD_FAILED")
	r.Comment = "it smells"
	if _, _, err := s.TransitionNode(t.Context(), r, now()); err != nil {
		t.Fatal(err)
	}
	if condition(machine(t, s, "m-1"), fleet.NeedsIntervention) == nil {
		t.Error("a quarantined machine needs nobody")
	}
	if _, err := s.ClearIntervention(t.Context(), "m-1", "tester", "", now()); err != nil || state(t, s, "m-1") != "active" {
		t.Errorf("%v, the node is %s", err, state(t, s, "m-1"))
	}
	register(t, s, "m-new")
	if _, _, err := s.TransitionNode(t.Context(), store.TransitionRequest{MachineID: "m-new", RequestID: "q", To: node.Quarantined, Actor: "tester", Comment: "whose is it?"}, now()); err != nil {
		t.Fatal(err)
	}
	wantReason(t, transition(s, "m-new", "in", node.Active, false), "NODE_GUARD_FAILED")
	if err := transition(s, "m-new", "back", node.Discovered, false); err != nil || state(t, s, "m-new") != "discovered" {
		t.Errorf("%v, the node is %s", err, state(t, s, "m-new"))
	}
}

// A node is quarantined at once, whatever is under way on it: that is cancelled, and nothing is granted for it any more.
func TestQuarantineCancelsWhatIsUnderWay(t *testing.T) {
	s := storetest.New(t)
	a, op, c := rebooting(t, s, "m-1")
	r := store.TransitionRequest{MachineID: "m-1", RequestID: "q", To: node.Quarantined, Actor: "tester", Comment: "it smells"}
	for range 2 { // a repeat has the same answer
		got, created, err := s.TransitionNode(t.Context(), r, now())
		if err != nil || created || got.GetOperationId() != op || state(t, s, "m-1") != "quarantined" {
			t.Fatalf("%v %t %v, the node is %s", got, created, err, state(t, s, "m-1"))
		}
	}
	if d := decide(t, s, op, ask(a, c, 1, 1)); d.Decision.Grant {
		t.Error("it was granted all the same")
	}
	if got := machine(t, s, "m-1").GetStatus().GetActiveOperationId(); got != "" {
		t.Errorf("operation %s is active", got)
	}
	if _, err := s.ClearIntervention(t.Context(), "m-1", "tester", "", now()); err != nil || state(t, s, "m-1") != "active" {
		t.Errorf("%v, the node is %s", err, state(t, s, "m-1"))
	}
}

// A quarantined node drains, and one that is in no cluster has nothing to drain.
func TestAQuarantinedNodeDrains(t *testing.T) {
	s := storetest.New(t)
	live(t, s, "m-1")
	if _, err := s.Quarantine(t.Context(), "m-1", "MACHINE_QUARANTINED", "it smells", now()); err != nil {
		t.Fatal(err)
	}
	op := moveNode(t, s, "m-1", "drain", node.Draining)
	d := decide(t, s, op.GetOperationId(), operation.Look{})
	if d.Phase != operation.Succeeded || state(t, s, "m-1") != "retired" {
		t.Errorf("%s %+v, the node is %s", d.Phase, d.Decision.Op.Error, state(t, s, "m-1"))
	}
	if !strings.Contains(d.Decision.Op.Evidence["node_drained"], "in no cluster") {
		t.Errorf("the evidence is %v", d.Decision.Op.Evidence)
	}
}

// What is in service leaves by a decommission, or with an admin's purge, which the audit log has.
func TestWhatIsInServiceIsNotSimplyRemoved(t *testing.T) {
	s := storetest.New(t)
	live(t, s, "m-1")
	live(t, s, "m-2")
	wantReason(t, transition(s, "m-1", "retire", node.Retired, false), "DECOMMISSION_REQUIRED")
	_, err := s.Delete(t.Context(), "m-1", "tester", false, now())
	wantReason(t, err, "DECOMMISSION_REQUIRED")
	if state(t, s, "m-1") != "active" {
		t.Errorf("the node is %s", state(t, s, "m-1"))
	}
	purge := store.TransitionRequest{MachineID: "m-1", RequestID: "purge", To: node.Retired, Purge: true, Actor: "tester"}
	if _, _, err := s.TransitionNode(t.Context(), purge, now()); err != nil || state(t, s, "m-1") != "retired" {
		t.Errorf("%v, the node is %s", err, state(t, s, "m-1"))
	}
	if _, err := s.Delete(t.Context(), "m-2", "tester", true, now()); err != nil {
		t.Error(err)
	}
	if n := count(t, s, "SELECT count(*) FROM audit_log WHERE event_data ->> 'purge' = 'true'"); n != 2 {
		t.Errorf("the audit log has %d purges", n)
	}
}

// A retired machine takes no operation but the way back or out, whatever its flag says.
func TestARetiredMachineTakesNoOperation(t *testing.T) {
	s := storetest.New(t)
	live(t, s, "m-1")
	purge := store.TransitionRequest{MachineID: "m-1", RequestID: "purge", To: node.Retired, Purge: true, Actor: "tester"}
	if _, _, err := s.TransitionNode(t.Context(), purge, now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetFlag(t.Context(), "m-1", string(fleet.RetiredFlag), false, "tester", "", now()); err != nil {
		t.Logf("the flag is not cleared: %v", err)
	}
	for _, kind := range []fleet.OperationType{fleet.Reboot, fleet.Reimage, fleet.EnterMaintenance, fleet.ExitMaintenance, fleet.Netboot} {
		_, _, err := s.Start(t.Context(), store.StartRequest{MachineID: "m-1", RequestID: "x-" + string(kind), Type: kind, Inputs: inputs("img"), Actor: "tester"}, now())
		wantReason(t, err, "MACHINE_BLOCKED")
	}
	if err := transition(s, "m-1", "back", node.Offline, false); err != nil {
		t.Error(err)
	}
}

// A retired machine goes out of the inventory at any later time: its disks are erased, and its record is removed.
func TestARetiredMachineIsDecommissionedLater(t *testing.T) {
	r := newLifeRig(t)
	purge := store.TransitionRequest{MachineID: "m-1", RequestID: "purge", To: node.Retired, Purge: true, Actor: "tester"}
	if _, _, err := r.s.TransitionNode(t.Context(), purge, now()); err != nil {
		t.Fatal(err)
	}
	_, _, err := r.s.StartWorkflow(t.Context(), store.WorkflowStart{MachineID: "m-1", RequestID: "soft", Kind: workflow.Decommission, Mode: workflow.SoftReset, Actor: "tester"}, now())
	wantReason(t, err, "NODE_TRANSITION_ILLEGAL")
	r.start(workflow.Decommission, workflow.FullDecommission)
	if w := r.run(); w.GetState() != baremetalv1.Workflow_COMPLETED || r.node() != "DELETED" {
		t.Errorf("it ended as %v, the node %s", w, r.node())
	}
}

// A plan of another name that does what the failed one did, or one that the node had all along, is no other plan.
func TestAnotherPlanIsAnother(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	a := serviced(t, s, "m-1")
	var seq uint64
	for i := range node.MaxAttempts {
		if state(t, s, "m-1") == "install_failed" {
			break
		}
		seq++
		id, c := write(t, s, a, fmt.Sprint("try-", i), seq)
		decide(t, s, id, notWritten(a, c))
		for range node.MaxAttempts {
			if d := decide(t, s, id, operation.Look{}); d.Command != nil && d.Command.State == operation.Sent {
				seq++
				decide(t, s, id, ask(a, d.Command, seq, 1))
				decide(t, s, id, notWritten(a, d.Command))
			}
		}
	}
	if got := state(t, s, "m-1"); got != "install_failed" {
		t.Fatalf("the node is %s", got)
	}
	// Nobody has assigned a plan: that the node's default has another name than the plan that failed says nothing.
	wantReason(t, transition(s, "m-1", "same", node.Pending, true), "NODE_GUARD_FAILED")
	again := "write-renamed"
	if _, err := s.UpdateNode(t.Context(), "m-1", store.NodeUpdate{PlanID: &again}, "tester", now()); err != nil {
		t.Fatal(err)
	}
	wantReason(t, transition(s, "m-1", "renamed", node.Pending, true), "NODE_GUARD_FAILED")
	other := "write-again"
	if _, err := s.UpdateNode(t.Context(), "m-1", store.NodeUpdate{PlanID: &other}, "tester", now()); err != nil {
		t.Fatal(err)
	}
	if err := transition(s, "m-1", "other", node.Pending, true); err != nil || state(t, s, "m-1") != "pending" {
		t.Errorf("%v, the node is %s", err, state(t, s, "m-1"))
	}
}

// A node becomes active on its way in when it passes the health checks of its group, and says which ones it doesn't.
func TestNodesWaitForTheirHealthChecks(t *testing.T) {
	s := storetest.New(t)
	in := func(id, group, serial string) enrolled {
		t.Helper()
		_, err := s.Register(t.Context(), &baremetalv1.Machine{
			MachineId: id, Spec: &baremetalv1.MachineSpec{Provider: "fake", Group: group, Serial: serial, MacAddresses: []string{"52:54:00:00:00:0" + id[len(id)-1:]}},
		}, "tester", now())
		if err != nil {
			t.Fatal(err)
		}
		a := enrol(t, s, store.NewToken{TokenID: "t-" + id, MachineID: id})
		lease(t, s)
		open(t, s, a.hello("st-1", "boot-1"))
		return a
	}
	failing := func(id string) string {
		t.Helper()
		n, err := s.GetNode(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(n.GetFailingChecks(), "; ")
	}
	a := in("m-1", "", "sn-1")
	if state(t, s, "m-1") != "bootstrap_issued" || !strings.Contains(failing("m-1"), "inventory: the machine has sent no inventory") {
		t.Errorf("%s: %s", state(t, s, "m-1"), failing("m-1"))
	}
	a.arrived(t, s, "52:54:00:00:00:09")
	if state(t, s, "m-1") != "bootstrap_issued" || !strings.Contains(failing("m-1"), "52:54:00:00:00:01 is registered") {
		t.Errorf("with another machine's address it is %s: %s", state(t, s, "m-1"), failing("m-1"))
	}
	a.arrived(t, s, "52:54:00:00:00:01")
	if state(t, s, "m-1") != "active" || failing("m-1") != "" {
		t.Errorf("with its own it is %s: %s", state(t, s, "m-1"), failing("m-1"))
	}
	b := in("m-2", "", "sn-other")
	b.arrived(t, s, "52:54:00:00:00:02")
	if state(t, s, "m-2") != "bootstrap_issued" || !strings.Contains(failing("m-2"), `"sn-other" is registered`) {
		t.Errorf("with another serial number it is %s: %s", state(t, s, "m-2"), failing("m-2"))
	}
	for group, checks := range map[string][]string{"quick": {store.NoChecks}, "seen": {node.CheckReachable}} {
		if _, err := s.SetNodeGroup(t.Context(), &baremetalv1.SetNodeGroupRequest{Group: group, HealthChecks: checks}, "tester", now()); err != nil {
			t.Fatal(err)
		}
		id := map[string]string{"quick": "m-3", "seen": "m-4"}[group]
		if in(id, group, "sn-x"); state(t, s, id) != "active" {
			t.Errorf("in group %s it is %s: %s", group, state(t, s, id), failing(id))
		}
	}
}

// maasMachine is a machine of MAAS that is in service and in maintenance.
//
// It returns the agent of its site.
func maasMachine(t *testing.T, s *store.Store) string {
	t.Helper()
	if _, err := s.Register(t.Context(), &baremetalv1.Machine{MachineId: "m-1", Spec: &baremetalv1.MachineSpec{Provider: "maas", Site: "lab"}}, "tester", now()); err != nil {
		t.Fatal(err)
	}
	site := enrol(t, s, store.NewToken{TokenID: "t-site", Role: "site", Site: "lab"}).id
	says(t, s, site, maasstatus.Deployed, "abc", "")
	a := enrol(t, s, store.NewToken{TokenID: "t-1", MachineID: "m-1"})
	lease(t, s)
	open(t, s, a.hello("st-1", "boot-1"))
	maintenance(t, s, "m-1")
	if got := state(t, s, "m-1"); got != "active" {
		t.Fatalf("the node is %s", got)
	}
	return site
}

// says lets the site's agent report what MAAS shows.
func says(t *testing.T, s *store.Store, site string, status maasstatus.Status, system, message string) {
	t.Helper()
	o := &fleetv1.ProviderObservation{
		MachineId: "m-1", Provider: "maas", Reachable: true, Present: true, Status: int32(status), StatusName: fmt.Sprint(status), SystemId: system, StatusMessage: message,
	}
	report := store.SiteReport{Site: "lab", AgentID: site, LeasesSame: true, Providers: []*fleetv1.ProviderObservation{o}}
	if _, err := s.RecordSite(t.Context(), report, now()); err != nil {
		t.Fatal(err)
	}
}

// Work that destroys data is refused while MAAS says that it has released the machine, broken it, or has another one in its
// place, until that is over or accepted; the site says from which drift on.
func TestDriftOfTheProviderBlocksDestructiveWork(t *testing.T) {
	s := storetest.New(t)
	agent := maasMachine(t, s)
	n := 0
	reimage := func() error {
		n++
		_, _, err := s.StartWorkflow(t.Context(), store.WorkflowStart{
			MachineID: "m-1", RequestID: fmt.Sprint("r-", n), Kind: workflow.Decommission, Mode: workflow.Reimage, Actor: "tester", DryRun: true, Inputs: inputs("img"),
		}, now())
		return err
	}
	if err := reimage(); err != nil {
		t.Fatalf("without drift: %v", err)
	}
	for _, c := range []struct {
		status maasstatus.Status
		system string
	}{{maasstatus.Ready, "abc"}, {maasstatus.Broken, "abc"}, {maasstatus.Deployed, "xyz"}} {
		says(t, s, agent, c.status, c.system, "")
		if f := wantReason(t, reimage(), "PROVIDER_DRIFT"); !strings.Contains(f.Message, "--adopt-provider-state") {
			t.Errorf("the refusal names no next step: %s", f.Message)
		}
		_, _, err := s.Start(t.Context(), store.StartRequest{MachineID: "m-1", RequestID: fmt.Sprint("image-", n), Type: fleet.Reimage, Inputs: inputs("img"), Actor: "tester"}, now())
		wantReason(t, err, "PROVIDER_DRIFT")
	}
	if _, err := s.UpdateNode(t.Context(), "m-1", store.NodeUpdate{AdoptProviderState: true}, "tester", now()); err != nil {
		t.Fatal(err)
	}
	if err := reimage(); err != nil || condition(machine(t, s, "m-1"), fleet.ProviderDrift) != nil {
		t.Errorf("what was accepted still blocks: %v", err)
	}
	says(t, s, agent, maasstatus.RescueMode, "xyz", "")
	if err := reimage(); err != nil || condition(machine(t, s, "m-1"), fleet.ProviderDrift) == nil {
		t.Errorf("a minor drift is shown and blocks nothing by default: %v", err)
	}
	for threshold, reason := range map[string]string{"any": "PROVIDER_DRIFT", "none": ""} {
		if _, err := s.SetSite(t.Context(), "lab", nil, threshold, "tester", now()); err != nil {
			t.Fatal(err)
		}
		if err := reimage(); reason != "" {
			wantReason(t, err, reason)
		} else if err != nil {
			t.Errorf("threshold %s: %v", threshold, err)
		}
	}
}

// An error that the provider reports needs a person until the provider reports that the machine is well again.
func TestAProvidersErrorEndsWithItsRecovery(t *testing.T) {
	s := storetest.New(t)
	agent := maasMachine(t, s)
	says(t, s, agent, maasstatus.Broken, "abc", "the fan is gone")
	c := condition(machine(t, s, "m-1"), fleet.NeedsIntervention)
	if c == nil || c.GetReason() != "MAAS_FAILED" || !strings.Contains(c.GetMessage(), "the fan is gone") {
		t.Fatalf("the condition is %v", c)
	}
	says(t, s, agent, maasstatus.Deployed, "abc", "")
	if c := condition(machine(t, s, "m-1"), fleet.NeedsIntervention); c != nil {
		t.Errorf("after the recovery the condition is %v", c)
	}
}

// What a later report does not say stays as an earlier one has said it.
func TestReportsDoNotBlankEarlierFacts(t *testing.T) {
	s := storetest.New(t)
	register(t, s, "m-1", "52:54:00:00:00:01")
	first := &baremetalv1.ReportNodeRequest{
		MacAddress: "52:54:00:00:00:01", IpAddress: "10.0.0.9", Hostname: "h-1", Vendor: "acme", Model: "x1", SerialNumber: "sn-1", SystemUuid: "u-1",
	}
	if _, err := s.ReportNode(t.Context(), first, "installer", now()); err != nil {
		t.Fatal(err)
	}
	n, err := s.ReportNode(t.Context(), &baremetalv1.ReportNodeRequest{MacAddress: "52:54:00:00:00:01", Hostname: "h-2"}, "installer", now())
	if err != nil {
		t.Fatal(err)
	}
	got := n.GetLastReport()
	if got.GetIpAddress() != "10.0.0.9" || got.GetHostname() != "h-2" || got.GetVendor() != "acme" || got.GetModel() != "x1" || got.GetSerialNumber() != "sn-1" || got.GetSystemUuid() != "u-1" {
		t.Errorf("the report is %v", got)
	}
}

// What MAAS was seen to say before a machine's work ended, or while it ran, is neither shown as drift nor does it refuse the next
// work, also where the answer is told later. What MAAS says after that counts again.
func TestWhatAProviderSaidBeforeTheEndOfWorkIsNoDrift(t *testing.T) {
	s := storetest.New(t)
	agent := maasMachine(t, s)
	tells := func(status maasstatus.Status, seen time.Time) {
		t.Helper()
		o := &fleetv1.ProviderObservation{
			MachineId: "m-1", Provider: "maas", Reachable: true, Present: true, Status: int32(status), StatusName: fmt.Sprint(status),
			SystemId: "abc", SeenAt: timestamppb.New(seen),
		}
		report := store.SiteReport{Site: "lab", AgentID: agent, LeasesSame: true, Providers: []*fleetv1.ProviderObservation{o}}
		if _, err := s.RecordSite(t.Context(), report, now()); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(request string) (*baremetalv1.Operation, error) {
		op, _, err := s.StartWorkflow(t.Context(), store.WorkflowStart{
			MachineID: "m-1", RequestID: request, Kind: workflow.Decommission, Mode: workflow.StorageCleanup, Actor: "tester", Inputs: inputs("img"),
		}, now())
		return op, err
	}
	shown := func() bool { return condition(machine(t, s, "m-1"), fleet.ProviderDrift) != nil }
	op, err := begin("one")
	if err != nil {
		t.Fatal(err)
	}
	tells(maasstatus.Ready, now())
	asked := now()
	if _, err := s.Cancel(t.Context(), op.GetOperationId(), "tester", now()); err != nil {
		t.Fatal(err)
	}
	tells(maasstatus.Ready, asked)
	if shown() {
		t.Error("what was seen during the work is shown as drift after it")
	}
	if op, err = begin("two"); err != nil {
		t.Fatalf("what was seen during the work refuses the next: %v", err)
	}
	if _, err := s.Cancel(t.Context(), op.GetOperationId(), "tester", now()); err != nil {
		t.Fatal(err)
	}
	tells(maasstatus.Ready, now())
	if !shown() {
		t.Error("what is said after the work is not shown")
	}
	_, err = begin("three")
	wantReason(t, err, "PROVIDER_DRIFT")
}
