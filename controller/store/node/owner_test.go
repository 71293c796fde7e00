package node_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	workflowstore "github.com/ingot-metal/ingot/controller/store/workflow"
	"github.com/ingot-metal/ingot/internal/evidence"
)

// owned fails unless every node in a state of work has an owner.
func owned(t testing.TB, s *store.Store) {
	t.Helper()
	found, err := s.Nodes.OwnerlessNodes(t.Context(), storetest.Now().Add(48*time.Hour))
	if err != nil || len(found) > 0 {
		t.Fatalf("without an owner: %+v, %v", found, err)
	}
}

// able lets the agent of a machine do everything in place.
func able(t testing.TB, s *store.Store, id string) storetest.Enrolled {
	t.Helper()
	storetest.Register(t, s, id)
	a := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-" + id, MachineID: id})
	storetest.Lease(t, s)
	h := a.Hello("st-1", "boot-1")
	h.Capabilities = append(h.Capabilities, "repave", "erase", "ssh")
	storetest.Open(t, s, h)
	storetest.Maintenance(t, s, id)
	return a
}

func moveNode(t testing.TB, s *store.Store, id, request string, to node.State) *baremetalv1.Operation {
	t.Helper()
	op, _, err := s.Nodes.TransitionNode(t.Context(), nodestore.TransitionRequest{MachineID: id, RequestID: request,
		To: to, ImageRef: imageFor(to), Actor: "tester"}, storetest.Now())
	if err != nil {
		t.Fatal(err)
	}
	return op
}

func imageFor(to node.State) string {
	if to == node.Reprovision {
		return "img"
	}
	return ""
}

// granted lets the next command of an operation be granted.
func granted(t testing.TB, s *store.Store, a storetest.Enrolled, op string, seq *uint64) *operation.Command {
	t.Helper()
	d := storetest.Decide(t, s, op, operation.Evaluate{})
	if d.Command == nil {
		t.Fatalf("no command: %+v", d.Decision.Op)
	}
	*seq++
	if g := storetest.Decide(t, s, op, storetest.Ask(a, d.Command, *seq, 1)); !g.Decision.Grant {
		t.Fatalf("no grant: %+v", g.Decision.Refusal)
	}
	return d.Command
}

// The ends that work can come to, before and after its first grant.
var ends = map[string]func(t *testing.T, s *store.Store, a storetest.Enrolled, op string){
	"canceled before anything was granted": func(t *testing.T, s *store.Store, _ storetest.Enrolled, op string) {
		storetest.Decide(t, s, op, operation.Evaluate{})
		storetest.Decide(t, s, op, operation.CancelAsked{Actor: "ann"})
	},
	"nobody takes it": func(t *testing.T, s *store.Store, _ storetest.Enrolled, op string) {
		storetest.Decide(t, s, op, operation.Evaluate{})
		if _, err := s.Operations.Decide(t.Context(), op, operation.Evaluate{},
			storetest.Now().Add(30*24*time.Hour)); err != nil {
			t.Fatal(err)
		}
	},
	"canceled after the grant": func(t *testing.T, s *store.Store, a storetest.Enrolled, op string) {
		var seq uint64
		c := granted(t, s, a, op, &seq)
		storetest.Decide(t, s, op, operation.CancelAsked{Actor: "ann"})
		storetest.Decide(t, s, op, operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeCanceled})
	},
	"failed after the grant": func(t *testing.T, s *store.Store, a storetest.Enrolled, op string) {
		var seq uint64
		c := granted(t, s, a, op, &seq)
		storetest.Decide(t, s, op, operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeFailed,
			Reason: "EXECUTION_FAILED", Message: "no"})
	},
	"unknown after the grant": func(t *testing.T, s *store.Store, a storetest.Enrolled, op string) {
		var seq uint64
		c := granted(t, s, a, op, &seq)
		storetest.Decide(t, s, op, operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeUnknown})
	},
}

// However the work of a state ends, its end moves the node out of it, in the same transaction.
func TestTheEndOfWorkMovesTheNode(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	want := map[node.State]map[string]string{
		node.Reprovision: {
			"canceled before anything was granted": "pending", "nobody takes it": "pending",
			"canceled after the grant": "pending",
			"failed after the grant":   "pending", "unknown after the grant": "pending",
		},
		node.Deprovisioning: {
			"canceled before anything was granted": "active", "nobody takes it": "quarantined",
			"canceled after the grant": "active",
			"failed after the grant":   "quarantined", "unknown after the grant": "quarantined",
		},
		node.Migrating: {"canceled before anything was granted": "active", "nobody takes it": "active"},
	}
	n := 0
	for from, byEnd := range want {
		for name, end := range ends {
			if byEnd[name] == "" {
				continue // such work grants nothing
			}
			n++
			id := fmt.Sprintf("m-%d", n)
			a := able(t, s, id)
			if from == node.Reprovision {
				plan := "write"
				if _, err := s.Nodes.UpdateNode(t.Context(), id, nodestore.NodeUpdate{PlanID: &plan}, "tester",
					storetest.Now()); err != nil {
					t.Fatal(err)
				}
			}
			op := moveNode(t, s, id, "work", from)
			if got := storetest.State(t, s, id); got != node.Name(from) {
				t.Fatalf("%s: the node is %s", node.Name(from), got)
			}
			end(t, s, a, op.GetOperationId())
			if got := storetest.State(t, s, id); got != byEnd[name] {
				t.Errorf("%s, %s: the node is %s, want %s", node.Name(from), name, got, byEnd[name])
			}
			owned(t, s)
		}
	}
}

// An erasure that was begun and did not end well leaves a machine of whose disks nobody knows what they hold: it is
// kept out of all work.
func TestABegunErasureQuarantines(t *testing.T) {
	s := storetest.New(t)
	for n, outcome := range []operation.Outcome{operation.OutcomeCanceled, operation.OutcomeFailed,
		operation.OutcomeUnknown} {
		id := fmt.Sprintf("m-%d", n)
		a := able(t, s, id)
		op := moveNode(t, s, id, "work", node.Deprovisioning).GetOperationId()
		var seq uint64
		c := granted(t, s, a, op, &seq)
		d := storetest.Decide(t, s, op, operation.Resulted{CommandID: c.ID, AgentID: a.ID,
			Outcome: operation.OutcomeSucceeded, Evidence: map[string]string{"boot_next": "network"}})
		seq++
		if g := storetest.Decide(t, s, op, storetest.Ask(a, d.Command, seq, 1)); !g.Decision.Grant {
			t.Fatalf("no grant: %+v", g.Decision.Refusal)
		}
		if outcome == operation.OutcomeCanceled {
			storetest.Decide(t, s, op, operation.CancelAsked{Actor: "ann"})
		}
		storetest.Decide(t, s, op, operation.Resulted{CommandID: d.Command.ID, AgentID: a.ID, Outcome: outcome,
			Reason: "EXECUTION_FAILED"})
		if got := storetest.State(t, s, id); got != "quarantined" ||
			storetest.Condition(storetest.Machine(t, s, id), fleet.NeedsIntervention) == nil {
			t.Errorf("%s: the node is %s", outcome, got)
		}
		owned(t, s)
	}
}

// A machine whose hardware is replaced is migrating until it comes back under another boot, and then in service.
func TestMigratingWaitsForTheMachine(t *testing.T) {
	s := storetest.New(t)
	a := able(t, s, "m-1")
	op := moveNode(t, s, "m-1", "swap", node.Migrating)
	if op.GetType() != baremetalv1.Operation_RMA || op.GetPlanId() != "replace" ||
		storetest.State(t, s, "m-1") != "migrating" {
		t.Fatalf("%v, %s", op, storetest.State(t, s, "m-1"))
	}
	storetest.Decide(t, s, op.GetOperationId(), operation.Evaluate{})
	h := a.Hello("st-1", "boot-1")
	h.Capabilities = append(h.Capabilities, "repave")
	storetest.Open(t, s, h)
	storetest.Decide(t, s, op.GetOperationId(), operation.SessionOpened{AgentID: a.ID, StateID: "st-1", BootID: "boot-1",
		OfTarget: true})
	if got := storetest.State(t, s, "m-1"); got != "migrating" {
		t.Fatalf("the same boot, and the node is %s", got)
	}
	storetest.Open(t, s, a.Hello("st-2", "boot-2"))
	storetest.Decide(t, s, op.GetOperationId(), operation.SessionOpened{AgentID: a.ID, StateID: "st-2", BootID: "boot-2",
		OfTarget: true})
	storetest.Whole(t, s, "m-1", op.GetOperationId(), operation.Succeeded)
	wantHistory(t, s, "m-1", append(adopted[:3:3], "active>migrating admin", "migrating>active workflow")...)
}

// An agent that has enrolled and says nothing more leaves no node enrolling: the first session moves it.
func TestEnrolledIsNotEnrolling(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	a := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"})
	if got := storetest.State(t, s, "m-1"); got != "bootstrap_issued" {
		t.Errorf("without a session the node is %s", got)
	}
	storetest.Lease(t, s)
	storetest.Open(t, s, a.Hello("st-1", "boot-1"))
	wantHistory(t, s, "m-1", adopted...)
}

// Moving a node to enrolling starts the onboarding that the state stands for: it adopts the machine, and has one
// attempt however often it is requested. The move does not change the phase: outside maintenance it is refused.
func TestMovingToEnrollingOnboards(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	a := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"})
	ask := nodestore.TransitionRequest{MachineID: "m-1", RequestID: "enrol", To: node.Enrolling, Actor: "tester"}
	foretold := ask
	foretold.DryRun = true
	for _, r := range []nodestore.TransitionRequest{foretold, ask} {
		_, _, err := s.Nodes.TransitionNode(t.Context(), r, storetest.Now())
		storetest.WantReason(t, err, "WRONG_PHASE")
	}
	storetest.Maintenance(t, s, "m-1")
	if op, created, err := s.Nodes.TransitionNode(t.Context(), foretold, storetest.Now()); err != nil || created ||
		op.GetOperationId() != "" {
		t.Fatalf("dry run: %v %v %v", op, created, err)
	}
	op, created, err := s.Nodes.TransitionNode(t.Context(), ask, storetest.Now())
	if err != nil || !created || op.GetType() != baremetalv1.Operation_ONBOARD {
		t.Fatalf("%v %v %v", op, created, err)
	}
	again, created, err := s.Nodes.TransitionNode(t.Context(), ask, storetest.Now())
	if err != nil || created || again.GetOperationId() != op.GetOperationId() {
		t.Errorf("a repeat gives %v %v %v", again, created, err)
	}
	flows, err := s.Workflows.ListWorkflows(t.Context(), workflowstore.WorkflowFilter{MachineID: "m-1", Limit: 10})
	if err != nil || len(flows) != 1 || slices.Contains(flows[0].GetStages(), "install_node") {
		t.Fatalf("%v %v", flows, err)
	}
	storetest.Decide(t, s, op.GetOperationId(), operation.Evaluate{})
	if got := storetest.State(t, s, "m-1"); got != "enrolling" {
		t.Errorf("under way, and the node is %s", got)
	}
	storetest.Lease(t, s)
	storetest.Open(t, s, a.Hello("st-1", "boot-1"))
	storetest.Decide(t, s, op.GetOperationId(), operation.SessionOpened{AgentID: a.ID, StateID: "st-1", BootID: "boot-1",
		OfTarget: true})
	if got := storetest.State(t, s, "m-1"); got != "active" {
		t.Errorf("onboarded, and the node is %s", got)
	}
}

// A machine that is in no cluster has nothing to drain: its drain ends at once, and the evidence says why.
func TestDrainingNeedsNoCluster(t *testing.T) {
	s := storetest.New(t)
	able(t, s, "m-1")
	op := moveNode(t, s, "m-1", "drain", node.Draining).GetOperationId()
	if got := storetest.State(t, s, "m-1"); got != "draining" {
		t.Errorf("asked for, and the node is %s", got)
	}
	d := storetest.Decide(t, s, op, operation.Evaluate{})
	if d.Phase != operation.Succeeded || !strings.Contains(d.Decision.Op.Evidence["node_drained"], "in no cluster") ||
		storetest.State(t, s, "m-1") != "retired" {
		t.Errorf("%s %v, the node is %s", d.Phase, d.Decision.Op.Evidence, storetest.State(t, s, "m-1"))
	}
	if again := moveAgain(t, s, "m-1", "drain", node.Draining); again != op {
		t.Errorf("a repeat gives %s, want %s", again, op)
	}
}

func moveAgain(t testing.TB, s *store.Store, id, request string, to node.State) string {
	t.Helper()
	op, created, err := s.Nodes.TransitionNode(t.Context(),
		nodestore.TransitionRequest{MachineID: id, RequestID: request, To: to, Actor: "tester"}, storetest.Now())
	if err != nil || created {
		t.Fatalf("repeated: created %t, %v", created, err)
	}
	return op.GetOperationId()
}

// What an older version, or a restored database, has left in a state of work goes to where it needs no owner, once, by
// an operation that says so; what has an owner, or has only just lost it, stays.
func TestRepairOfOwnerlessNodes(t *testing.T) {
	s := storetest.New(t)
	n := 0
	for _, st := range node.States() {
		if !node.InProgress(st) {
			continue
		}
		n++
		id := fmt.Sprintf("m-%d", n)
		storetest.Register(t, s, id)
		if err := storetest.ExecSQL(t, s,
			`UPDATE machines SET node_state = $2, node_state_changed_at = now() - interval '1 hour' WHERE machine_id = $1`, id,
			node.Name(st)); err != nil {
			t.Fatal(err)
		}
	}
	installer(t, s)
	a := serviced(t, s, "m-busy")
	write(t, s, a, "r", 1)
	if early, err := s.Nodes.RepairOwnerless(t.Context(), storetest.Now().Add(-2*time.Hour),
		storetest.Now()); err != nil ||
		len(early) > 0 {
		t.Errorf("too early: %v %v", early, err)
	}
	moved, err := s.Nodes.RepairOwnerless(t.Context(), storetest.Now().Add(-time.Minute), storetest.Now())
	if err != nil || len(moved) != 7 {
		t.Fatalf("%d moved, %v", len(moved), err)
	}
	for _, m := range moved {
		to, _ := node.Ownerless(node.Parse(m.From))
		if m.To != node.Name(to) || storetest.State(t, s, m.MachineID) != m.To {
			t.Errorf("%+v", m)
		}
		storetest.Whole(t, s, m.MachineID, m.OperationID, operation.Succeeded)
		if h := storetest.NodeMoves(t, s, m.MachineID); h[len(h)-1] != m.From+">"+m.To+" system" {
			t.Errorf("history %v", h)
		}
	}
	if again, err := s.Nodes.RepairOwnerless(t.Context(), storetest.Now().Add(time.Hour), storetest.Now()); err != nil ||
		len(again) > 0 {
		t.Errorf("again: %v %v", again, err)
	}
	if got := storetest.State(t, s, "m-busy"); got != "installing" {
		t.Errorf("a node with an owner went %s", got)
	}
	owned(t, s)
}

// Conditions that stand for a node's state follow it, whatever somebody has done to the tables; an admin's word stays.
func TestConditionsAreRecomputed(t *testing.T) {
	s := storetest.New(t)
	for _, id := range []string{"m-1", "m-2", "m-3", "m-4"} {
		storetest.Register(t, s, id)
	}
	for id, st := range map[string]string{"m-1": "retired", "m-2": "quarantined", "m-4": "retired"} {
		if err := storetest.ExecSQL(t, s, `UPDATE machines SET node_state = $2 WHERE machine_id = $1`, id, st); err != nil {
			t.Fatal(err)
		}
	}
	if err := storetest.ExecSQL(
		t,
		s,
		`INSERT INTO machine_conditions (machine_id, type, status, reason, last_transition) VALUES ('m-3', 'Retired', true, 'NodeState', now())`,
	); err != nil {
		t.Fatal(err)
	}
	for _, on := range []bool{true, false} {
		if _, err := s.Operations.SetFlag(t.Context(), "m-4", "Retired", on, "tester", "", storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := s.Nodes.RecomputeConditions(t.Context(), storetest.Now()); err != nil || n != 3 {
		t.Errorf("%d machines, %v", n, err)
	}
	has := func(id string, c fleet.ConditionType) bool {
		return storetest.Condition(storetest.Machine(t, s, id), c) != nil
	}
	if !has("m-1", fleet.RetiredFlag) || !has("m-2", fleet.NeedsIntervention) || has("m-3", fleet.RetiredFlag) ||
		has("m-4", fleet.RetiredFlag) {
		t.Error("the conditions do not follow")
	}
	if n, err := s.Nodes.RecomputeConditions(t.Context(), storetest.Now()); err != nil || n != 0 {
		t.Errorf("again: %d machines, %v", n, err)
	}
}

// Three attempts of one reimage: the node is installing all the while, and install_failed at the end, with the reason.
func TestThreeAttemptsOfOneReimage(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	a := serviced(t, s, "m-1")
	id := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage,
		PlanID: "write"}).GetOperationId()
	at := storetest.Now()
	for i := 1; i <= 3; i++ {
		at = at.Add(time.Minute)
		d, err := s.Operations.Decide(t.Context(), id, operation.Evaluate{}, at)
		if err != nil || d.Command == nil {
			t.Fatalf("attempt %d: %+v %v", i, d, err)
		}
		c := d.Command
		if g, err := s.Operations.Decide(t.Context(), id, storetest.Ask(a, c, uint64(i), 1), at); err != nil ||
			!g.Decision.Grant {
			t.Fatalf("attempt %d: %v %v", i, g, err)
		}
		if got := storetest.State(t, s, "m-1"); got != "installing" {
			t.Fatalf("attempt %d: %s", i, got)
		}
		r := notWritten(a, c)
		r.Retryable = true
		if _, err := s.Operations.Decide(t.Context(), id, r, at); err != nil {
			t.Fatal(err)
		}
		if n := storetest.Machine(t, s, "m-1").GetStatus().GetInstallAttempts(); int(n) != i {
			t.Errorf("%d attempts after failure %d", n, i)
		}
		owned(t, s)
	}
	op, err := s.OperationQueries.GetOperation(t.Context(), id)
	if err != nil || op.GetError().GetCode() != "INSTALL_ATTEMPTS_EXHAUSTED" ||
		op.GetError().GetDetails()["cause"] != "DISK_WRITE_ERROR" || storetest.State(t, s, "m-1") != "install_failed" {
		t.Errorf("%v %v, %s", op.GetError(), err, storetest.State(t, s, "m-1"))
	}
	rows, _, err := s.Machines.NodeHistory(t.Context(), "m-1", 1, 0)
	if err != nil || rows[0].GetMetadata()["error"] != "DISK_WRITE_ERROR: bad disk" ||
		rows[0].GetMetadata()["attempt"] != "3" {
		t.Errorf("%v %v", rows, err)
	}
	if c := storetest.Condition(storetest.Machine(t, s, "m-1"),
		fleet.NeedsIntervention); c.GetReason() != "INSTALL_ATTEMPTS_EXHAUSTED" {
		t.Errorf("condition %v", c)
	}
}

// An installer that reports by itself has an operation for its owner: it is busy, it can be cancelled, and silence ends
// it.
func TestReportedInstallationHasAnOwner(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1", storetest.Reporter)
	pending := func(request string) string {
		t.Helper()
		if storetest.State(t, s, "m-1") == "discovered" {
			moveNode(t, s, "m-1", request, node.Pending)
		}
		if _, err := reported(t, s, node.Started, 0, ""); err != nil {
			t.Fatal(err)
		}
		owned(t, s)
		return storetest.Machine(t, s, "m-1").GetStatus().GetActiveOperationId()
	}
	op := pending("a")
	got, err := s.OperationQueries.GetOperation(t.Context(), op)
	if err != nil || got.GetType() != baremetalv1.Operation_NODE_TRANSITION || got.GetPlanId() != "reported-install" ||
		got.GetWaitReason() != "WAITING_FOR_INSTALLER" {
		t.Fatalf("%v %v", got, err)
	}
	_, _, err = s.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "other",
		Type: fleet.EnterMaintenance}, storetest.Now())
	storetest.WantReason(t, err, "MACHINE_BUSY")
	storetest.Decide(t, s, op, operation.CancelAsked{Actor: "ann"})
	if storetest.State(t, s, "m-1") != "pending" {
		t.Errorf("cancelled, and the node is %s", storetest.State(t, s, "m-1"))
	}
	op = pending("b")
	if _, err := s.Operations.Decide(t.Context(), op, operation.Evaluate{}, storetest.Now().Add(7*time.Hour)); err != nil {
		t.Fatal(err)
	}
	storetest.Whole(t, s, "m-1", op, operation.Failed)
	if st := storetest.Machine(t, s, "m-1").GetStatus(); st.GetInstallAttempts() != 1 ||
		storetest.State(t, s, "m-1") != "pending" || !strings.Contains(st.GetLastInstallError(), "has not reported") {
		t.Errorf("after the silence: %s, %v", storetest.State(t, s, "m-1"), st)
	}
	if h := storetest.NodeMoves(t, s, "m-1"); !slices.Contains(h, "pending>installing node_report") {
		t.Errorf("history %v", h)
	}
	if _, err := s.Operations.SetFlag(t.Context(), "m-1", "RMA", true, "tester", "", storetest.Now()); err != nil {
		t.Fatal(err)
	}
	_, err = reported(t, s, node.Started, 0, "")
	storetest.WantReason(t, err, "MACHINE_BLOCKED")
}

// A machine of a cluster is draining while its pods are moved away, and then retired; where that does not end well it
// is offline, and active again as its agent is there.
func TestDrainingIsTheWorkOfItsCluster(t *testing.T) {
	for outcome, want := range map[operation.Outcome]string{operation.OutcomeSucceeded: "retired",
		operation.OutcomeFailed: "active", operation.OutcomeCanceled: "active"} {
		r := storetest.NewClusterRig(t)
		op := moveNode(t, r.Store, "m-1", "drain", node.Draining).GetOperationId()
		if got := storetest.State(t, r.Store, "m-1"); got != "draining" {
			t.Fatalf("the node is %s", got)
		}
		c := *storetest.Decide(t, r.Store, op, operation.Evaluate{}).Command
		storetest.Grant(t, r.Store, op, c, "st-2", 1)
		if outcome == operation.OutcomeCanceled {
			storetest.Decide(t, r.Store, op, operation.CancelAsked{Actor: "ann"})
		}
		storetest.Decide(t, r.Store, op, operation.Resulted{
			AgentID: r.Site.ID, CommandID: c.ID, Outcome: outcome, Reason: "EXECUTION_FAILED",
			Evidence: map[string]string{evidence.NodeDrained: "m-1"},
		})
		if got := storetest.State(t, r.Store, "m-1"); got != want {
			t.Errorf("%s: the node is %s, want %s", outcome, got, want)
		}
		owned(t, r.Store)
	}
}
