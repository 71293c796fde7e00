package node_test

import (
	"context"
	"strings"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

func reported(t testing.TB, s *store.Store, status string, percent int32, why string) (*baremetalv1.Node, error) {
	t.Helper()
	return s.Nodes.ReportNode(t.Context(), &baremetalv1.ReportNodeRequest{
		MacAddress: storetest.Reporter, Hostname: "h", InstallationStatus: status, InstallationProgress: percent,
		InstallationError: why,
	}, "installer", storetest.Now())
}

// An installer that reports by itself: approval, a failure, the next attempt, the end, verification.
func TestReportsMoveTheNode(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1", storetest.Reporter)
	_, err := reported(t, s, node.Started, 0, "")
	storetest.WantReason(t, err, "REPORT_REFUSED")
	if err := storetest.Transition(s, "m-1", "approve", node.Pending, false); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		status   string
		percent  int32
		state    node.State
		attempts int32
	}{
		{node.Started, 0, node.Installing, 0},
		{node.Progress, 40, node.Installing, 0},
		{node.Failed, 0, node.Installing, 1},
		{node.Started, 0, node.Installing, 1},
		{"", 0, node.Installing, 1},
		{node.Complete, 0, node.Installed, 0},
	} {
		n, err := reported(t, s, step.status, step.percent, "disk not found")
		if err != nil || n.GetState() != step.state || n.GetInstallAttempts() != step.attempts {
			t.Fatalf("%s: %v %v", step.status, n, err)
		}
		if step.status == node.Progress && n.GetLastReport().GetInstallationProgress() != 40 {
			t.Errorf("progress %v", n.GetLastReport())
		}
	}
	_, err = reported(t, s, node.Failed, 0, "")
	storetest.WantReason(t, err, "REPORT_REFUSED")
	if err := storetest.Transition(s, "m-1", "verify", node.Active, false); err != nil {
		t.Fatal(err)
	}
	wantHistory(t, s, "m-1", "discovered>pending admin", "pending>installing node_report",
		"installing>installed node_report", "installed>active admin")
	if c := storetest.Condition(storetest.Machine(t, s, "m-1"), fleet.Provisioned); !c.GetStatus() ||
		c.GetReason() != "VerifiedByAdmin" || c.GetMessage() != "tester" {
		t.Errorf("the system that an admin has verified is %v", c)
	}
	enter := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "enter",
		Type: fleet.EnterMaintenance})
	storetest.Decide(t, s, enter.GetOperationId(), operation.Evaluate{})
	exit := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "exit",
		Type: fleet.ExitMaintenance})
	storetest.Decide(t, s, exit.GetOperationId(), operation.Evaluate{})
	if st := storetest.Machine(t, s, "m-1").GetStatus(); st.GetAttentionReason() != "MACHINE_UNREACHABLE" {
		t.Errorf("in service without an agent it is %s, %s", st.GetEffectiveState(), st.GetAttentionReason())
	}
}

// The third failure ends it, and says in the history what was wrong.
func TestReportsOfThreeFailures(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1", storetest.Reporter)
	if err := storetest.Transition(s, "m-1", "approve", node.Pending, false); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := reported(t, s, node.Started, 0, ""); err != nil {
			t.Fatal(err)
		}
		if _, err := reported(t, s, node.Failed, 0, "disk not found"); err != nil {
			t.Fatal(err)
		}
	}
	rows, _, err := s.Machines.NodeHistory(t.Context(), "m-1", 1, 0)
	if err != nil || rows[0].GetToState() != node.InstallFailed || rows[0].GetMetadata()["error"] != "disk not found" ||
		rows[0].GetMetadata()["attempt"] != "3" {
		t.Errorf("%v %v", rows, err)
	}
	_, err = reported(t, s, node.Started, 0, "")
	storetest.WantReason(t, err, "REPORT_REFUSED")
}

// Where an operation installs, its own evidence decides, and nobody's word.
func TestReportsDoNotDecideForAnOperation(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	a := serviced(t, s, "m-1")
	if _, err := s.Machines.Update(t.Context(), &baremetalv1.Machine{MachineId: "m-1",
		Spec: &baremetalv1.MachineSpec{Provider: "fake", MacAddresses: []string{storetest.Reporter}}}, "tester",
		storetest.Now()); err != nil {
		t.Fatal(err)
	}
	op, c := write(t, s, a, "r", 1)
	for _, status := range []string{node.Started, node.Complete, node.Failed} {
		_, err := reported(t, s, status, 0, "")
		storetest.WantReason(t, err, "REPORT_REFUSED")
	}
	if n, err := reported(t, s, node.Progress, 70, ""); err != nil || n.GetState() != node.Installing {
		t.Errorf("%v %v", n, err)
	}
	storetest.Decide(t, s, op, operation.CancelAsked{Actor: "x"})
	storetest.Decide(t, s, op, operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeCanceled})
	if st := storetest.Machine(t, s, "m-1").GetStatus(); st.GetInstallAttempts() != 0 ||
		st.GetLastInstallError() != "CANCELED_BY_REQUEST" {
		t.Errorf("a cancel counts: %d, %q", st.GetInstallAttempts(), st.GetLastInstallError())
	}
}

func TestReportOfNobody(t *testing.T) {
	s := storetest.New(t)
	_, err := reported(t, s, node.Started, 0, "")
	storetest.WantReason(t, err, "MACHINE_NOT_FOUND")
}

func discovery(t testing.TB, s *store.Store, mac string) {
	t.Helper()
	err := storetest.ExecSQL(
		t,
		s,
		`INSERT INTO discovered_machines (site, mac, segment, first_seen_at, last_seen_at) VALUES ('default', $1::text::macaddr, 'a', now(), now())`,
		mac,
	)
	if err != nil {
		t.Fatal(err)
	}
}

func approval(mac, request, id string) nodestore.ApproveRequest {
	return nodestore.ApproveRequest{
		Site: "default", MAC: mac, RequestID: request, Actor: "tester", Comment: "the new rack", PlanID: "repave",
		Machine: &baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{Group: "g", Rack: "r1"}},
	}
}

// Ten approvals at once, and again, register one machine, which is pending.
func TestApproveOnce(t *testing.T) {
	s := storetest.New(t)
	discovery(t, s, storetest.Reporter)
	machines := make([]string, 10)
	for i, err := range storetest.Together(t, 10, func(ctx context.Context, i int) error {
		op, _, err := s.Nodes.ApproveDiscovered(ctx, approval(storetest.Reporter, "same", ""), storetest.Now())
		machines[i] = op.GetMachineId()
		return err
	}) {
		if err != nil || machines[i] != machines[0] {
			t.Errorf("call %d: %q, %v", i, machines[i], err)
		}
	}
	n, err := s.Nodes.GetNode(t.Context(), machines[0])
	if err != nil || n.GetState() != node.Pending || n.GetPlanId() != "repave" || n.GetGroup() != "g" ||
		n.GetMachine().GetSpec().GetRack() != "r1" ||
		strings.Join(n.GetMachine().GetSpec().GetMacAddresses(), "") != storetest.Reporter {
		t.Errorf("%v %v", n, err)
	}
	wantHistory(t, s, machines[0], "discovered>pending admin")
	if left, err := s.Sites.ListDiscovered(t.Context(), sitestore.DiscoveredFilter{Site: "default",
		Limit: 100}); err != nil ||
		len(left) != 0 {
		t.Errorf("still discovered: %v %v", left, err)
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM machines"); n != 1 {
		t.Errorf("%d machines", n)
	}
	_, _, err = s.Nodes.ApproveDiscovered(t.Context(), approval(storetest.Reporter, "other", ""), storetest.Now())
	storetest.WantReason(t, err, "MAC_ADDRESS_IN_USE")
}

func TestApproveRefuses(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	_, _, err := s.Nodes.ApproveDiscovered(t.Context(), approval(storetest.Reporter, "r", ""), storetest.Now())
	storetest.WantReason(t, err, "DISCOVERY_NOT_FOUND")
	discovery(t, s, storetest.Reporter)
	_, _, err = s.Nodes.ApproveDiscovered(t.Context(), approval(storetest.Reporter, "r", "m-1"), storetest.Now())
	storetest.WantReason(t, err, "NODE_GUARD_FAILED")
	r := approval(storetest.Reporter, "r", "m-2")
	r.PlanID = "no-such-plan"
	_, _, err = s.Nodes.ApproveDiscovered(t.Context(), r, storetest.Now())
	storetest.WantReason(t, err, "PLAN_NOT_FOUND")
	if n := storetest.Count(t, s, "SELECT count(*) FROM machines"); n != 1 {
		t.Errorf("a refused approval left %d machines", n)
	}
}

// A machine that an operator asks to be installed is approved by that.
func TestReimageApproves(t *testing.T) {
	s := storetest.NewMetalRig(t).Store
	storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage,
		Inputs: storetest.Inputs("tiny")})
	wantHistory(t, s, "m-1", "discovered>pending admin")
	storetest.WantReason(t, storetest.Transition(s, "m-1", "busy", node.BootstrapIssued, false), "NODE_TRANSITION_ILLEGAL")
}
