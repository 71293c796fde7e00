package node_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/domain/node"
)

func moving(q *pb.TransitionNodeRequest) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error { return only(r.Nodes.TransitionNode(ctx, q)) }
}

func updating(q *pb.UpdateNodeRequest) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error { return only(r.Nodes.UpdateNode(ctx, q)) }
}

func reporting(q *pb.ReportNodeRequest) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error { return only(r.Nodes.ReportNode(ctx, q)) }
}

func approving(q *pb.ApproveDiscoveredRequest) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error { return only(r.Nodes.ApproveDiscovered(ctx, q)) }
}

const nodeMAC = "52:54:00:00:00:01"

var badNodes = []badCall{
	{"update nothing", invalid, "INVALID_FIELD", "update_mask", updating(&pb.UpdateNodeRequest{NodeId: "m-1"})},
	{"update of a field that there is not", invalid, "INVALID_FIELD", "update_mask.paths[0]",
		updating(&pb.UpdateNodeRequest{NodeId: "m-1", UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"state"}}})},
	{"unknown plan", notFound, "PLAN_NOT_FOUND", "", updating(&pb.UpdateNodeRequest{NodeId: "m-1", PlanId: "none"})},
	{"plan that installs nothing", invalid, "INVALID_FIELD", "plan_id",
		updating(&pb.UpdateNodeRequest{NodeId: "m-1", PlanId: "enter-maintenance"})},
	{"update of nobody", notFound, "MACHINE_NOT_FOUND", "", updating(&pb.UpdateNodeRequest{NodeId: "m-no", Group: "g"})},
	{"update of a deleted node", precondition, "NODE_IDENTITY_DELETED", "",
		updating(&pb.UpdateNodeRequest{NodeId: "m-gone", Group: "g"})},

	{
		"no request id for work",
		invalid,
		"REQUEST_ID_REQUIRED",
		"request_id",
		moving(publictest.Move("m-1", "", node.Reprovision)),
	},
	{"no request id, and not in the table", precondition, "NODE_TRANSITION_ILLEGAL", "",
		moving(publictest.Move("m-1", "", node.Active))},
	{"no request id, and where it was before", precondition, "NODE_TRANSITION_ILLEGAL", "",
		moving(publictest.Move("m-pending", "", node.Discovered))},
	{"no state", invalid, "INVALID_FIELD", "state", moving(publictest.Move("m-1", "a", 0))},
	{"a state that there is not", invalid, "INVALID_FIELD", "state", moving(publictest.Move("m-1", "a", 99))},
	{"an image for a move that writes none", invalid, "INVALID_FIELD", "image_ref",
		moving(&pb.TransitionNodeRequest{NodeId: "m-1", RequestId: "a", State: node.Pending, ImageRef: "img"})},
	{"nobody moves", notFound, "MACHINE_NOT_FOUND", "", moving(publictest.Move("m-no", "a", node.Pending))},
	{"not in the table", precondition, "NODE_TRANSITION_ILLEGAL", "", moving(publictest.Move("m-1", "a", node.Active))},
	{
		"not an admin's move",
		precondition,
		"NODE_TRANSITION_ILLEGAL",
		"",
		moving(publictest.Move("m-pending", "a", node.Installing)),
	},
	{"deleted by a move", precondition, "NODE_GUARD_FAILED", "", moving(publictest.Move("m-1", "a", node.Deleted))},
	{"deleted is final", precondition, "NODE_IDENTITY_DELETED", "", moving(publictest.Move("m-gone", "a", node.Offline))},
	{"nothing to drain", precondition, "NODE_TRANSITION_ILLEGAL", "", moving(publictest.Move("m-1", "a", node.Draining))},
	{
		"busy, and no guard speaks of it",
		precondition,
		"MACHINE_BUSY",
		"",
		moving(publictest.Move("m-busy", "a", node.Pending)),
	},
	{"a request id of other work", exists, "REQUEST_ID_REUSED", "node_state",
		moving(publictest.Move("m-pending", "approve", node.Retired))},
	{"history of nobody", notFound, "MACHINE_NOT_FOUND", "", func(ctx context.Context, r *rig) error {
		return only(r.Nodes.GetNodeHistory(ctx, &pb.GetNodeHistoryRequest{NodeId: "m-no"}))
	}},
	{"run of a transition", invalid, "INVALID_FIELD", "type", func(ctx context.Context, r *rig) error {
		return only(r.Runs.StartRun(ctx, &pb.StartRunRequest{MachineId: "m-1", RequestId: "a", Type: "NODE_TRANSITION"}))
	}},

	{"report without an address", invalid, "INVALID_FIELD", "mac_address", reporting(&pb.ReportNodeRequest{})},
	{"report of nobody", notFound, "MACHINE_NOT_FOUND", "mac_address",
		reporting(&pb.ReportNodeRequest{MacAddress: "52:54:00:00:00:77"})},
	{"report of an unknown status", invalid, "INVALID_FIELD", "installation_status",
		reporting(&pb.ReportNodeRequest{MacAddress: nodeMAC, InstallationStatus: "paused"})},
	{"report of too much", invalid, "INVALID_FIELD", "installation_progress",
		reporting(&pb.ReportNodeRequest{MacAddress: nodeMAC, InstallationProgress: 101})},
	{"report from nowhere", invalid, "INVALID_FIELD", "ip_address",
		reporting(&pb.ReportNodeRequest{MacAddress: nodeMAC, IpAddress: "here"})},
	{"report that does not fit", precondition, "REPORT_REFUSED", "",
		reporting(&pb.ReportNodeRequest{MacAddress: nodeMAC, InstallationStatus: "complete"})},

	{"approve without an address", invalid, "INVALID_FIELD", "mac_address",
		approving(&pb.ApproveDiscoveredRequest{RequestId: "a"})},
	{"approve without a request id", invalid, "REQUEST_ID_REQUIRED", "request_id",
		approving(&pb.ApproveDiscoveredRequest{MacAddress: "52:54:00:00:00:66"})},
	{"approve what nobody has seen", notFound, "DISCOVERY_NOT_FOUND", "mac_address",
		approving(&pb.ApproveDiscoveredRequest{RequestId: "a", MacAddress: "52:54:00:00:00:66"})},
	{"approve what is registered", exists, "MAC_ADDRESS_IN_USE", "mac_address",
		approving(&pb.ApproveDiscoveredRequest{RequestId: "a", MacAddress: nodeMAC})},
	{"approve under a bad id", invalid, "INVALID_FIELD", "machine_id",
		approving(&pb.ApproveDiscoveredRequest{RequestId: "a", MacAddress: nodeMAC, MachineId: "No!"})},
	{"group without a name", invalid, "INVALID_FIELD", "group", func(ctx context.Context, r *rig) error {
		return only(r.Nodes.SetNodeGroup(ctx, &pb.SetNodeGroupRequest{}))
	}},
	{"groups by a bad token", invalid, "INVALID_PAGE_TOKEN", "page_token", func(ctx context.Context, r *rig) error {
		return only(r.Nodes.ListNodeGroups(ctx, &pb.ListNodeGroupsRequest{PageToken: "x"}))
	}},
}

// Every refusal of a node's life has its code and its reason, and changes nothing.
func TestBadNodeCalls(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(&pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{MacAddresses: []string{nodeMAC}}})
	r.Register(&pb.Machine{MachineId: "m-busy"})
	r.Enter("m-busy", "first")
	r.Register(&pb.Machine{MachineId: "m-pending"})
	if _, err := r.Nodes.TransitionNode(t.Context(), publictest.Move("m-pending", "approve", node.Pending)); err != nil {
		t.Fatal(err)
	}
	r.Register(&pb.Machine{MachineId: "m-gone"})
	if _, err := r.Machines.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{MachineId: "m-gone"}); err != nil {
		t.Fatal(err)
	}
	before := r.Everything()
	for _, c := range badNodes {
		t.Run(c.name, func(t *testing.T) { publictest.Wants(t, c.call(t.Context(), r), c.kind, c.reason, c.field) })
	}
	if after := r.Everything(); after != before {
		t.Errorf("refused calls changed something:\n%s\n%s", before, after)
	}
}

// A node's whole way by the API: approval, another group, retirement, reuse; each read back.
func TestNodeLifeOverTheAPI(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(&pb.Machine{MachineId: "m-1"})
	for _, to := range []pb.NodeState{node.Pending, node.Retired, node.Offline} {
		q := publictest.Move("m-1", "to-"+node.Name(to), to)
		q.Comment = "as planned"
		op, err := r.Nodes.TransitionNode(t.Context(), q)
		if err != nil || op.GetPhase() != pb.Operation_SUCCEEDED || op.GetType() != pb.Operation_NODE_TRANSITION {
			t.Fatalf("to %s: %v %v", node.Name(to), op, err)
		}
		if again, err := r.Nodes.TransitionNode(t.Context(), q); err != nil || again.GetOperationId() != op.GetOperationId() {
			t.Errorf("repeated: %v %v", again, err)
		}
	}
	n, err := r.Nodes.UpdateNode(t.Context(), &pb.UpdateNodeRequest{NodeId: "m-1", PlanId: "repave", Group: "g"})
	if err != nil || n.GetPlanId() != "repave" || n.GetGroup() != "g" || len(n.GetNextStates()) == 0 {
		t.Errorf("%v %v", n, err)
	}
	n, err = r.Nodes.UpdateNode(t.Context(),
		&pb.UpdateNodeRequest{NodeId: "m-1", UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"plan_id"}}})
	if err != nil || n.GetPlanId() != "" || n.GetGroup() != "g" {
		t.Errorf("cleared: %v %v", n, err)
	}
	h, err := r.Nodes.GetNodeHistory(t.Context(), &pb.GetNodeHistoryRequest{NodeId: "m-1", Limit: 2})
	if err != nil || h.GetTotal() != 3 || len(h.GetData()) != 2 || h.GetData()[0].GetToState() != node.Offline ||
		h.GetData()[0].GetComment() != "as planned" {
		t.Errorf("%v %v", h, err)
	}
}

func TestNodeGroupsArePaged(t *testing.T) {
	r := publictest.NewRig(t)
	for _, g := range []string{"a", "b", "c"} {
		if _, err := r.Nodes.SetNodeGroup(t.Context(), &pb.SetNodeGroupRequest{Group: g, AutoPromote: g == "b"}); err != nil {
			t.Fatal(err)
		}
	}
	seen, token := "", ""
	for {
		got, err := r.Nodes.ListNodeGroups(t.Context(), &pb.ListNodeGroupsRequest{PageSize: 2, PageToken: token})
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range got.GetGroups() {
			seen += g.GetGroup()
		}
		if token = got.GetNextPageToken(); token == "" {
			break
		}
	}
	if seen != "abc" {
		t.Errorf("groups %q", seen)
	}
}
