package machine_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
)

// handle is the answer to a call that changes a machine.
type handle interface {
	GetOperationId() string
	GetMachineId() string
}

// TestCallsThatChangeAMachineReturnAtOnce makes each call of the machines' services that takes a request_id. No agent is
// there, so that nothing can be done: the answer is an operation that has not begun, which others can read.
func TestCallsThatChangeAMachineReturnAtOnce(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	calls := map[string]func(id string) (handle, error){
		"MachineService/RebootMachine": func(id string) (handle, error) {
			return r.Machines.RebootMachine(ctx, &pb.RebootMachineRequest{MachineId: id, RequestId: "q"})
		},
		"MachineService/NetbootMachine": func(id string) (handle, error) {
			return r.Machines.NetbootMachine(ctx, &pb.NetbootMachineRequest{MachineId: id, RequestId: "q"})
		},
		"MachineService/TestMachine": func(id string) (handle, error) {
			return r.Machines.TestMachine(ctx, &pb.TestMachineRequest{MachineId: id, RequestId: "q", Tests: []string{"cpu"}})
		},
		"MachineService/ReimageMachine": func(id string) (handle, error) {
			return r.Machines.ReimageMachine(ctx, &pb.ReimageMachineRequest{MachineId: id, RequestId: "q", ImageRef: "u"})
		},
		"MachineService/ReconfigureMachine": func(id string) (handle, error) {
			return r.Machines.ReconfigureMachine(ctx, &pb.ReconfigureMachineRequest{MachineId: id, RequestId: "q",
				Config: &pb.NetReconfig{Hostname: "web-1"}})
		},
		"MachineService/EnterMaintenance": func(id string) (handle, error) {
			return r.Machines.EnterMaintenance(ctx, &pb.EnterMaintenanceRequest{MachineId: id, RequestId: "q"})
		},
		"MachineService/ExitMaintenance": func(id string) (handle, error) {
			return r.Machines.ExitMaintenance(ctx, &pb.ExitMaintenanceRequest{MachineId: id, RequestId: "q"})
		},
		"RunService/StartRun": func(id string) (handle, error) {
			run, err := r.Runs.StartRun(ctx, &pb.StartRunRequest{MachineId: id, RequestId: "q", Type: "REBOOT"})
			return runHandle{run}, err
		},
		"WorkflowService/StartWorkflow": func(id string) (handle, error) {
			return r.Workflows.StartWorkflow(ctx, &pb.StartWorkflowRequest{MachineId: id, RequestId: "q",
				Kind: pb.Workflow_ONBOARDING, Params: map[string]string{"image_ref": "u"}})
		},
	}
	if got, want := slices.Sorted(maps.Keys(calls)), callsOnMachines(); !slices.Equal(got, want) {
		t.Errorf("the test makes %q, machines take %q", got, want)
	}
	for name, call := range calls {
		id := "m-" + strings.ToLower(name[strings.IndexByte(name, '/')+1:])
		r.Register(&pb.Machine{MachineId: id})
		if name != "MachineService/EnterMaintenance" {
			r.Maintenance(id)
		}
		got, err := call(id)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		op, err := r.Operations.GetOperation(ctx, &pb.GetOperationRequest{OperationId: got.GetOperationId()})
		if err != nil || got.GetMachineId() != id || op.GetMachineId() != id || op.GetRequestId() != "q" ||
			op.GetPhase() != pb.Operation_PENDING || op.GetStartedAt() != nil {
			t.Errorf("%s returned %v, stored is %v, %v", name, got, op, err)
		}
	}
}

// runHandle is a run as the operation that it is.
type runHandle struct{ *pb.Run }

func (h runHandle) GetOperationId() string { return h.GetRunId() }

// callsOnMachines returns the calls of the API whose requests have the fields machine_id and request_id, except those
// that register a machine.
func callsOnMachines() (out []string) {
	for _, file := range []protoreflect.FileDescriptor{
		pb.File_baremetal_v1_machine_proto, pb.File_baremetal_v1_run_proto, pb.File_baremetal_v1_workflow_proto,
	} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				m := service.Methods().Get(j)
				fields := m.Input().Fields()
				if fields.ByName("machine_id") != nil && fields.ByName("request_id") != nil {
					out = append(out, string(service.Name())+"/"+string(m.Name()))
				}
			}
		}
	}
	slices.Sort(out)
	return out
}
