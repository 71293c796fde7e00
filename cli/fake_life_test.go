package cli

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

var (
	someNode = &pb.Node{
		NodeId: "machine-1", State: pb.NodeState_NODE_STATE_INSTALL_FAILED, StateChangedAt: at(0), InstallAttempts: 3,
		LastInstallError: "disk \x1b[2Jnot found", PlanId: "repave", Group: "rack-7",
		NextStates: []pb.NodeState{pb.NodeState_NODE_STATE_PENDING, pb.NodeState_NODE_STATE_RETIRED},
		LastReport: &pb.NodeReport{InstallationStatus: "failed", InstallationProgress: 40, ReportedAt: at(30)},
	}
	otherNode  = &pb.Node{NodeId: "machine-2", State: pb.NodeState_NODE_STATE_ACTIVE, StateChangedAt: at(59)}
	someScript = &pb.Script{
		ScriptRef: "fix-raid-1", Sha256: "f00d", SizeBytes: 11, Interpreter: "/bin/sh", CreatedAt: at(0),
	}
	someKey = &pb.SSHCredentials{
		CredentialsRef: "rack-42", Username: "root", PublicKey: "ssh-ed25519 AAAA", Version: 2, UpdatedAt: at(0),
	}
)

func (f *fakeServer) findNode(id string) (*pb.Node, error) {
	for _, n := range []*pb.Node{someNode, otherNode} {
		if n.GetNodeId() == id {
			return n, nil
		}
	}
	return nil, refuse(codes.NotFound, pb.Reason_MACHINE_NOT_FOUND, "there is no machine \""+id+"\"", nil)
}

// ListNodes returns one node a page.
func (f *fakeServer) ListNodes(_ context.Context, r *pb.ListNodesRequest) (*pb.ListNodesResponse, error) {
	if r.GetPageToken() == "" {
		return &pb.ListNodesResponse{Nodes: []*pb.Node{someNode}, NextPageToken: "2"}, nil
	}
	return &pb.ListNodesResponse{Nodes: []*pb.Node{otherNode}}, nil
}

func (f *fakeServer) GetNode(_ context.Context, r *pb.GetNodeRequest) (*pb.Node, error) {
	return f.findNode(r.GetNodeId())
}

func (f *fakeServer) UpdateNode(_ context.Context, r *pb.UpdateNodeRequest) (*pb.Node, error) {
	return f.findNode(r.GetNodeId())
}

// TransitionNode starts a reimage for reprovision; every other move has ended when it is answered.
func (f *fakeServer) TransitionNode(_ context.Context, r *pb.TransitionNodeRequest) (*pb.Operation, error) {
	switch {
	case r.GetState() == pb.NodeState_NODE_STATE_ACTIVE:
		return nil, refuse(codes.FailedPrecondition, pb.Reason_NODE_TRANSITION_ILLEGAL,
			"install_failed does not lead to active",
			map[string]string{"machine_id": r.GetNodeId()})
	case r.GetState() == pb.NodeState_NODE_STATE_PENDING && !r.GetForce():
		return nil, refuse(codes.FailedPrecondition, pb.Reason_NODE_GUARD_FAILED, "three installations have failed",
			map[string]string{"machine_id": r.GetNodeId()})
	}
	op := &pb.Operation{OperationId: "op-1", MachineId: r.GetNodeId(), Type: pb.Operation_NODE_TRANSITION,
		Phase: pb.Operation_SUCCEEDED, CreatedAt: at(0), FinishedAt: at(0)}
	if r.GetState() == pb.NodeState_NODE_STATE_REPROVISION {
		op.Type, op.Phase, op.FinishedAt, op.PlanId = pb.Operation_REIMAGE, pb.Operation_PENDING, nil, "repave"
	}
	if r.GetDryRun() {
		op.OperationId = ""
	}
	return op, nil
}

func (f *fakeServer) GetNodeHistory(
	_ context.Context, r *pb.GetNodeHistoryRequest,
) (*pb.GetNodeHistoryResponse, error) {
	if _, err := f.findNode(r.GetNodeId()); err != nil {
		return nil, err
	}
	return &pb.GetNodeHistoryResponse{Total: 2, Data: []*pb.NodeStateLog{
		{
			Id: "nsl-2", FromState: pb.NodeState_NODE_STATE_INSTALLING, ToState: pb.NodeState_NODE_STATE_INSTALL_FAILED,
			TriggeredBy: "node_report",
			Metadata:    map[string]string{"error": "disk not found", "attempt": "3"}, CreatedAt: at(2),
		},
		{
			Id: "nsl-1", FromState: pb.NodeState_NODE_STATE_DISCOVERED, ToState: pb.NodeState_NODE_STATE_PENDING,
			TriggeredBy: "admin", UserId: "op-team",
			Comment: "rack 7", Metadata: map[string]string{"operation_id": "op-1"}, CreatedAt: at(1),
		},
	}}, nil
}

func (f *fakeServer) ApproveDiscovered(_ context.Context, r *pb.ApproveDiscoveredRequest) (*pb.Operation, error) {
	if r.GetMacAddress() == "52:54:00:00:00:77" {
		return nil, refuse(codes.NotFound, pb.Reason_DISCOVERY_NOT_FOUND, "nobody has seen it", nil)
	}
	return &pb.Operation{OperationId: "op-2", MachineId: "m-9", Type: pb.Operation_NODE_TRANSITION,
		Phase: pb.Operation_SUCCEEDED}, nil
}

func (f *fakeServer) SetNodeGroup(_ context.Context, r *pb.SetNodeGroupRequest) (*pb.NodeGroup, error) {
	return &pb.NodeGroup{Group: r.GetGroup(), AutoPromote: r.GetAutoPromote(), Nodes: 4, UpdatedAt: at(59)}, nil
}

func (f *fakeServer) ListNodeGroups(context.Context, *pb.ListNodeGroupsRequest) (*pb.ListNodeGroupsResponse, error) {
	return &pb.ListNodeGroupsResponse{Groups: []*pb.NodeGroup{{Group: "rack-7", AutoPromote: true, Nodes: 4,
		UpdatedAt: at(0)}, {Group: "named-only", Nodes: 1}}}, nil
}

func (f *fakeServer) findScript(ref string) (*pb.Script, error) {
	if ref != someScript.GetScriptRef() {
		return nil, refuse(codes.NotFound, pb.Reason_SCRIPT_NOT_FOUND, "there is no script \""+ref+"\" in the catalogue", nil)
	}
	return someScript, nil
}

func (f *fakeServer) AddScript(_ context.Context, r *pb.AddScriptRequest) (*pb.Script, error) {
	if r.GetScript().GetScriptRef() == "taken" {
		return nil, refuse(codes.AlreadyExists, pb.Reason_SCRIPT_EXISTS, "there is another script \"taken\"", nil)
	}
	out := proto.CloneOf(r.GetScript())
	out.SizeBytes, out.Sha256 = int64(len(r.GetContent())), "f00d"
	if out.GetInterpreter() == "" {
		out.Interpreter = "/bin/sh"
	}
	return out, nil
}

func (f *fakeServer) GetScript(_ context.Context, r *pb.GetScriptRequest) (*pb.Script, error) {
	return f.findScript(r.GetScriptRef())
}

// ListScripts returns one script a page.
func (f *fakeServer) ListScripts(_ context.Context, r *pb.ListScriptsRequest) (*pb.ListScriptsResponse, error) {
	if r.GetPageToken() == "" {
		return &pb.ListScriptsResponse{Scripts: []*pb.Script{someScript}, NextPageToken: "2"}, nil
	}
	return &pb.ListScriptsResponse{Scripts: []*pb.Script{{
		ScriptRef: "wipe-2", Sha256: "beef", SizeBytes: 4096, Interpreter: "/usr/bin/python3", Destructive: true,
		CreatedAt: at(0),
	}}}, nil
}

func (f *fakeServer) RemoveScript(_ context.Context, r *pb.RemoveScriptRequest) (*pb.Script, error) {
	if r.GetScriptRef() == "wipe-2" {
		return nil, refuse(codes.FailedPrecondition, pb.Reason_SCRIPT_IN_USE, "operation op-1 needs the script",
			map[string]string{"operation_id": "op-1"})
	}
	return f.findScript(r.GetScriptRef())
}

func (f *fakeServer) SetSSHCredentials(_ context.Context, r *pb.SetSSHCredentialsRequest) (*pb.SSHCredentials, error) {
	out := proto.CloneOf(someKey)
	out.CredentialsRef, out.Username = r.GetCredentialsRef(), r.GetUsername()
	return out, nil
}

func (f *fakeServer) ListSSHCredentials(
	context.Context, *pb.ListSSHCredentialsRequest,
) (*pb.ListSSHCredentialsResponse, error) {
	return &pb.ListSSHCredentialsResponse{Credentials: []*pb.SSHCredentials{someKey,
		{CredentialsRef: "old", Version: 1, UpdatedAt: at(0)}}}, nil
}

func (f *fakeServer) DeleteSSHCredentials(
	_ context.Context, r *pb.DeleteSSHCredentialsRequest,
) (*pb.SSHCredentials, error) {
	if r.GetCredentialsRef() != "old" {
		return nil, refuse(codes.FailedPrecondition, pb.Reason_CREDENTIALS_IN_USE, "machine machine-1 names the credentials",
			map[string]string{"machine_id": "machine-1"})
	}
	return &pb.SSHCredentials{CredentialsRef: "old"}, nil
}
