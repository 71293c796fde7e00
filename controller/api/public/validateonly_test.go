package public_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
)

// startingCall is a call that starts work, with words that are taken and words that are refused.
type startingCall struct {
	method    string
	good, bad proto.Message
	// reason and field of the refusal of bad.
	reason, field string
	send          func(ctx context.Context, r *rig, q proto.Message) (proto.Message, error)
}

// starting makes a row of a client's method.
func starting[Q, A proto.Message](
	method string, good, bad Q, reason, field string, call func(context.Context, *rig, Q) (A, error),
) startingCall {
	return startingCall{method: method, good: good, bad: bad, reason: reason, field: field,
		send: func(ctx context.Context, r *rig, q proto.Message) (proto.Message, error) {
			a, err := call(ctx, r, q.(Q)) // each row is made of one type
			return a, err
		}}
}

// startingCalls are all calls that start work. The machine is m-1, which has never been in maintenance.
func startingCalls() []startingCall {
	const id, req = "m-1", "validated"
	seed := &pb.SystemSeed{UserData: "#cloud-config\n"}
	image := map[string]string{"image_ref": "no-such"}
	return append([]startingCall{
		starting("MachineService.RebootMachine", &pb.RebootMachineRequest{MachineId: id, RequestId: req},
			&pb.RebootMachineRequest{MachineId: id, RequestId: req, Mode: "gracefully"}, "INVALID_FIELD", "mode",
			func(ctx context.Context, r *rig, q *pb.RebootMachineRequest) (*pb.Operation, error) {
				return r.Machines.RebootMachine(ctx, q)
			}),
		starting("MachineService.NetbootMachine", &pb.NetbootMachineRequest{MachineId: id, RequestId: req},
			&pb.NetbootMachineRequest{MachineId: id, RequestId: req, Mode: "PXEE"}, "INVALID_FIELD", "mode",
			func(ctx context.Context, r *rig, q *pb.NetbootMachineRequest) (*pb.Operation, error) {
				return r.Machines.NetbootMachine(ctx, q)
			}),
		starting("MachineService.ReimageMachine",
			&pb.ReimageMachineRequest{MachineId: id, RequestId: req, ImageRef: "tiny", Seed: seed},
			&pb.ReimageMachineRequest{MachineId: id, RequestId: req, ImageRef: "no-such", Seed: seed}, "IMAGE_NOT_FOUND",
			"image_ref", func(ctx context.Context, r *rig, q *pb.ReimageMachineRequest) (*pb.Operation, error) {
				return r.Machines.ReimageMachine(ctx, q)
			}),
		starting("MachineService.ReconfigureMachine",
			&pb.ReconfigureMachineRequest{MachineId: id, RequestId: req, Config: &pb.NetReconfig{Hostname: "web-1"}},
			&pb.ReconfigureMachineRequest{MachineId: id, RequestId: req, Config: &pb.NetReconfig{Hostname: "web 1"}},
			"INVALID_FIELD", "config.hostname",
			func(ctx context.Context, r *rig, q *pb.ReconfigureMachineRequest) (*pb.Operation, error) {
				return r.Machines.ReconfigureMachine(ctx, q)
			}),
		starting("MachineService.TestMachine", &pb.TestMachineRequest{MachineId: id, RequestId: req},
			&pb.TestMachineRequest{MachineId: id, RequestId: req, Tests: []string{"gpus"}}, "INVALID_FIELD", "tests",
			func(ctx context.Context, r *rig, q *pb.TestMachineRequest) (*pb.Operation, error) {
				return r.Machines.TestMachine(ctx, q)
			}),
		starting("MachineService.EnterMaintenance", &pb.EnterMaintenanceRequest{MachineId: id, RequestId: req},
			&pb.EnterMaintenanceRequest{MachineId: "m-11", RequestId: req}, "MACHINE_NOT_FOUND", "",
			func(ctx context.Context, r *rig, q *pb.EnterMaintenanceRequest) (*pb.Operation, error) {
				return r.Machines.EnterMaintenance(ctx, q)
			}),
		starting("MachineService.ExitMaintenance", &pb.ExitMaintenanceRequest{MachineId: id, RequestId: req},
			&pb.ExitMaintenanceRequest{MachineId: "m-11", RequestId: req}, "MACHINE_NOT_FOUND", "",
			func(ctx context.Context, r *rig, q *pb.ExitMaintenanceRequest) (*pb.Operation, error) {
				return r.Machines.ExitMaintenance(ctx, q)
			}),
		starting("RunService.StartRun", &pb.StartRunRequest{MachineId: id, RequestId: req, Type: "REBOOT"},
			&pb.StartRunRequest{MachineId: id, RequestId: req, Type: "REPAVE", Params: image}, "IMAGE_NOT_FOUND",
			"params[image_ref]", func(ctx context.Context, r *rig, q *pb.StartRunRequest) (*pb.Run, error) {
				return r.Runs.StartRun(ctx, q)
			}),
	}, startingLives(id, req, image)...)
}

// startingLives are the rest of startingCalls: workflows, nodes and rollouts.
func startingLives(id, req string, image map[string]string) []startingCall {
	return []startingCall{
		starting("WorkflowService.StartWorkflow",
			&pb.StartWorkflowRequest{MachineId: id, RequestId: req, Kind: pb.Workflow_DECOMMISSION,
				Mode: pb.Workflow_SOFT_RESET},
			&pb.StartWorkflowRequest{MachineId: id, RequestId: req, Kind: pb.Workflow_DECOMMISSION,
				Mode: pb.Workflow_STORAGE_CLEANUP, Params: image}, "IMAGE_NOT_FOUND", "params[image_ref]",
			func(ctx context.Context, r *rig, q *pb.StartWorkflowRequest) (*pb.Operation, error) {
				return r.Workflows.StartWorkflow(ctx, q)
			}),
		starting("WorkflowService.ActOnWorkflow",
			&pb.ActOnWorkflowRequest{RequestId: req, Action: pb.WorkflowAction_WORKFLOW_ACTION_CANCEL},
			&pb.ActOnWorkflowRequest{WorkflowId: "wf-none", RequestId: req,
				Action: pb.WorkflowAction_WORKFLOW_ACTION_CANCEL}, "WORKFLOW_NOT_FOUND", "",
			func(ctx context.Context, r *rig, q *pb.ActOnWorkflowRequest) (*pb.Operation, error) {
				if q.GetWorkflowId() == "" {
					all, err := r.Workflows.ListWorkflows(ctx, &pb.ListWorkflowsRequest{})
					if err != nil {
						return nil, err
					}
					q.WorkflowId = all.GetWorkflows()[0].GetWorkflowId()
				}
				return r.Workflows.ActOnWorkflow(ctx, q)
			}),
		starting("NodeService.TransitionNode",
			&pb.TransitionNodeRequest{NodeId: id, RequestId: req, State: pb.NodeState_NODE_STATE_REPROVISION,
				ImageRef: "tiny", Comment: "again"},
			&pb.TransitionNodeRequest{NodeId: id, RequestId: req, State: pb.NodeState_NODE_STATE_REPROVISION,
				ImageRef: "no-such", Comment: "again"}, "IMAGE_NOT_FOUND", "image_ref",
			func(ctx context.Context, r *rig, q *pb.TransitionNodeRequest) (*pb.Operation, error) {
				return r.Nodes.TransitionNode(ctx, q)
			}),
		starting("NodeService.ApproveDiscovered",
			&pb.ApproveDiscoveredRequest{MacAddress: "52:54:00:00:00:0d", RequestId: req},
			&pb.ApproveDiscoveredRequest{MacAddress: "52:54:00:00:00:0e", RequestId: req}, "DISCOVERY_NOT_FOUND",
			"mac_address", func(ctx context.Context, r *rig, q *pb.ApproveDiscoveredRequest) (*pb.Operation, error) {
				return r.Nodes.ApproveDiscovered(ctx, q)
			}),
		starting("RolloutService.CreateRollout",
			&pb.CreateRolloutRequest{RequestId: req, Spec: &pb.RolloutSpec{Filter: "machine_id=" + id, Type: "REPAVE",
				Params: map[string]string{"image_ref": "tiny"}, Seed: &pb.SystemSeed{UserData: "#cloud-config\n"}}},
			&pb.CreateRolloutRequest{RequestId: req, Spec: &pb.RolloutSpec{Filter: "machine_id=" + id, Type: "REPAVE",
				Params: image}}, "ROLLOUT_EMPTY", "",
			func(ctx context.Context, r *rig, q *pb.CreateRolloutRequest) (*pb.Rollout, error) {
				return r.Rollouts.CreateRollout(ctx, q)
			}),
	}
}

// startsWork reports whether a method starts work: its request has an id under which it happens once, and its answer is
// the work.
func startsWork(m protoreflect.MethodDescriptor) bool {
	answers := []protoreflect.Name{"Operation", "Run", "Rollout"}
	return !m.IsStreamingServer() && slices.Contains(answers, m.Output().Name()) &&
		m.Input().Fields().ByName("request_id") != nil
}

// TestEveryCallThatStartsWorkIsAmongTheValidatedOnes: a new call has the field, and a row of this file.
func TestEveryCallThatStartsWorkIsAmongTheValidatedOnes(t *testing.T) {
	var rows []string
	for _, c := range startingCalls() {
		rows = append(rows, c.method)
	}
	for _, f := range []protoreflect.FileDescriptor{pb.File_baremetal_v1_machine_proto, pb.File_baremetal_v1_run_proto,
		pb.File_baremetal_v1_workflow_proto, pb.File_baremetal_v1_node_proto, pb.File_baremetal_v1_rollout_proto,
		pb.File_baremetal_v1_operation_proto, pb.File_baremetal_v1_admin_proto, pb.File_baremetal_v1_plan_proto} {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				name := string(s.Name()) + "." + string(m.Name())
				if startsWork(m) != slices.Contains(rows, name) {
					t.Errorf("%s starts work: %v; it has a row: %v", name, startsWork(m), slices.Contains(rows, name))
				}
			}
		}
	}
}

// validating is the request with validate_only.
func validating(q proto.Message) proto.Message {
	q = proto.Clone(q)
	m := q.ProtoReflect()
	m.Set(m.Descriptor().Fields().ByName("validate_only"), protoreflect.ValueOfBool(true))
	return q
}

// idOf is the id of started work.
func idOf(a proto.Message) string {
	m := a.ProtoReflect()
	for _, name := range []protoreflect.Name{"operation_id", "run_id", "rollout_id"} {
		if f := m.Descriptor().Fields().ByName(name); f != nil {
			return m.Get(f).String()
		}
	}
	return ""
}

// contents is a digest of every row of the database.
func contents(t *testing.T, r *rig) int {
	t.Helper()
	return storetest.Count(t, r.Store, `SELECT hashtext(string_agg(query_to_xml(format(
		'SELECT t::text FROM %I t ORDER BY 1', table_name), true, false, '')::text, '' ORDER BY table_name))
		FROM information_schema.tables
		WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'`)
}

// TestValidatingStoresNothing: each call that starts work is taken and refused with validate_only on a machine that has
// never been in maintenance. No row of the database differs afterwards, and the request id is still unused.
func TestValidatingStoresNothing(t *testing.T) {
	for _, c := range startingCalls() {
		t.Run(c.method, func(t *testing.T) {
			r := validatedFleet(t, strings.HasSuffix(c.method, "ActOnWorkflow"))
			before := contents(t, r)
			a, err := c.send(t.Context(), r, validating(c.good))
			if err != nil {
				t.Fatal(err)
			}
			if id := idOf(a); id != "" && !strings.HasSuffix(c.method, "ActOnWorkflow") {
				t.Errorf("validation has started %s", id)
			}
			_, err = c.send(t.Context(), r, validating(c.bad))
			if f := reasonAndFields(err); f[0] != c.reason || c.field != "" && !slices.Contains(f[1:], c.field) {
				t.Errorf("refused with %v, want %s %s", f, c.reason, c.field)
			}
			if contents(t, r) != before {
				t.Error("the database has changed")
			}
		})
	}
}

// TestARequestThatHasStartedWorkValidatesAsItsRepeat: what the call itself would answer to a repeat, the validation
// answers too, another body under the same request id included.
func TestARequestThatHasStartedWorkValidatesAsItsRepeat(t *testing.T) {
	r := validatedFleet(t, false)
	q := &pb.RebootMachineRequest{MachineId: "m-1", RequestId: "once"}
	r.Maintenance("m-1")
	started, err := r.Machines.RebootMachine(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	q.ValidateOnly = true
	again, err := r.Machines.RebootMachine(t.Context(), q)
	if err != nil || again.GetOperationId() != started.GetOperationId() {
		t.Errorf("validated: %v %v", again, err)
	}
	q.Mode = "force"
	if _, err := r.Machines.RebootMachine(t.Context(), q); reasonAndFields(err)[0] != "REQUEST_ID_REUSED" {
		t.Errorf("another body: %v", err)
	}
}

// reasonAndFields are the reason of a refusal, and the fields that it names.
func reasonAndFields(err error) []string {
	if err == nil {
		return []string{""}
	}
	f := failure.From(err)
	out := []string{f.Reason}
	for _, v := range f.Fields {
		out = append(out, v.Path)
	}
	return out
}

// validatedFleet has machine m-1, which was installed once, the image tiny, and a discovered machine.
func validatedFleet(t *testing.T, workflow bool) *rig {
	t.Helper()
	r := publictest.NewRig(t)
	r.Register(&pb.Machine{MachineId: "m-1"})
	storetest.Lease(t, r.Store)
	h := storetest.Enrol(t, r.Store, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"}).Hello("st-1", "boot-1")
	h.Simulated = true
	h.Capabilities = []string{"reboot", "netboot", "reconfig", "repave", "reset_devices", "test_hardware"}
	storetest.Open(t, r.Store, h)
	storetest.Exec(t, r.Store, `INSERT INTO discovered_machines (site, mac, segment, address, arch, vendor, first_seen_at,
		last_seen_at) VALUES ('default', '52:54:00:00:00:0d', 'seg', '10.0.0.9', 'amd64', '', now(), now())`)
	storetest.Exec(t, r.Store, `INSERT INTO images (image_ref, kind, arch, format, sha256_file, sha256_raw, size_bytes,
		file_size_bytes, minimum_disk_bytes, created_at)
		VALUES ('tiny', 'os', 'amd64', 'raw.zst', 'cc', 'dd', 100, 10, 200, now())`)
	if workflow {
		_, err := r.Workflows.StartWorkflow(t.Context(), &pb.StartWorkflowRequest{MachineId: "m-1", RequestId: "before",
			Kind: pb.Workflow_DECOMMISSION, Mode: pb.Workflow_SOFT_RESET, EnterMaintenance: true})
		if err != nil {
			t.Fatal(err)
		}
	}
	return r
}
