package node_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// installer makes plans of one step that writes an image: "write", "write-again", which waits longer, and
// "write-renamed", which is "write" under another name.
func installer(t testing.TB, s *store.Store) {
	t.Helper()
	for _, id := range []string{"write", "write-again", "write-renamed"} {
		seconds := int32(0)
		if id == "write-again" {
			seconds = 3600
		}
		_, err := s.Catalog.CreatePlan(t.Context(), &baremetalv1.Plan{PlanId: id, Steps: []*baremetalv1.Step{
			{Name: "write", MaxRetries: -1, TimeoutSeconds: seconds,
				Kind: &baremetalv1.Step_Repave{Repave: &baremetalv1.RepaveImage{Image: "img"}}},
		}}, "tester", storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
	}
}

// serviced is a machine in maintenance whose own agent can write disks; its node is active.
func serviced(t testing.TB, s *store.Store, id string) storetest.Enrolled {
	t.Helper()
	storetest.Register(t, s, id)
	a := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-" + id, MachineID: id})
	storetest.Lease(t, s)
	h := a.Hello("st-1", "boot-1")
	h.Capabilities = append(h.Capabilities, "repave")
	storetest.Open(t, s, h)
	storetest.Maintenance(t, s, id)
	return a
}

func wantHistory(t testing.TB, s *store.Store, id string, want ...string) {
	t.Helper()
	if got := storetest.NodeMoves(t, s, id); strings.Join(got, ", ") != strings.Join(want, ", ") {
		t.Errorf("history of %s:\n got %v\nwant %v", id, got, want)
	}
}

// write starts a reimage and grants its command.
func write(
	t testing.TB, s *store.Store, a storetest.Enrolled, request string, seq uint64,
) (id string, c *operation.Command) {
	t.Helper()
	id = storetest.Start(t, s, operationstore.StartRequest{MachineID: a.Machine, RequestID: request, Type: fleet.Reimage,
		PlanID: "write"}).GetOperationId()
	c = storetest.Decide(t, s, id, operation.Evaluate{}).Command
	if d := storetest.Decide(t, s, id, storetest.Ask(a, c, seq, 1)); !d.Decision.Grant {
		t.Fatalf("no grant: %+v", d.Decision.Refusal)
	}
	return id, c
}

func wrote(a storetest.Enrolled, c *operation.Command) operation.Resulted {
	return operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeSucceeded,
		Evidence: map[string]string{"image_digest": "sha256:ab"}}
}

func notWritten(a storetest.Enrolled, c *operation.Command) operation.Resulted {
	return operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeFailed, Reason: "DISK_WRITE_ERROR",
		Message: "bad disk"}
}

var adopted = []string{"discovered>bootstrap_issued admin", "bootstrap_issued>enrolling system",
	"enrolling>active system"}

var reinstalling = []string{"active>reprovision workflow", "reprovision>pending workflow",
	"pending>installing workflow"}

// A node that was in service waits with its new image for an operator to verify it, and every move is of the operation.
// Nothing turns green by itself: the operator's ExitMaintenance is the verification.
func TestReimageOfAnActiveNode(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	a := serviced(t, s, "m-1")
	wantHistory(t, s, "m-1", adopted...)
	id, c := write(t, s, a, "r", 1)
	if got := storetest.State(t, s, "m-1"); got != "installing" {
		t.Fatalf("granted, and the node is %s", got)
	}
	storetest.Decide(t, s, id, wrote(a, c))
	storetest.Whole(t, s, "m-1", id, operation.Succeeded)
	wantHistory(t, s, "m-1", append(append(adopted[:3:3], reinstalling...), "installing>installed workflow")...)
	if n := storetest.Count(t, s,
		"SELECT count(*) FROM node_state_log WHERE triggered_by = 'workflow' AND metadata ->> 'operation_id' = $1",
		id); n != 4 {
		t.Errorf("%d moves name the operation", n)
	}
	exit := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "exit",
		Type: fleet.ExitMaintenance})
	storetest.Decide(t, s, exit.GetOperationId(), operation.Evaluate{})
	if got := storetest.NodeMoves(t, s, "m-1"); got[len(got)-1] != "installed>active admin" {
		t.Errorf("exit maintenance moves it %s", got[len(got)-1])
	}
	if st := storetest.Machine(t, s, "m-1").GetStatus(); !st.GetSchedulable() ||
		st.GetEffectiveState() != baremetalv1.MachineStatus_IDLE {
		t.Errorf("in the end it is %s: %s", st.GetEffectiveState(), st.GetAttentionReason())
	}
	if n := storetest.Count(
		t,
		s,
		"SELECT count(*) FROM node_state_log WHERE to_state = 'active' AND triggered_by = 'admin' AND user_id = 'tester'",
	); n != 1 {
		t.Errorf("%d promotions name who left maintenance", n)
	}
}

// Before anything was granted nothing has happened to a node that is in service.
func TestReimageThatNeverBegan(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	serviced(t, s, "m-1")
	id := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage,
		PlanID: "write"}).GetOperationId()
	storetest.Decide(t, s, id, operation.Evaluate{})
	storetest.Decide(t, s, id, operation.CancelAsked{Actor: "x"})
	wantHistory(t, s, "m-1", adopted...)
}

// A group that asks for verification gets it, one that promotes needs none.
func TestGroupsPromote(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	for _, c := range []struct {
		group   string
		promote bool
		want    string
	}{{"careful", false, "installed"}, {"quick", true, "active"}} {
		if _, err := s.Nodes.SetNodeGroup(t.Context(), &baremetalv1.SetNodeGroupRequest{Group: c.group,
			AutoPromote: c.promote}, "tester", storetest.Now()); err != nil {
			t.Fatal(err)
		}
		id := "m-" + c.group
		a := serviced(t, s, id)
		if _, err := s.Nodes.UpdateNode(t.Context(), id, nodestore.NodeUpdate{Group: &c.group}, "tester",
			storetest.Now()); err != nil {
			t.Fatal(err)
		}
		op, cmd := write(t, s, a, "r", 1)
		storetest.Decide(t, s, op, wrote(a, cmd))
		if got := storetest.State(t, s, id); got != c.want {
			t.Errorf("group %s: %s, want %s", c.group, got, c.want)
		}
	}
	// Another image for an unverified node goes the same way.
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-careful", RequestID: "r2", Type: fleet.Reimage,
		PlanID: "write"}).GetOperationId()
	if c := storetest.Decide(t, s, op, operation.Evaluate{}).Command; c == nil || c.State != operation.Sent {
		t.Errorf("an installed node is not reimaged: %+v", c)
	}
	groups, err := s.Nodes.ListNodeGroups(t.Context(), "", 10)
	if err != nil || len(groups) != 2 || groups[0].GetNodes() != 1 || groups[0].GetAutoPromote() ||
		!groups[1].GetAutoPromote() {
		t.Errorf("groups %v, %v", groups, err)
	}
}

// purge retires a node without a decommission.
func purge(ctx context.Context, s *store.Store, id, request string) error {
	_, _, err := s.Nodes.TransitionNode(ctx, nodestore.TransitionRequest{MachineID: id, RequestID: request,
		To: node.Retired, Purge: true, Actor: "tester"}, storetest.Now())
	return err
}

// Three installations fail for good, each in an operation of its own, and leave no node installing without an owner.
// Then the node waits for a person, who must force another plan.
func TestThreeFailedInstalls(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	a := serviced(t, s, "m-1")
	for i := 1; i <= 3; i++ {
		id, c := write(t, s, a, fmt.Sprint("r", i), uint64(i))
		storetest.Decide(t, s, id, notWritten(a, c))
		st := storetest.Machine(t, s, "m-1").GetStatus()
		want, code := "pending", "DISK_WRITE_ERROR"
		if i == 3 {
			want, code = "install_failed", "INSTALL_ATTEMPTS_EXHAUSTED"
		}
		op, err := s.OperationQueries.GetOperation(t.Context(), id)
		if err != nil || op.GetError().GetCode() != code {
			t.Fatalf("operation %d: %v %v", i, op.GetError(), err)
		}
		if int(st.GetInstallAttempts()) != i || st.GetLastInstallError() != "DISK_WRITE_ERROR: bad disk" ||
			storetest.State(t, s, "m-1") != want {
			t.Fatalf("after %d failures: %d attempts, %q, %s", i, st.GetInstallAttempts(), st.GetLastInstallError(),
				storetest.State(t, s, "m-1"))
		}
	}
	plan := "write"
	if _, err := s.Nodes.UpdateNode(t.Context(), "m-1", nodestore.NodeUpdate{PlanID: &plan}, "tester",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	storetest.WantReason(t, storetest.Transition(s, "m-1", "t1", node.Pending, true), "NODE_GUARD_FAILED")
	plan = "write-again"
	if _, err := s.Nodes.UpdateNode(t.Context(), "m-1", nodestore.NodeUpdate{PlanID: &plan}, "tester",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	storetest.WantReason(t, storetest.Transition(s, "m-1", "t2", node.Pending, false), "NODE_GUARD_FAILED")
	if err := storetest.Transition(s, "m-1", "t3", node.Pending, true); err != nil {
		t.Fatal(err)
	}
	if st := storetest.Machine(t, s, "m-1").GetStatus(); st.GetInstallAttempts() != 0 || st.GetLastInstallError() != "" {
		t.Errorf("the counter stands at %d, %q", st.GetInstallAttempts(), st.GetLastInstallError())
	}
	// The reimage that names no plan runs the node's.
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r5", Type: fleet.Reimage})
	if op.GetPlanId() != "write-again" {
		t.Errorf("ran %s", op.GetPlanId())
	}
	c := storetest.Decide(t, s, op.GetOperationId(), operation.Evaluate{}).Command
	storetest.Decide(t, s, op.GetOperationId(), storetest.Ask(a, c, 9, 1))
	storetest.Decide(t, s, op.GetOperationId(), wrote(a, c))
	if got := storetest.State(t, s, "m-1"); got != "installed" {
		t.Errorf("in the end the node is %s", got)
	}
}

// A controller that dies in the middle of a decision leaves both node and operation unchanged.
func TestNodeMovesAreOfOneDecision(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	tables := append([]string{"node_state_log"}, storetest.Decided...)
	for n, point := range []string{"store.before-apply", "store.before-commit", "store.after-commit"} {
		id := fmt.Sprintf("m-%d", n)
		a := serviced(t, s, id)
		op := storetest.Start(t, s, operationstore.StartRequest{MachineID: id, RequestID: "r", Type: fleet.Reimage,
			PlanID: "write"}).GetOperationId()
		c := storetest.Decide(t, s, op, operation.Evaluate{}).Command
		for _, e := range []operation.Event{storetest.Ask(a, c, 1, 1), notWritten(a, c)} {
			before := storetest.Everything(t, s, tables...)
			scope := failpoint.NewScope()
			scope.Set(point, failpoint.Panic())
			died := storetest.Dies(func() error {
				_, err := s.Operations.Decide(failpoint.With(t.Context(), scope), op, e, storetest.Now())
				return err
			})
			if !errors.Is(died, failpoint.ErrInjected) {
				t.Fatalf("got %v", died)
			}
			if committed := point == "store.after-commit"; committed == (storetest.Everything(t, s, tables...) == before) {
				t.Fatalf("%s, %T: changed %t", point, e, committed)
			}
			if point != "store.after-commit" {
				storetest.Decide(t, s, op, e)
			}
		}
		if st := storetest.Machine(t, s, id).GetStatus(); st.GetInstallAttempts() != 1 ||
			storetest.State(t, s, id) != "pending" {
			t.Errorf("%s: %d attempts, %s", point, st.GetInstallAttempts(), storetest.State(t, s, id))
		}
		wantHistory(t, s, id, append(append(adopted[:3:3], reinstalling...), "installing>pending workflow")...)
	}
}

// Ten requests at once, and each of them again, make one operation and one row.
func TestOneTransitionForManyRequests(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	ops := make([]string, 10)
	for i, err := range storetest.Together(t, 10, func(ctx context.Context, i int) error {
		op, _, err := s.Nodes.TransitionNode(ctx, nodestore.TransitionRequest{MachineID: "m-1", RequestID: "same", To: node.Pending,
			Actor: "tester"}, storetest.Now())
		ops[i] = op.GetOperationId()
		return err
	}) {
		if err != nil || ops[i] == "" || ops[i] != ops[0] {
			t.Errorf("call %d: %q, %v", i, ops[i], err)
		}
	}
	wantHistory(t, s, "m-1", "discovered>pending admin")
	storetest.Whole(t, s, "m-1", ops[0], operation.Succeeded)
	if n := storetest.Count(t, s, "SELECT count(*) FROM audit_log WHERE verb = 'NODE_TRANSITION'"); n != 1 {
		t.Errorf("%d audit rows", n)
	}
	storetest.WantReason(t, storetest.Transition(s, "m-1", "same", node.Retired, false), "REQUEST_ID_REUSED")
}

// Heartbeats that are missed take an active node offline, and bring it back; they touch no other state.
func TestHeartbeatsMoveTheNode(t *testing.T) {
	s := storetest.New(t)
	a := storetest.Live(t, s, "m-1")
	h := a.Hello("st-1", "boot-1")
	storetest.Open(t, s, h)
	beat := func(silentSince time.Time) string {
		t.Helper()
		if err := s.NodeStates.UpdateReachable(t.Context(), silentSince, storetest.Now()); err != nil {
			t.Fatal(err)
		}
		return storetest.State(t, s, "m-1")
	}
	at := storetest.Now()
	if beat(at.Add(-time.Minute)) != "active" || beat(at.Add(time.Minute)) != "offline" ||
		beat(at.Add(time.Minute)) != "offline" {
		t.Fatal("wrong without heartbeats")
	}
	if err := s.Sessions.FlushHeartbeats(t.Context(),
		map[string]time.Time{h.SessionID: at.Add(2 * time.Minute)}); err != nil {
		t.Fatal(err)
	}
	if got := beat(at.Add(time.Minute)); got != "active" {
		t.Errorf("%s after a heartbeat", got)
	}
	beat(at.Add(time.Hour))
	storetest.Open(t, s, a.Hello("st-1", "boot-1"))
	wantHistory(t, s, "m-1", append(adopted[:3:3], "active>offline system", "offline>active system",
		"active>offline system", "offline>active system")...)
	if err := purge(t.Context(), s, "m-1", "out"); err != nil {
		t.Fatal(err)
	}
	if got := beat(at.Add(3 * time.Hour)); got != "retired" {
		t.Errorf("a retired node went %s", got)
	}
}

// The work of a state starts with the move, work in progress is not started twice, and lost work begins again.
func TestTransitionsStartTheirWork(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	serviced(t, s, "m-1")
	mark := func(request string) *baremetalv1.Operation {
		t.Helper()
		op, _, err := s.Nodes.TransitionNode(t.Context(), nodestore.TransitionRequest{MachineID: "m-1", RequestID: request,
			To: node.Reprovision, ImageRef: "img", Actor: "tester"}, storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
		return op
	}
	first := mark("a")
	if first.GetType() != baremetalv1.Operation_REIMAGE || storetest.State(t, s, "m-1") != "reprovision" {
		t.Fatalf("%v, %s", first, storetest.State(t, s, "m-1"))
	}
	if again := mark("b"); again.GetOperationId() != first.GetOperationId() {
		t.Errorf("resuming live work started %s", again.GetOperationId())
	}
	storetest.Decide(t, s, first.GetOperationId(), operation.CancelAsked{Actor: "x"})
	if got := storetest.State(t, s, "m-1"); got != "pending" {
		t.Errorf("cancelled before it began, and the node is %s", got)
	}
	storetest.WantReason(t, storetest.Transition(s, "m-1", "c", node.Deprovisioning, false), "NODE_TRANSITION_ILLEGAL")
}

// What a dry run answers is not stored.
func TestDryRunStoresNothing(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	before := storetest.Everything(t, s, append([]string{"node_state_log"}, storetest.Decided...)...)
	op, created, err := s.Nodes.TransitionNode(t.Context(),
		nodestore.TransitionRequest{MachineID: "m-1", RequestID: "r", To: node.Pending, DryRun: true}, storetest.Now())
	if err != nil || created || op.GetOperationId() != "" || op.GetParams()["node_state"] != "pending" {
		t.Errorf("%v %t %v", op, created, err)
	}
	if storetest.Everything(t, s, append([]string{"node_state_log"}, storetest.Decided...)...) != before {
		t.Error("a dry run changed something")
	}
}

// A deleted identity is final; the same hardware comes back as another record.
func TestDeletedIsFinal(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1", "52:54:00:00:00:01")
	if _, err := s.Nodes.Delete(t.Context(), "m-1", "tester", false, storetest.Now()); err != nil {
		t.Fatal(err)
	}
	wantHistory(t, s, "m-1", "discovered>deleted admin")
	for _, to := range node.States() {
		if to != node.Deleted {
			storetest.WantReason(t, storetest.Transition(s, "m-1", "back-to-"+node.Name(to), to, true), "NODE_IDENTITY_DELETED")
		}
	}
	_, err := s.Nodes.UpdateNode(t.Context(), "m-1", nodestore.NodeUpdate{}, "tester", storetest.Now())
	storetest.WantReason(t, err, "NODE_IDENTITY_DELETED")
	storetest.Register(t, s, "m-2", "52:54:00:00:00:01")
}

// The condition Retired follows the states that are out of the inventory.
func TestRetiredFollowsTheState(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	if err := storetest.Transition(s, "m-1", "out", node.Retired, false); err != nil {
		t.Fatal(err)
	}
	if storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.RetiredFlag) == nil {
		t.Error("not blocked")
	}
	if err := storetest.Transition(s, "m-1", "back", node.Offline, false); err != nil {
		t.Fatal(err)
	}
	if storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.RetiredFlag) != nil {
		t.Error("still blocked")
	}
	rows, total, err := s.Machines.NodeHistory(t.Context(), "m-1", 1, 1)
	if err != nil || total != 2 || len(rows) != 1 || rows[0].GetComment() != "because" || rows[0].GetUserId() != "tester" {
		t.Errorf("%v %d %v", rows, total, err)
	}
}
