package operation_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	fleetv1 "github.com/ingot-metal/ingot/api/fleet/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	sessionstore "github.com/ingot-metal/ingot/controller/store/session"
	sitestore "github.com/ingot-metal/ingot/controller/store/site"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// TestTransitionLogHasItsColumns: each row says from where, to where, by whom and when, and the node says when it was
// moved.
func TestTransitionLogHasItsColumns(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1", storetest.Reporter)
	at := storetest.Now().Add(time.Hour)
	_, _, err := s.Nodes.TransitionNode(t.Context(), nodestore.TransitionRequest{MachineID: "m-1", RequestID: "r",
		To: node.Pending, Actor: "tester"}, at)
	if err != nil {
		t.Fatal(err)
	}
	later := at.Add(time.Minute)
	report := &baremetalv1.ReportNodeRequest{MacAddress: storetest.Reporter, InstallationStatus: node.Started}
	if _, err := s.Nodes.ReportNode(t.Context(), report, "installer", later); err != nil {
		t.Fatal(err)
	}
	rows, total, err := s.Machines.NodeHistory(t.Context(), "m-1", 10, 0)
	if err != nil || total != 2 || len(rows) != 2 {
		t.Fatalf("%d rows of %d, %v", len(rows), total, err)
	}
	for i, want := range []struct {
		from, to node.State
		by       string
		at       time.Time
	}{{node.Pending, node.Installing, "node_report", later}, {node.Discovered, node.Pending, "admin", at}} {
		r := rows[i]
		if r.GetId() == "" || r.GetFromState() != want.from || r.GetToState() != want.to || r.GetTriggeredBy() != want.by ||
			!r.GetCreatedAt().AsTime().Equal(want.at) {
			t.Errorf("row %v, want %+v", r, want)
		}
	}
	if rows[0].GetId() == rows[1].GetId() {
		t.Error("two rows have one id")
	}
	if moved := storetest.Machine(t, s, "m-1").GetStatus().GetNodeStateChangedAt().AsTime(); !moved.Equal(later) {
		t.Errorf("the state changed at %v, the node says %v", later, moved)
	}
	required := storetest.Count(t, s,
		`SELECT count(*) FROM information_schema.columns WHERE table_name = 'node_state_log' AND is_nullable = 'NO'
		AND column_name IN ('id', 'machine_id', 'from_state', 'to_state', 'triggered_by', 'created_at')`)
	if required != 6 {
		t.Errorf("%d of 6 columns are required", required)
	}
}

// TestReportsKeepEveryField: what an installer says of its machine can be read back, the last word of it.
func TestReportsKeepEveryField(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1", storetest.Reporter)
	if err := storetest.Transition(s, "m-1", "approve", node.Pending, false); err != nil {
		t.Fatal(err)
	}
	at := storetest.Now()
	for _, host := range []string{"before", "web-1"} {
		_, err := s.Nodes.ReportNode(t.Context(), &baremetalv1.ReportNodeRequest{
			MacAddress: storetest.Reporter, IpAddress: "10.0.0.7", Hostname: host, Vendor: "ACME", Model: "X1",
			SerialNumber: "SN1",
			SystemUuid:   "4c4c4544-0000-1000-8000-000000000001",
		}, "installer", at)
		if err != nil {
			t.Fatal(err)
		}
	}
	n, err := s.Nodes.GetNode(t.Context(), "m-1")
	want := &baremetalv1.NodeReport{
		MacAddress: storetest.Reporter, IpAddress: "10.0.0.7", Hostname: "web-1", Vendor: "ACME", Model: "X1",
		SerialNumber: "SN1",
		SystemUuid:   "4c4c4544-0000-1000-8000-000000000001", ReportedAt: timestamppb.New(at),
	}
	if err != nil || !proto.Equal(n.GetLastReport(), want) || n.GetState() != node.Pending {
		t.Errorf("%v, %v; want %v", n, err, want)
	}
}

// TestBMCReachableFollowsTheProbes: it holds while the BMC answers, and says why it does not.
func TestBMCReachableFollowsTheProbes(t *testing.T) {
	r := storetest.NewMetalRig(t)
	saw := func(reachable bool, reason string) {
		t.Helper()
		_, err := r.Store.Sites.RecordSite(t.Context(), sitestore.SiteReport{Site: "lab", AgentID: r.Site.ID,
			LeasesSame: true, BMCs: []*fleetv1.BMCObservation{{MachineId: "m-1", Reachable: reachable, PowerState: "on",
				Reason: reason, SeenAt: timestamppb.New(storetest.Now())}}}, storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
	}
	saw(true, "")
	if c := storetest.Condition(storetest.Machine(t, r.Store, "m-1"), fleet.BMCReachable); c == nil ||
		c.GetReason() == "" || c.GetLastTransition() == nil {
		t.Errorf("a BMC that answers: %v", c)
	}
	saw(false, "BMC_UNREACHABLE")
	m := storetest.Machine(t, r.Store, "m-1")
	if c := storetest.Condition(m, fleet.BMCReachable); c != nil || m.GetStatus().GetPowerState() != "unknown" {
		t.Errorf("a silent BMC: %v, power %s", c, m.GetStatus().GetPowerState())
	}
	for _, c := range m.GetStatus().GetConditions() {
		if c.GetType() == string(fleet.BMCReachable) && c.GetReason() != "BMC_UNREACHABLE" {
			t.Errorf("condition %v", c)
		}
	}
	saw(true, "")
	if storetest.Condition(storetest.Machine(t, r.Store, "m-1"), fleet.BMCReachable) == nil {
		t.Error("a BMC that answers again is not reachable")
	}
}

// TestAnEmptyInventoryChangesNothing: it says that the agent does not know yet, and neither what was known nor what is
// under way is given up for it.
func TestAnEmptyInventoryChangesNothing(t *testing.T) {
	s := storetest.New(t)
	a, id, c := storetest.Rebooting(t, s, "m-1")
	if d := storetest.Decide(t, s, id, storetest.Ask(a, c, 1, 1)); !d.Decision.Grant {
		t.Fatalf("no grant: %+v", d.Decision.Refusal)
	}
	says := func(seq uint64, document string) {
		t.Helper()
		k := sessionstore.EventKey{AgentID: a.ID, StateID: "st-1", Seq: seq}
		if err := s.Sessions.InventoryEvent(t.Context(), k, "m-1", "h", []byte(document), false,
			storetest.Now()); err != nil {
			t.Fatal(err)
		}
	}
	says(1, `{"cpu": {"threads": 8}}`)
	before := storetest.Everything(t, s, "operations", "operation_steps", "commands")
	says(2, "")
	says(3, "{")
	h := a.Hello("st-1", "boot-1") // it names no command that it holds
	h.LastGrantSeq, h.LastEventSeq = 1, 3
	storetest.Open(t, s, h)
	got, err := s.Machines.GetInventory(t.Context(), "m-1", 1)
	if err != nil || string(got.GetDocument()) == "" || got.GetHash() != "h" {
		t.Errorf("the inventory is %v, %v", got, err)
	}
	if after := storetest.Everything(t, s, "operations", "operation_steps", "commands"); after != before {
		t.Errorf("it changed\n%s\nto\n%s", before, after)
	}
	if active := storetest.Machine(t, s, "m-1").GetStatus().GetActiveOperationId(); active != id {
		t.Errorf("the active operation is %q", active)
	}
}
