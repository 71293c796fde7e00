package machine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/testkit"
)

func TestRegisterNormalizesAndIgnoresStatus(t *testing.T) {
	r := publictest.NewRig(t)
	m := r.Register(&pb.Machine{
		Labels: map[string]string{"rack": "r1", "example.com/tier": ""},
		Spec: &pb.MachineSpec{
			MacAddresses: []string{"52-54-00-AA-00-01", "5254.00aa.0002", "525400AA0003"}, SshEndpoint: "[2001:db8::1]:22",
			BmcEndpoint: "10.0.0.9",
		},
		Status: &pb.MachineStatus{Phase: pb.MachineStatus_READY},
	})
	if !strings.HasPrefix(m.GetMachineId(), "m-") {
		t.Errorf("made id %q", m.GetMachineId())
	}
	if got := m.GetSpec().GetMacAddresses(); !slices.Equal(got,
		[]string{"52:54:00:aa:00:01", "52:54:00:aa:00:02", "52:54:00:aa:00:03"}) {
		t.Errorf("MACs %v", got)
	}
	if m.GetStatus().GetPhase() != pb.MachineStatus_FACTORY_READY {
		t.Errorf("a client wrote phase %v", m.GetStatus().GetPhase())
	}
	got, err := r.Machines.GetMachine(t.Context(), &pb.GetMachineRequest{MachineId: m.GetMachineId()})
	if err != nil || got.GetLabels()["rack"] != "r1" {
		t.Errorf("read back %v, %v", got, err)
	}
}

// ids walks a filter to its end with pages of one size.
func ids(r *publictest.Rig, filter string, size int32) []string {
	r.T.Helper()
	var out []string
	for token := ""; ; {
		p, err := r.Machines.ListMachines(r.T.Context(),
			&pb.ListMachinesRequest{Filter: filter, PageSize: size, PageToken: token})
		if err != nil {
			r.T.Fatalf("list %q: %v", filter, err)
		}
		if len(p.GetMachines()) > int(size) || len(p.GetMachines()) == 0 && token != "" && p.GetNextPageToken() != "" {
			r.T.Fatalf("list %q: a page of %d", filter, len(p.GetMachines()))
		}
		for _, m := range p.GetMachines() {
			out = append(out, m.GetMachineId())
		}
		if token = p.GetNextPageToken(); token == "" {
			return out
		}
	}
}

func TestFilters(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	flag := func(id, name string) {
		t.Helper()
		if _, err := r.Admin.SetMachineFlag(ctx, &pb.SetMachineFlagRequest{MachineId: id, Flag: name,
			Value: true}); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"m-new", "m-maint", "m-busy", "m-rma", "m-retired", "m-both"} {
		r.Register(&pb.Machine{MachineId: id})
	}
	r.Register(&pb.Machine{MachineId: "m-spec", Labels: map[string]string{"env": "prod", "example.com/x": "y"},
		Spec: &pb.MachineSpec{
			Provider: "fake", Site: "s2", Region: "eu", Rack: "r42", Group: "g1"}})
	r.Maintenance("m-maint")
	r.Enter("m-busy", "q")
	flag("m-rma", "RMA")
	flag("m-retired", "Retired")
	flag("m-both", "RMA")
	flag("m-both", "Retired")
	cases := []struct{ filter, want string }{
		{"phase=MAINTENANCE", "m-maint"},
		{"phase=PROVISIONING", "m-busy"},
		{"phase=RMA", "m-both m-rma"},
		{"phase=RETIRED", "m-both m-retired"},
		{"phase=IN_SERVICE", ""},
		{"effective_state=BLOCKED", "m-both m-retired m-rma"},
		{"effective_state=BUSY", "m-busy"},
		{"effective_state=MAINTENANCE", "m-maint"},
		{"effective_state=MAINTENANCE_IDLE", "m-maint"},
		{"effective_state=NEW", "m-new m-spec"},
		{"effective_state=IDLE", ""},
		{"effective_state=ATTENTION", ""},
		{"effective_state=NEW,phase=MAINTENANCE", ""},
		{"effective_state=NEW,phase=PROVISIONING", ""},
		{"effective_state=BLOCKED,conditions.RMA=false", "m-retired"},
		{"node_state=discovered,site=s2", "m-spec"},
		{"node_state=NODE_STATE_DISCOVERED,region=eu", "m-spec"},
		{"provider=fake,rack=r42,group=g1", "m-spec"},
		{"labels.env=prod", "m-spec"},
		{"labels.example.com/x=y", "m-spec"},
		{"labels.env=test", ""},
		{"conditions.RMA=true,machine_id=m-rma", "m-rma"},
		{"state=NEW,rack=r42", "m-spec"},
		{"rack!=r42,state=NEW", "m-new"},
		{"rack=*", "m-spec"},
		{"rack in (r1, r4*)", "m-spec"},
		{"rack not in (r1, r2), phase=MAINTENANCE", "m-maint"},
		{"phase in (RMA, RETIRED, MAINTENANCE)", "m-both m-maint m-retired m-rma"},
		{"phase in (FACTORY_READY, RMA),state!=NEW", "m-both m-busy m-retired m-rma"},
		{"phase!=FACTORY_READY", "m-maint"},
		{"phase!=RMA,state=BLOCKED", "m-retired"},
		{"phase!=PROVISIONING,state in (BUSY, MAINTENANCE)", "m-maint"},
		{"state in (BUSY, BLOCKED, BUSY)", "m-both m-busy m-retired m-rma"},
		{"state not in (BUSY, BLOCKED)", "m-maint m-new m-spec"},
		{"node_state!=discovered", ""},
		{"conditions.RMA!=true,conditions.Retired=true", "m-retired"},
		{"label.env=*", "m-spec"},
		{"labels.env!=prod,site!=s2,state=NEW", "m-new"},
		{"labels.example.com/x in (y, z)", "m-spec"},
		{"machine_id in (m-new, m-rma, m-none)", "m-new m-rma"},
		{"machine_id=m-r*", "m-retired m-rma"},
		{"machine_id=m-r*,machine_id!=m-rma", "m-retired"},
		{"machine_id in (m-new, m-spec),rack=r42", "m-spec"},
		{"", "m-both m-busy m-maint m-new m-retired m-rma m-spec"},
	}
	for _, c := range cases {
		for _, size := range []int32{1, 2, 100} {
			got := ids(r, c.filter, size)
			slices.Sort(got)
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("%q by %d: %s, wanted %s", c.filter, size, s, c.want)
			}
		}
	}
}

func TestPageTokensBelongToTheirFilter(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 5 {
		r.Register(publictest.NewMachine(i))
	}
	first, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{PageSize: 2, Filter: "phase=FACTORY_READY"})
	if err != nil || first.GetNextPageToken() == "" {
		t.Fatalf("first page: %v %v", first, err)
	}
	_, err = r.Machines.ListMachines(t.Context(),
		&pb.ListMachinesRequest{PageSize: 2, PageToken: first.GetNextPageToken()})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_PAGE_TOKEN", "page_token")
	_, err = r.Nodes.ListNodes(t.Context(), &pb.ListNodesRequest{Filter: "phase=FACTORY_READY",
		PageToken: first.GetNextPageToken()})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_PAGE_TOKEN", "page_token")
}

// TestWalkThenReconcile: what changes during a walk is in the reconcile from the cursor that every page carries.
func TestWalkThenReconcile(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 5 {
		r.Register(publictest.NewMachine(i))
	}
	first, err := r.Machines.ListMachines(t.Context(), &pb.ListMachinesRequest{PageSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Machines.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{MachineId: "m-000"}); err != nil {
		t.Fatal(err)
	}
	second, err := r.Machines.ListMachines(t.Context(),
		&pb.ListMachinesRequest{PageSize: 2, PageToken: first.GetNextPageToken()})
	if err != nil || second.GetNextCursor() != first.GetNextCursor() {
		t.Fatalf("the cursor changed on the way: %v %v", second, err)
	}
	// A transaction of another test holds pages back while it is open, as the cursor must: the deletion comes after it.
	testkit.Eventually(t, 20*time.Second, func() bool {
		return changes(r, &pb.ListMachinesRequest{Cursor: second.GetNextCursor(), PageSize: 1})["m-000"].GetDeletedAt() != nil
	}, "the deletion is missing after the cursor")
	testkit.Eventually(t, 20*time.Second, func() bool {
		return changes(r, &pb.ListMachinesRequest{UpdatedSince: first.GetSafeUpdatedSince(), PageSize: 1})["m-000"] != nil
	}, "the deletion is missing since %v", first.GetSafeUpdatedSince())
	one := changes(r, &pb.ListMachinesRequest{Cursor: second.GetNextCursor(), Filter: "machine_id=m-003"})
	if one["m-000"] != nil {
		t.Errorf("the filter let through %v", one)
	}
}

// changes reconciles until there is no more.
func changes(r *publictest.Rig, q *pb.ListMachinesRequest) map[string]*pb.Machine {
	r.T.Helper()
	out := map[string]*pb.Machine{}
	for {
		p, err := r.Machines.ListMachines(r.T.Context(), q)
		if err != nil {
			r.T.Fatalf("reconcile: %v", err)
		}
		for _, m := range p.GetMachines() {
			out[m.GetMachineId()] = m
		}
		if !p.GetMore() {
			return out
		}
		q.Cursor, q.UpdatedSince = p.GetNextCursor(), nil
	}
}

func TestOperationLists(t *testing.T) {
	r := publictest.NewRig(t)
	var want []string
	for i := range 5 {
		r.Register(publictest.NewMachine(i))
		want = append(want, r.Enter(publictest.NewMachine(i).GetMachineId(), "q").GetOperationId())
	}
	slices.Reverse(want)
	var ops, runs []string
	for token := ""; len(ops) == 0 || token != ""; {
		p, err := r.Operations.ListOperations(t.Context(),
			&pb.ListOperationsRequest{PageSize: 2, PageToken: token, Filter: "type=ENTER_MAINTENANCE,phase=PENDING"})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range p.GetOperations() {
			ops = append(ops, o.GetOperationId())
		}
		token = p.GetNextPageToken()
	}
	for token := ""; len(runs) == 0 || token != ""; {
		p, err := r.Runs.ListRuns(t.Context(), &pb.ListRunsRequest{PageSize: 3, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range p.GetRuns() {
			runs = append(runs, o.GetRunId())
		}
		token = p.GetNextPageToken()
	}
	if !slices.Equal(ops, want) || !slices.Equal(runs, want) {
		t.Errorf("operations %v\nruns %v\nwanted %v", ops, runs, want)
	}
	p, err := r.Operations.ListOperations(t.Context(), &pb.ListOperationsRequest{
		Filter: fmt.Sprintf("machine_id=m-003,request_id=q,created_before=%s",
			time.Now().Add(time.Hour).UTC().Format(time.RFC3339))})
	if err != nil || len(p.GetOperations()) != 1 || p.GetOperations()[0].GetMachineId() != "m-003" {
		t.Errorf("filtered %v %v", p, err)
	}
	one, err := r.Runs.ListRuns(t.Context(), &pb.ListRunsRequest{Filter: "run_id=" + want[0] + ",type=REPAVE"})
	if err != nil || len(one.GetRuns()) != 0 {
		t.Errorf("another type matched: %v %v", one, err)
	}
}

func TestNodes(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(&pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{Group: "g"}})
	if _, err := r.Admin.IssueBootstrapToken(t.Context(), &pb.IssueBootstrapTokenRequest{MachineId: "m-1"}); err != nil {
		t.Fatal(err)
	}
	n, err := r.Nodes.GetNode(t.Context(), &pb.GetNodeRequest{NodeId: "m-1"})
	if err != nil || n.GetState() != pb.NodeState_NODE_STATE_BOOTSTRAP_ISSUED || n.GetGroup() != "g" {
		t.Errorf("node %v %v", n, err)
	}
	all, err := r.Nodes.ListNodes(t.Context(), &pb.ListNodesRequest{Filter: "node_state=bootstrap_issued"})
	if err != nil || len(all.GetNodes()) != 1 {
		t.Errorf("nodes %v %v", all, err)
	}
	h, err := r.Nodes.GetNodeHistory(t.Context(), &pb.GetNodeHistoryRequest{NodeId: "m-1"})
	if err != nil || h.GetTotal() != 1 || h.GetData()[0].GetFromState() != pb.NodeState_NODE_STATE_DISCOVERED {
		t.Errorf("history %v %v", h, err)
	}
}
