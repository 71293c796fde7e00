package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/workflow"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/internal/maasstatus"
)

func failsWith(reason string) operation.Resulted {
	return operation.Resulted{Outcome: operation.OutcomeFailed, Reason: reason, Message: "the disk said no"}
}

// The failures of a stage are counted over attempts, whatever their reasons are, until a person must act.
func TestRetriesOfAStageEnd(t *testing.T) {
	r := storetest.NewLifeRig(t)
	r.Start(workflow.Decommission, workflow.FullDecommission)
	for i := range workflow.DefaultBound {
		r.FailWith = map[string]operation.Resulted{"erase": failsWith([]string{"EXECUTION_FAILED", "DISK_WRITE_ERROR"}[i%2])}
		w := r.Run()
		want := baremetalv1.Workflow_FAILED_RETRYABLE
		if i == workflow.DefaultBound-1 {
			want = baremetalv1.Workflow_FAILED_MANUAL_INTERVENTION
		}
		if w.GetState() != want || w.GetCurrentStage() != workflow.CleanupStorage {
			t.Fatalf("failure %d leads to %v", i+1, w)
		}
		r.MustAct(workflow.RetryStage, fmt.Sprint("again-", i))
	}
	// A person may go on, and the bound holds; a rerun begins the count anew.
	r.FailWith = map[string]operation.Resulted{"erase": failsWith("EXECUTION_FAILED")}
	if w := r.Run(); w.GetState() != baremetalv1.Workflow_FAILED_MANUAL_INTERVENTION {
		t.Errorf("one more failure leads to %v", w)
	}
	r.MustAct(workflow.Rerun, "rerun")
	r.FailWith = map[string]operation.Resulted{"erase": failsWith("EXECUTION_FAILED")}
	if w := r.Run(); w.GetState() != baremetalv1.Workflow_FAILED_RETRYABLE {
		t.Errorf("after a rerun the first failure leads to %v", w)
	}
}

// A cleanup that fails leaves the node quarantined with the failure as its reason, and a further attempt goes on from
// there.
func TestAFailedCleanupQuarantines(t *testing.T) {
	for mode, kind := range map[workflow.Mode]string{workflow.FullDecommission: "erase", workflow.StorageCleanup: "erase",
		workflow.SoftReset: "reboot", workflow.Reimage: "repave"} {
		t.Run(string(mode), func(t *testing.T) {
			r := storetest.NewLifeRig(t)
			r.Start(workflow.Decommission, mode)
			for i := 0; r.Workflow().GetState() != baremetalv1.Workflow_FAILED_RETRYABLE && i < 5; i++ {
				r.FailWith = map[string]operation.Resulted{kind: failsWith("EXECUTION_FAILED")}
				r.Run()
				storetest.Age(t, r.Store, r.Workflow().GetOperationId(), 0)
			}
			n, err := r.Store.Nodes.GetNode(t.Context(), "m-1")
			if err != nil || n.GetState() != node.Quarantined || n.GetQuarantineReason() != "EXECUTION_FAILED" ||
				n.GetQuarantinedFrom() != node.Draining {
				t.Fatalf("%v (%v), workflow %v", n, err, r.Workflow())
			}
			// It came from work: an admin's clear does not put it in service.
			_, err = r.Store.Operations.ClearIntervention(t.Context(), "m-1", "tester", "", storetest.Now())
			storetest.WantReason(t, err, "NODE_GUARD_FAILED")
			r.FailWith = nil
			r.MustAct(workflow.Resume, "go-on")
			if w := r.Run(); w.GetState() != baremetalv1.Workflow_COMPLETED {
				t.Errorf("it ended as %v", w)
			}
		})
	}
}

// A decommission that is cancelled after its disks were begun to be erased does not come back into service.
func TestACancelledCleanupQuarantines(t *testing.T) {
	r := storetest.NewLifeRig(t)
	r.FailWith = map[string]operation.Resulted{"erase": failsWith("EXECUTION_FAILED")}
	r.Start(workflow.Decommission, workflow.FullDecommission)
	r.Run()
	r.MustAct(workflow.Resume, "go-on")
	r.Decide(r.Workflow().GetOperationId(), operation.Evaluate{})
	r.MustAct(workflow.Cancel, "no")
	for range 5 {
		r.Decide(r.Workflow().GetOperationId(), operation.Evaluate{})
	}
	if w := r.Workflow(); w.GetState() != baremetalv1.Workflow_CANCELLED || r.Node() != "QUARANTINED" {
		t.Errorf("%v, the node %s", w, r.Node())
	}
}

// An admin quarantines a node with a comment, and it goes back to where it was.
func TestAnAdminQuarantinesAndReleases(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	r := nodestore.TransitionRequest{MachineID: "m-1", RequestID: "q", To: node.Quarantined, Actor: "tester"}
	_, _, err := s.Nodes.TransitionNode(t.Context(), r, storetest.Now())
	storetest.WantReason(t, err, "NODE_GUARD_FAILED")
	r.Comment = "it smells"
	if _, _, err := s.Nodes.TransitionNode(t.Context(), r, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.NeedsIntervention) == nil {
		t.Error("a quarantined machine needs nobody")
	}
	if _, err := s.Operations.ClearIntervention(t.Context(), "m-1", "tester", "", storetest.Now()); err != nil ||
		storetest.State(t, s, "m-1") != "active" {
		t.Errorf("%v, the node is %s", err, storetest.State(t, s, "m-1"))
	}
	storetest.Register(t, s, "m-new")
	if _, _, err := s.Nodes.TransitionNode(t.Context(), nodestore.TransitionRequest{MachineID: "m-new", RequestID: "q",
		To: node.Quarantined, Actor: "tester", Comment: "whose is it?"}, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	storetest.WantReason(t, storetest.Transition(s, "m-new", "in", node.Active, false), "NODE_GUARD_FAILED")
	if err := storetest.Transition(s, "m-new", "back", node.Discovered, false); err != nil ||
		storetest.State(t, s, "m-new") != "discovered" {
		t.Errorf("%v, the node is %s", err, storetest.State(t, s, "m-new"))
	}
}

// A node is quarantined at once, whatever is under way on it: that is cancelled, and nothing is granted for it any
// more.
func TestQuarantineCancelsWhatIsUnderWay(t *testing.T) {
	s := storetest.New(t)
	a, op, c := storetest.Rebooting(t, s, "m-1")
	r := nodestore.TransitionRequest{MachineID: "m-1", RequestID: "q", To: node.Quarantined, Actor: "tester",
		Comment: "it smells"}
	for range 2 { // a repeat has the same answer
		got, created, err := s.Nodes.TransitionNode(t.Context(), r, storetest.Now())
		if err != nil || created || got.GetOperationId() != op || storetest.State(t, s, "m-1") != "quarantined" {
			t.Fatalf("%v %t %v, the node is %s", got, created, err, storetest.State(t, s, "m-1"))
		}
	}
	if d := storetest.Decide(t, s, op, storetest.Ask(a, c, 1, 1)); d.Decision.Grant {
		t.Error("it was granted all the same")
	}
	if got := storetest.Machine(t, s, "m-1").GetStatus().GetActiveOperationId(); got != "" {
		t.Errorf("operation %s is active", got)
	}
	if _, err := s.Operations.ClearIntervention(t.Context(), "m-1", "tester", "", storetest.Now()); err != nil ||
		storetest.State(t, s, "m-1") != "active" {
		t.Errorf("%v, the node is %s", err, storetest.State(t, s, "m-1"))
	}
}

// A quarantined node drains, and one that is in no cluster has nothing to drain.
func TestAQuarantinedNodeDrains(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	if _, err := s.Operations.Quarantine(t.Context(), "m-1", "MACHINE_QUARANTINED", "it smells",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	op := moveNode(t, s, "m-1", "drain", node.Draining)
	d := storetest.Decide(t, s, op.GetOperationId(), operation.Evaluate{})
	if d.Phase != operation.Succeeded || storetest.State(t, s, "m-1") != "retired" {
		t.Errorf("%s %+v, the node is %s", d.Phase, d.Decision.Op.Error, storetest.State(t, s, "m-1"))
	}
	if !strings.Contains(d.Decision.Op.Evidence["node_drained"], "in no cluster") {
		t.Errorf("the evidence is %v", d.Decision.Op.Evidence)
	}
}

// What is in service leaves by a decommission, or with an admin's purge, which the audit log has.
func TestWhatIsInServiceIsNotSimplyRemoved(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	storetest.Live(t, s, "m-2")
	storetest.WantReason(t, storetest.Transition(s, "m-1", "retire", node.Retired, false), "DECOMMISSION_REQUIRED")
	_, err := s.Nodes.Delete(t.Context(), "m-1", "tester", false, storetest.Now())
	storetest.WantReason(t, err, "DECOMMISSION_REQUIRED")
	if storetest.State(t, s, "m-1") != "active" {
		t.Errorf("the node is %s", storetest.State(t, s, "m-1"))
	}
	purge := nodestore.TransitionRequest{MachineID: "m-1", RequestID: "purge", To: node.Retired, Purge: true,
		Actor: "tester"}
	if _, _, err := s.Nodes.TransitionNode(t.Context(), purge, storetest.Now()); err != nil ||
		storetest.State(t, s, "m-1") != "retired" {
		t.Errorf("%v, the node is %s", err, storetest.State(t, s, "m-1"))
	}
	if _, err := s.Nodes.Delete(t.Context(), "m-2", "tester", true, storetest.Now()); err != nil {
		t.Error(err)
	}
	if n := storetest.Count(
		t,
		s,
		"SELECT count(*) FROM audit_log WHERE event_data ->> 'purge' = 'true'",
	); n != 3 { // that of m-2 retired it first
		t.Errorf("the audit log has %d purges", n)
	}
}

// A retired machine takes no operation but the way back or out, whatever its flag says.
func TestARetiredMachineTakesNoOperation(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	purge := nodestore.TransitionRequest{MachineID: "m-1", RequestID: "purge", To: node.Retired, Purge: true,
		Actor: "tester"}
	if _, _, err := s.Nodes.TransitionNode(t.Context(), purge, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Operations.SetFlag(t.Context(), "m-1", string(fleet.RetiredFlag), false, "tester", "",
		storetest.Now()); err != nil {
		t.Logf("the flag is not cleared: %v", err)
	}
	for _, kind := range []fleet.OperationType{fleet.Reboot, fleet.Reimage, fleet.EnterMaintenance, fleet.ExitMaintenance,
		fleet.Netboot} {
		_, _, err := s.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1",
			RequestID: "x-" + string(kind), Type: kind, Inputs: storetest.Inputs("img"), Actor: "tester"}, storetest.Now())
		storetest.WantReason(t, err, "MACHINE_BLOCKED")
	}
	if err := storetest.Transition(s, "m-1", "back", node.Offline, false); err != nil {
		t.Error(err)
	}
}

// A retired machine goes out of the inventory at any later time: its disks are erased, and its record is removed.
func TestARetiredMachineIsDecommissionedLater(t *testing.T) {
	r := storetest.NewLifeRig(t)
	purge := nodestore.TransitionRequest{MachineID: "m-1", RequestID: "purge", To: node.Retired, Purge: true,
		Actor: "tester"}
	if _, _, err := r.Store.Nodes.TransitionNode(t.Context(), purge, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	_, _, err := r.Store.Workflows.StartWorkflow(t.Context(), workflowstore.WorkflowStart{MachineID: "m-1",
		RequestID: "soft", Kind: workflow.Decommission, Mode: workflow.SoftReset, Actor: "tester"}, storetest.Now())
	storetest.WantReason(t, err, "NODE_TRANSITION_ILLEGAL")
	r.Start(workflow.Decommission, workflow.FullDecommission)
	if w := r.Run(); w.GetState() != baremetalv1.Workflow_COMPLETED || r.Node() != "DELETED" {
		t.Errorf("it ended as %v, the node %s", w, r.Node())
	}
}

// A plan of another name that does what the failed one did, or one that the node had all along, is no other plan.
func TestAnotherPlanIsAnother(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	a := serviced(t, s, "m-1")
	var seq uint64
	for i := range node.MaxAttempts {
		if storetest.State(t, s, "m-1") == "install_failed" {
			break
		}
		seq++
		id, c := write(t, s, a, fmt.Sprint("try-", i), seq)
		storetest.Decide(t, s, id, notWritten(a, c))
		for range node.MaxAttempts {
			if d := storetest.Decide(t, s, id, operation.Evaluate{}); d.Command != nil && d.Command.State == operation.Sent {
				seq++
				storetest.Decide(t, s, id, storetest.Ask(a, d.Command, seq, 1))
				storetest.Decide(t, s, id, notWritten(a, d.Command))
			}
		}
	}
	if got := storetest.State(t, s, "m-1"); got != "install_failed" {
		t.Fatalf("the node is %s", got)
	}
	needs := func() string {
		m := storetest.Machine(t, s, "m-1")
		for _, c := range m.GetStatus().GetConditions() {
			if c.GetType() == string(fleet.NeedsIntervention) && c.GetStatus() {
				return c.GetReason()
			}
		}
		return ""
	}
	if needs() != "INSTALL_ATTEMPTS_EXHAUSTED" {
		t.Errorf("after three failures it needs somebody for %q", needs())
	}
	// Nobody has assigned a plan: that the node's default has another name than the plan that failed says nothing.
	storetest.WantReason(t, storetest.Transition(s, "m-1", "same", node.Pending, true), "NODE_GUARD_FAILED")
	again := "write-renamed"
	if _, err := s.Nodes.UpdateNode(t.Context(), "m-1", nodestore.NodeUpdate{PlanID: &again}, "tester",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	storetest.WantReason(t, storetest.Transition(s, "m-1", "renamed", node.Pending, true), "NODE_GUARD_FAILED")
	other := "write-again"
	if _, err := s.Nodes.UpdateNode(t.Context(), "m-1", nodestore.NodeUpdate{PlanID: &other}, "tester",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if err := storetest.Transition(s, "m-1", "other", node.Pending, true); err != nil ||
		storetest.State(t, s, "m-1") != "pending" {
		t.Errorf("%v, the node is %s", err, storetest.State(t, s, "m-1"))
	}
	if needs() != "" {
		t.Errorf("after another plan and the move to pending it still needs somebody for %s", needs())
	}
}

// A node becomes active on its way in when it passes the health checks of its group, and says which ones it doesn't.
func TestNodesWaitForTheirHealthChecks(t *testing.T) {
	s := storetest.New(t)
	in := func(id, group, serial string) storetest.Enrolled {
		t.Helper()
		_, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{
			MachineId: id, Spec: &baremetalv1.MachineSpec{Provider: "fake", Group: group, Serial: serial,
				MacAddresses: []string{"52:54:00:00:00:0" + id[len(id)-1:]}},
		}, "tester", storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
		a := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-" + id, MachineID: id})
		storetest.Lease(t, s)
		storetest.Open(t, s, a.Hello("st-1", "boot-1"))
		return a
	}
	failing := func(id string) string {
		t.Helper()
		n, err := s.Nodes.GetNode(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(n.GetFailingChecks(), "; ")
	}
	a := in("m-1", "", "sn-1")
	if storetest.State(t, s, "m-1") != "bootstrap_issued" ||
		!strings.Contains(failing("m-1"), "inventory: the machine has sent no inventory") {
		t.Errorf("%s: %s", storetest.State(t, s, "m-1"), failing("m-1"))
	}
	a.Arrived(t, s, "52:54:00:00:00:09")
	if storetest.State(t, s, "m-1") != "bootstrap_issued" ||
		!strings.Contains(
			failing("m-1"),
			"inventory: registered MAC address 52:54:00:00:00:01 is not among the machine's: 52:54:00:00:00:09",
		) {
		t.Errorf("with another machine's address it is %s: %s", storetest.State(t, s, "m-1"), failing("m-1"))
	}
	a.Arrived(t, s, "52:54:00:00:00:01")
	if storetest.State(t, s, "m-1") != "active" || failing("m-1") != "" {
		t.Errorf("with its own it is %s: %s", storetest.State(t, s, "m-1"), failing("m-1"))
	}
	b := in("m-2", "", "sn-other")
	b.Arrived(t, s, "52:54:00:00:00:02")
	if storetest.State(t, s, "m-2") != "bootstrap_issued" ||
		!strings.Contains(failing("m-2"), `registered serial number "sn-other" is not the machine's: "sn-1"`) {
		t.Errorf("with another serial number it is %s: %s", storetest.State(t, s, "m-2"), failing("m-2"))
	}
	for group, checks := range map[string][]string{"quick": {nodestore.NoChecks}, "seen": {node.CheckReachable}} {
		if _, err := s.Nodes.SetNodeGroup(t.Context(), &baremetalv1.SetNodeGroupRequest{Group: group, HealthChecks: checks},
			"tester", storetest.Now()); err != nil {
			t.Fatal(err)
		}
		id := map[string]string{"quick": "m-3", "seen": "m-4"}[group]
		if in(id, group, "sn-x"); storetest.State(t, s, id) != "active" {
			t.Errorf("in group %s it is %s: %s", group, storetest.State(t, s, id), failing(id))
		}
	}
}

// Work that destroys data is refused while MAAS says that it has released the machine, broken it, or has another one in
// its place, until that is over or accepted; the site says from which drift on.
func TestDriftOfTheProviderBlocksDestructiveWork(t *testing.T) {
	s := storetest.New(t)
	agent := storetest.MAASMachine(t, s)
	n := 0
	reimage := func() error {
		n++
		_, _, err := s.Workflows.StartWorkflow(t.Context(), workflowstore.WorkflowStart{
			MachineID: "m-1", RequestID: fmt.Sprint("r-", n), Kind: workflow.Decommission, Mode: workflow.Reimage,
			Actor: "tester", DryRun: true, Inputs: storetest.Inputs("img"),
		}, storetest.Now())
		return err
	}
	if err := reimage(); err != nil {
		t.Fatalf("without drift: %v", err)
	}
	for _, c := range []struct {
		status maasstatus.Status
		system string
	}{{maasstatus.Ready, "abc"}, {maasstatus.Broken, "abc"}, {maasstatus.Deployed, "xyz"}} {
		storetest.Says(t, s, agent, c.status, c.system, "")
		if f := storetest.WantReason(t, reimage(), "PROVIDER_DRIFT"); !strings.Contains(f.Message, "--adopt-provider-state") {
			t.Errorf("the refusal names no next step: %s", f.Message)
		}
		_, _, err := s.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1",
			RequestID: fmt.Sprint("image-", n), Type: fleet.Reimage, Inputs: storetest.Inputs("img"), Actor: "tester"},
			storetest.Now())
		storetest.WantReason(t, err, "PROVIDER_DRIFT")
	}
	if _, err := s.Nodes.UpdateNode(t.Context(), "m-1", nodestore.NodeUpdate{AdoptProviderState: true}, "tester",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	if err := reimage(); err != nil || storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.ProviderDrift) != nil {
		t.Errorf("what was accepted still blocks: %v", err)
	}
	storetest.Says(t, s, agent, maasstatus.RescueMode, "xyz", "")
	if err := reimage(); err != nil || storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.ProviderDrift) == nil {
		t.Errorf("a minor drift is shown and blocks nothing by default: %v", err)
	}
	for threshold, reason := range map[string]string{"any": "PROVIDER_DRIFT", "none": ""} {
		if _, err := s.Sites.SetSite(t.Context(), "lab", nil, threshold, "tester", storetest.Now()); err != nil {
			t.Fatal(err)
		}
		if err := reimage(); reason != "" {
			storetest.WantReason(t, err, reason)
		} else if err != nil {
			t.Errorf("threshold %s: %v", threshold, err)
		}
	}
}

// An error that the provider reports needs a person until the provider reports that the machine is well again.
func TestAProvidersErrorEndsWithItsRecovery(t *testing.T) {
	s := storetest.New(t)
	agent := storetest.MAASMachine(t, s)
	storetest.Says(t, s, agent, maasstatus.Broken, "abc", "the fan is gone")
	c := storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.NeedsIntervention)
	if c == nil || c.GetReason() != "MAAS_FAILED" || !strings.Contains(c.GetMessage(), "the fan is gone") {
		t.Fatalf("the condition is %v", c)
	}
	storetest.Says(t, s, agent, maasstatus.Deployed, "abc", "")
	if c := storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.NeedsIntervention); c != nil {
		t.Errorf("after the recovery the condition is %v", c)
	}
}

// What a later report does not say stays as an earlier one has said it.
func TestReportsDoNotBlankEarlierFacts(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1", "52:54:00:00:00:01")
	first := &baremetalv1.ReportNodeRequest{
		MacAddress: "52:54:00:00:00:01", IpAddress: "10.0.0.9", Hostname: "h-1", Vendor: "acme", Model: "x1",
		SerialNumber: "sn-1", SystemUuid: "u-1",
	}
	if _, err := s.Nodes.ReportNode(t.Context(), first, "installer", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	n, err := s.Nodes.ReportNode(t.Context(), &baremetalv1.ReportNodeRequest{MacAddress: "52:54:00:00:00:01",
		Hostname: "h-2"}, "installer", storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	got := n.GetLastReport()
	if got.GetIpAddress() != "10.0.0.9" || got.GetHostname() != "h-2" || got.GetVendor() != "acme" ||
		got.GetModel() != "x1" || got.GetSerialNumber() != "sn-1" || got.GetSystemUuid() != "u-1" {
		t.Errorf("the report is %v", got)
	}
}

// What MAAS was seen to say before a machine's work ended, or while it ran, is neither shown as drift nor does it
// refuse the next work, also where the answer is told later. What MAAS says after that counts again.
func TestWhatAProviderSaidBeforeTheEndOfWorkIsNoDrift(t *testing.T) {
	s := storetest.New(t)
	agent := storetest.MAASMachine(t, s)
	tells := func(status maasstatus.Status, seen time.Time) {
		t.Helper()
		o := &fleetv1.ProviderObservation{
			MachineId: "m-1", Provider: "maas", Reachable: true, Present: true, Status: int32(status),
			StatusName: fmt.Sprint(status),
			SystemId:   "abc", SeenAt: timestamppb.New(seen),
		}
		report := sitestore.SiteReport{Site: "lab", AgentID: agent, LeasesSame: true,
			Providers: []*fleetv1.ProviderObservation{o}}
		if _, err := s.Sites.RecordSite(t.Context(), report, storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	begin := func(request string) (*baremetalv1.Operation, error) {
		op, _, err := s.Workflows.StartWorkflow(t.Context(), workflowstore.WorkflowStart{
			MachineID: "m-1", RequestID: request, Kind: workflow.Decommission, Mode: workflow.StorageCleanup, Actor: "tester",
			Inputs: storetest.Inputs("img"),
		}, storetest.Now())
		return op, err
	}
	shown := func() bool { return storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.ProviderDrift) != nil }
	op, err := begin("one")
	if err != nil {
		t.Fatal(err)
	}
	tells(maasstatus.Ready, storetest.Now())
	asked := storetest.Now()
	if _, err := s.Operations.Cancel(t.Context(), op.GetOperationId(), "tester", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	tells(maasstatus.Ready, asked)
	if shown() {
		t.Error("what was seen during the work is shown as drift after it")
	}
	if op, err = begin("two"); err != nil {
		t.Fatalf("what was seen during the work refuses the next: %v", err)
	}
	if _, err := s.Operations.Cancel(t.Context(), op.GetOperationId(), "tester", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	tells(maasstatus.Ready, storetest.Now())
	if !shown() {
		t.Error("what is said after the work is not shown")
	}
	_, err = begin("three")
	storetest.WantReason(t, err, "PROVIDER_DRIFT")
}
