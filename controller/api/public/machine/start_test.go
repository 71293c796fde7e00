package machine_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/internal/failure"
)

// TestParamsAreStored starts each kind of work and reads what was kept of it.
func TestParamsAreStored(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	config := &pb.NetReconfig{Hostname: "web-1", Firewall: &pb.FirewallPolicy{DefaultInput: "drop",
		Allow: []*pb.FirewallRule{
			{Protocol: "tcp", PortFrom: 22, SourceCidr: "10.0.0.0/8"}, {Protocol: "icmp"}}}}
	cases := []struct {
		machine string
		plan    string
		params  map[string]string
		start   func(machineID string) (*pb.Operation, error)
	}{
		{"m-reboot", "reboot", map[string]string{"mode": "force", "timeout_seconds": "7"},
			func(id string) (*pb.Operation, error) {
				return r.Machines.RebootMachine(ctx, &pb.RebootMachineRequest{MachineId: id, RequestId: "q", Mode: "force",
					TimeoutSeconds: 7})
			}},
		{"m-netboot", "netboot", map[string]string{"mode": "HTTP"}, func(id string) (*pb.Operation, error) {
			return r.Machines.NetbootMachine(ctx, &pb.NetbootMachineRequest{MachineId: id, RequestId: "q", Mode: "HTTP"})
		}},
		{"m-netboot-now", "netboot-now", map[string]string{"reboot": "true"}, func(id string) (*pb.Operation, error) {
			return r.Machines.NetbootMachine(ctx, &pb.NetbootMachineRequest{MachineId: id, RequestId: "q", Reboot: true})
		}},
		{"m-test", "test-hardware", map[string]string{"tests": "cpu,disk", "duration_seconds": "9", "memory_percent": "80",
			"disk_bytes": "4096", "timeout_seconds": "7"}, func(id string) (*pb.Operation, error) {
			return r.Machines.TestMachine(ctx, &pb.TestMachineRequest{MachineId: id, RequestId: "q",
				Tests: []string{"cpu", "disk"}, DurationSeconds: 9, MemoryPercent: 80, DiskBytes: 4096, TimeoutSeconds: 7})
		}},
		{"m-reimage", "repave", map[string]string{"image_ref": "ubuntu-2204"}, func(id string) (*pb.Operation, error) {
			return r.Machines.ReimageMachine(ctx, &pb.ReimageMachineRequest{MachineId: id, RequestId: "q",
				ImageRef: "ubuntu-2204"})
		}},
		{
			"m-reconfig",
			"net-reconfig",
			map[string]string{
				"config": `{"hostname":"web-1","firewall":{"default_input":"drop","allow":[{"protocol":"tcp","port_from":22,"source_cidr":"10.0.0.0/8"},{"protocol":"icmp"}]}}`,
			},
			func(id string) (*pb.Operation, error) {
				return r.Machines.ReconfigureMachine(ctx, &pb.ReconfigureMachineRequest{MachineId: id, RequestId: "q",
					Config: config})
			},
		},
		{"m-exit", "exit-maintenance", nil, func(id string) (*pb.Operation, error) {
			return r.Machines.ExitMaintenance(ctx, &pb.ExitMaintenanceRequest{MachineId: id, RequestId: "q", Comment: "done"})
		}},
	}
	for _, c := range cases {
		t.Run(c.machine, func(t *testing.T) {
			r.Register(&pb.Machine{MachineId: c.machine})
			r.Maintenance(c.machine)
			op, err := c.start(c.machine)
			if err != nil {
				t.Fatal(err)
			}
			if op.GetPlanId() != c.plan || !maps.Equal(op.GetParams(), c.params) || op.GetPhase() != pb.Operation_PENDING {
				t.Errorf("started %v", op)
			}
			again, err := c.start(c.machine)
			if err != nil || again.GetOperationId() != op.GetOperationId() {
				t.Errorf("the repeat gave %v %v", again, err)
			}
		})
	}
}

// TestRunsAndCallsAreTheSameWork: a run and a call with one request id and one meaning are one operation.
func TestRunsAndCallsAreTheSameWork(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	r.Register(&pb.Machine{MachineId: "m-1"})
	r.Maintenance("m-1")
	run, err := r.Runs.StartRun(ctx, &pb.StartRunRequest{MachineId: "m-1", RequestId: "q", Type: "REPAVE",
		Params: map[string]string{"image_ref": "a"}})
	if err != nil || run.GetType() != "REPAVE" || len(run.GetSteps()) != 3 || run.GetPhase() != pb.Run_PENDING {
		t.Fatalf("run %v %v", run, err)
	}
	op, err := r.Machines.ReimageMachine(ctx, &pb.ReimageMachineRequest{MachineId: "m-1", RequestId: "q", ImageRef: "a"})
	if err != nil || op.GetOperationId() != run.GetRunId() {
		t.Errorf("another operation: %v %v", op, err)
	}
	_, err = r.Machines.ReimageMachine(ctx, &pb.ReimageMachineRequest{MachineId: "m-1", RequestId: "q", ImageRef: "b"})
	publictest.Wants(t, err, failure.KindAlreadyExists, "REQUEST_ID_REUSED", "image_ref")
	canceled, err := r.Runs.CancelRun(ctx, &pb.CancelRunRequest{RunId: run.GetRunId()})
	if err != nil || canceled.GetPhase() != pb.Run_CANCELED {
		t.Errorf("canceled %v %v", canceled, err)
	}
}

func TestPlans(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	p := &pb.Plan{DisplayName: "Twice", Steps: []*pb.Step{publictest.Step("one"), publictest.Step("two")}}
	made, err := r.Plans.CreatePlan(ctx, &pb.CreatePlanRequest{Plan: p})
	if err != nil || made.GetPlanId() == "" {
		t.Fatalf("create: %v %v", made, err)
	}
	again, err := r.Plans.CreatePlan(ctx, &pb.CreatePlanRequest{Plan: made})
	if err != nil || again.GetPlanId() != made.GetPlanId() {
		t.Errorf("create again: %v %v", again, err)
	}
	r.Register(&pb.Machine{MachineId: "m-1"})
	r.Maintenance("m-1")
	run, err := r.Runs.StartRun(ctx, &pb.StartRunRequest{MachineId: "m-1", RequestId: "q", PlanId: made.GetPlanId()})
	if err != nil || run.GetType() != "RUN_PLAN" || len(run.GetSteps()) != 2 {
		t.Fatalf("run: %v %v", run, err)
	}
	other := proto.Clone(made).(*pb.Plan)
	other.Steps = other.Steps[:1]
	_, err = r.Plans.CreatePlan(ctx, &pb.CreatePlanRequest{Plan: other})
	publictest.Wants(t, err, failure.KindAlreadyExists, "PLAN_IMMUTABLE", "plan.plan_id")
	got, err := r.Plans.GetPlan(ctx, &pb.GetPlanRequest{PlanId: made.GetPlanId()})
	if err != nil || !got.GetUsed() || len(got.GetSteps()) != 2 {
		t.Errorf("read %v %v", got, err)
	}
	all, err := r.Plans.ListPlans(ctx, &pb.ListPlansRequest{})
	if err != nil || len(all.GetPlans()) < 10 {
		t.Errorf("list %v %v", all, err)
	}
}

// handle is the answer to a call that changes a machine.
type handle interface {
	GetOperationId() string
	GetMachineId() string
}

// TestCallsThatChangeAMachineReturnAtOnce makes each call of the machines' services that takes a request_id. No agent
// is there, so that nothing can be done: the answer is an operation that has not begun, which others can read.
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
		m, err := r.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: id})
		if err != nil || m.GetStatus().GetActiveOperationId() != op.GetOperationId() {
			t.Errorf("after %s the machine is %v, %v", name, m.GetStatus(), err)
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
