package public_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
)

func register(spec *pb.MachineSpec, labels map[string]string) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		return only(r.Machines.RegisterMachine(ctx, &pb.RegisterMachineRequest{
			Machine: &pb.Machine{MachineId: "m-new", Spec: spec, Labels: labels},
		}))
	}
}

func list(q *pb.ListMachinesRequest) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error { return only(r.Machines.ListMachines(ctx, q)) }
}

func reboot(q *pb.RebootMachineRequest) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error { return only(r.Machines.RebootMachine(ctx, q)) }
}

func run(q *pb.StartRunRequest) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error { return only(r.Runs.StartRun(ctx, q)) }
}

func reconfigure(c *pb.NetReconfig) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		return only(r.Machines.ReconfigureMachine(ctx, &pb.ReconfigureMachineRequest{MachineId: "m-1", RequestId: "q",
			Config: c}))
	}
}

func createPlan(p *pb.Plan) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		return only(r.Plans.CreatePlan(ctx, &pb.CreatePlanRequest{Plan: p}))
	}
}

func token(q *pb.IssueBootstrapTokenRequest) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error { return only(r.Admin.IssueBootstrapToken(ctx, q)) }
}

func watchOps(q *pb.WatchOperationsRequest) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		s, err := r.Operations.WatchOperations(ctx, q)
		if err != nil {
			return err
		}
		return only(s.Recv())
	}
}

func logs(q *pb.StreamOperationLogsRequest) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		s, err := r.Operations.StreamOperationLogs(ctx, q)
		if err != nil {
			return err
		}
		return only(s.Recv())
	}
}

func rules(rs ...*pb.FirewallRule) *pb.NetReconfig {
	return &pb.NetReconfig{Firewall: &pb.FirewallPolicy{Allow: rs}}
}

// badMachines: machine m-1 has a MAC address and an external id.
var badMachines = []badCall{
	{"no machine", invalid, "INVALID_FIELD", "machine", func(ctx context.Context, r *rig) error {
		return only(r.Machines.RegisterMachine(ctx, &pb.RegisterMachineRequest{}))
	}},
	{"bad id", invalid, "INVALID_FIELD", "machine.machine_id", func(ctx context.Context, r *rig) error {
		return only(r.Machines.RegisterMachine(ctx, &pb.RegisterMachineRequest{Machine: &pb.Machine{MachineId: "M 1"}}))
	}},
	{"malformed MAC", invalid, "INVALID_FIELD", "machine.spec.mac_addresses[1]",
		register(&pb.MachineSpec{MacAddresses: []string{"52:54:00:00:00:02", "52:54"}}, nil)},
	{"EUI-64", invalid, "INVALID_FIELD", "machine.spec.mac_addresses[0]",
		register(&pb.MachineSpec{MacAddresses: []string{"02:00:5e:10:00:00:00:01"}}, nil)},
	{"MAC twice", invalid, "INVALID_FIELD", "machine.spec.mac_addresses[1]",
		register(&pb.MachineSpec{MacAddresses: []string{"52:54:00:00:00:02", "52-54-00-00-00-02"}}, nil)},
	{"bad endpoint", invalid, "INVALID_FIELD", "machine.spec.ssh_endpoint",
		register(&pb.MachineSpec{SshEndpoint: "host:99999"}, nil)},
	{"URL for an endpoint", invalid, "INVALID_FIELD", "machine.spec.bmc_endpoint",
		register(&pb.MachineSpec{BmcEndpoint: "https://10.0.0.1"}, nil)},
	{"control character", invalid, "INVALID_FIELD", "machine.spec.rack", register(&pb.MachineSpec{Rack: "a\x00b"}, nil)},
	{"bad label key", invalid, "INVALID_FIELD", "machine.labels[-x]", register(nil, map[string]string{"-x": "y"})},
	{"bad label value", invalid, "INVALID_FIELD", "machine.labels[x]", register(nil, map[string]string{"x": "a b"})},
	{"MAC of another", exists, "MAC_ADDRESS_IN_USE", "machine.spec.mac_addresses",
		register(&pb.MachineSpec{MacAddresses: []string{"52:54:00:00:00:01"}}, nil)},
	{"external id of another", exists, "EXTERNAL_ID_IN_USE", "machine.spec.external_id",
		register(&pb.MachineSpec{ExternalId: "ext-1"}, nil)},
	{"update of none", invalid, "INVALID_FIELD", "machine.machine_id", func(ctx context.Context, r *rig) error {
		return only(r.Machines.UpdateMachine(ctx, &pb.UpdateMachineRequest{Machine: &pb.Machine{}}))
	}},
	{"update of an unknown", notFound, "MACHINE_NOT_FOUND", "machine.machine_id", func(ctx context.Context, r *rig) error {
		return only(r.Machines.UpdateMachine(ctx, &pb.UpdateMachineRequest{Machine: &pb.Machine{MachineId: "m-no"}}))
	}},
	{"lost update", precondition, "VERSION_CONFLICT", "machine.version", func(ctx context.Context, r *rig) error {
		return only(r.Machines.UpdateMachine(ctx,
			&pb.UpdateMachineRequest{Machine: &pb.Machine{MachineId: "m-1", Version: 999}}))
	}},
	{"get none", invalid, "INVALID_FIELD", "machine_id", func(ctx context.Context, r *rig) error {
		return only(r.Machines.GetMachine(ctx, &pb.GetMachineRequest{}))
	}},
	{"get unknown", notFound, "MACHINE_NOT_FOUND", "", func(ctx context.Context, r *rig) error {
		return only(r.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: "m-no"}))
	}},
	{"get NUL", invalid, "INVALID_FIELD", "machine_id", func(ctx context.Context, r *rig) error {
		return only(r.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: "m\x00"}))
	}},
	{"get unknown external", notFound, "MACHINE_NOT_FOUND", "", func(ctx context.Context, r *rig) error {
		return only(r.Machines.GetMachine(ctx, &pb.GetMachineRequest{ExternalId: "ext-no"}))
	}},
	{"delete unknown", notFound, "MACHINE_NOT_FOUND", "", func(ctx context.Context, r *rig) error {
		return only(r.Machines.DeleteMachine(ctx, &pb.DeleteMachineRequest{MachineId: "m-no"}))
	}},
	{"no inventory", notFound, "INVENTORY_NOT_FOUND", "", func(ctx context.Context, r *rig) error {
		return only(r.Machines.GetInventory(ctx, &pb.GetInventoryRequest{MachineId: "m-1"}))
	}},
	{"tests of hardware of none", notFound, "MACHINE_NOT_FOUND", "", func(ctx context.Context, r *rig) error {
		return only(r.Machines.GetHardwareTests(ctx, &pb.GetHardwareTestsRequest{MachineId: "m-no"}))
	}},
	{"too many tests of hardware", invalid, "INVALID_FIELD", "history", func(ctx context.Context, r *rig) error {
		return only(r.Machines.GetHardwareTests(ctx, &pb.GetHardwareTestsRequest{MachineId: "m-1", History: 50}))
	}},
	{"a test of nothing known", invalid, "INVALID_FIELD", "tests", func(ctx context.Context, r *rig) error {
		return only(r.Machines.TestMachine(ctx, &pb.TestMachineRequest{MachineId: "m-1", RequestId: "q",
			Tests: []string{"gpu"}}))
	}},
	{"a test twice", invalid, "INVALID_FIELD", "tests", func(ctx context.Context, r *rig) error {
		return only(r.Machines.TestMachine(ctx, &pb.TestMachineRequest{MachineId: "m-1", RequestId: "q",
			Tests: []string{"cpu", "cpu"}}))
	}},
	{"a test of a day", invalid, "INVALID_FIELD", "duration_seconds", func(ctx context.Context, r *rig) error {
		return only(r.Machines.TestMachine(ctx, &pb.TestMachineRequest{MachineId: "m-1", RequestId: "q",
			DurationSeconds: 86400}))
	}},
	{"explain none", invalid, "INVALID_FIELD", "machine_id", func(ctx context.Context, r *rig) error {
		return only(r.Machines.ExplainMachine(ctx, &pb.ExplainMachineRequest{}))
	}},
	{"explain unknown", notFound, "MACHINE_NOT_FOUND", "", func(ctx context.Context, r *rig) error {
		return only(r.Machines.ExplainMachine(ctx, &pb.ExplainMachineRequest{MachineId: "m-no"}))
	}},
	{"explain unknown operation", notFound, "OPERATION_NOT_FOUND", "", func(ctx context.Context, r *rig) error {
		return only(r.Machines.ExplainMachine(ctx, &pb.ExplainMachineRequest{OperationId: "op-no"}))
	}},
	{"explain NUL", invalid, "INVALID_FIELD", "operation_id", func(ctx context.Context, r *rig) error {
		return only(r.Machines.ExplainMachine(ctx, &pb.ExplainMachineRequest{MachineId: "m-1", OperationId: "op\x00"}))
	}},
	{"timeline of an unknown machine", notFound, "MACHINE_NOT_FOUND", "", func(ctx context.Context, r *rig) error {
		return only(r.Machines.GetMachineTimeline(ctx, &pb.GetMachineTimelineRequest{MachineId: "m-no"}))
	}},
	{"timeline page", invalid, "INVALID_PAGE_TOKEN", "page_token", func(ctx context.Context, r *rig) error {
		return only(r.Machines.GetMachineTimeline(ctx, &pb.GetMachineTimelineRequest{MachineId: "m-1", PageToken: "x"}))
	}},
	{"timeline at no time", invalid, "INVALID_FIELD", "at", func(ctx context.Context, r *rig) error {
		return only(r.Machines.GetMachineTimeline(ctx, &pb.GetMachineTimelineRequest{MachineId: "m-1",
			At: &timestamppb.Timestamp{Seconds: -1}}))
	}},
	{"verify unknown", notFound, "MACHINE_NOT_FOUND", "", func(ctx context.Context, r *rig) error {
		return only(r.Machines.VerifyTimeline(ctx, &pb.VerifyTimelineRequest{MachineId: "m-no"}))
	}},
	{"verify page", invalid, "INVALID_PAGE_TOKEN", "page_token", func(ctx context.Context, r *rig) error {
		return only(r.Machines.VerifyTimeline(ctx, &pb.VerifyTimelineRequest{PageToken: "x"}))
	}},
}

var badLists = []badCall{
	{"unknown key", invalid, "INVALID_FILTER", "filter", list(&pb.ListMachinesRequest{Filter: "colour=red"})},
	{"bad enum", invalid, "INVALID_FILTER", "filter", list(&pb.ListMachinesRequest{Filter: "phase=SLEEPY"})},
	{"zero enum", invalid, "INVALID_FILTER", "filter", list(&pb.ListMachinesRequest{Filter: "phase=PHASE_UNSPECIFIED"})},
	{"empty value", invalid, "INVALID_FILTER", "filter", list(&pb.ListMachinesRequest{Filter: "site="})},
	{"key twice", invalid, "INVALID_FILTER", "filter", list(&pb.ListMachinesRequest{Filter: "site=a,site=b"})},
	{"no equals", invalid, "INVALID_FILTER", "filter", list(&pb.ListMachinesRequest{Filter: "READY"})},
	{"trailing comma", invalid, "INVALID_FILTER", "filter", list(&pb.ListMachinesRequest{Filter: "site=a,"})},
	{"unknown condition", invalid, "INVALID_FILTER", "filter",
		list(&pb.ListMachinesRequest{Filter: "conditions.Happy=true"})},
	{"condition neither", invalid, "INVALID_FILTER", "filter",
		list(&pb.ListMachinesRequest{Filter: "conditions.RMA=yes"})},
	{"negative page", invalid, "INVALID_FIELD", "page_size", list(&pb.ListMachinesRequest{PageSize: -1})},
	{"bad token", invalid, "INVALID_PAGE_TOKEN", "page_token", list(&pb.ListMachinesRequest{PageToken: "nonsense"})},
	{"bad cursor", invalid, "INVALID_CURSOR", "cursor", list(&pb.ListMachinesRequest{Cursor: "nonsense"})},
	{"cursor and since", invalid, "INVALID_FIELD", "updated_since",
		list(&pb.ListMachinesRequest{Cursor: "x", UpdatedSince: timestamppb.Now()})},
	{"bad since", invalid, "INVALID_FIELD", "updated_since",
		list(&pb.ListMachinesRequest{UpdatedSince: &timestamppb.Timestamp{Nanos: -5}})},
	{"filter with cursor", invalid, "FILTER_NOT_ALLOWED_WITH_CURSOR", "filter",
		list(&pb.ListMachinesRequest{UpdatedSince: timestamppb.Now(), Filter: "phase=READY"})},
	{"site with cursor", invalid, "FILTER_NOT_ALLOWED_WITH_CURSOR", "filter",
		list(&pb.ListMachinesRequest{UpdatedSince: timestamppb.Now(), Filter: "site=a"})},
	{"token with cursor", invalid, "INVALID_PAGE_TOKEN", "page_token",
		list(&pb.ListMachinesRequest{UpdatedSince: timestamppb.Now(), PageToken: "x"})},
	{"operations by type", invalid, "INVALID_FILTER", "filter", func(ctx context.Context, r *rig) error {
		return only(r.Operations.ListOperations(ctx, &pb.ListOperationsRequest{Filter: "type=REPAVE"}))
	}},
	{"operations by time", invalid, "INVALID_FILTER", "filter", func(ctx context.Context, r *rig) error {
		return only(r.Operations.ListOperations(ctx, &pb.ListOperationsRequest{Filter: "created_after=yesterday"}))
	}},
	{"run and operation", invalid, "INVALID_FILTER", "filter", func(ctx context.Context, r *rig) error {
		s, err := r.Runs.WatchRuns(ctx, &pb.WatchRunsRequest{Filter: "run_id=a,operation_id=a"})
		if err != nil {
			return err
		}
		return only(s.Recv())
	}},
	{"agents by role", invalid, "INVALID_FILTER", "filter", func(ctx context.Context, r *rig) error {
		return only(r.Admin.ListAgents(ctx, &pb.ListAgentsRequest{Filter: "role=guest"}))
	}},
	{"token page", invalid, "INVALID_PAGE_TOKEN", "page_token", func(ctx context.Context, r *rig) error {
		return only(r.Admin.ListBootstrapTokens(ctx, &pb.ListBootstrapTokensRequest{PageToken: "e30"}))
	}},
	{"nodes", invalid, "INVALID_FILTER", "filter", func(ctx context.Context, r *rig) error {
		return only(r.Nodes.ListNodes(ctx, &pb.ListNodesRequest{Filter: "x=y"}))
	}},
}

// badStarts: m-1 is idle in phase FACTORY_READY, m-busy has operation "first", m-busy/"done" is finished.
var badStarts = []badCall{
	{"no request_id", invalid, "REQUEST_ID_REQUIRED", "request_id", reboot(&pb.RebootMachineRequest{MachineId: "m-1"})},
	{"no request_id, run", invalid, "REQUEST_ID_REQUIRED", "request_id",
		run(&pb.StartRunRequest{MachineId: "m-1", Type: "WHAT"})},
	{"long request_id", invalid, "INVALID_FIELD", "request_id",
		reboot(&pb.RebootMachineRequest{MachineId: "m-1", RequestId: strings.Repeat("x", 129)})},
	{"request_id not ASCII", invalid, "INVALID_FIELD", "request_id",
		reboot(&pb.RebootMachineRequest{MachineId: "m-1", RequestId: "é"})},
	{"no machine", invalid, "INVALID_FIELD", "machine_id", reboot(&pb.RebootMachineRequest{RequestId: "q"})},
	{"unknown machine", notFound, "MACHINE_NOT_FOUND", "machine_id",
		reboot(&pb.RebootMachineRequest{MachineId: "m-no", RequestId: "q"})},
	{"unknown plan", notFound, "PLAN_NOT_FOUND", "plan_id",
		reboot(&pb.RebootMachineRequest{MachineId: "m-ready", RequestId: "q", PlanId: "no-plan"})},
	{"bad mode", invalid, "INVALID_FIELD", "mode",
		reboot(&pb.RebootMachineRequest{MachineId: "m-1", RequestId: "q", Mode: "hard"})},
	{"negative timeout", invalid, "INVALID_FIELD", "timeout_seconds",
		reboot(&pb.RebootMachineRequest{MachineId: "m-1", RequestId: "q", TimeoutSeconds: -1})},
	{"endless timeout", invalid, "INVALID_FIELD", "timeout_seconds",
		reboot(&pb.RebootMachineRequest{MachineId: "m-1", RequestId: "q", TimeoutSeconds: 86401})},
	{"wrong phase", precondition, "WRONG_PHASE", "", reboot(&pb.RebootMachineRequest{MachineId: "m-1", RequestId: "q"})},
	{"busy", precondition, "MACHINE_BUSY", "", func(ctx context.Context, r *rig) error {
		return only(r.Machines.EnterMaintenance(ctx, &pb.EnterMaintenanceRequest{MachineId: "m-busy", RequestId: "second"}))
	}},
	{"reused request_id", exists, "REQUEST_ID_REUSED", "type", func(ctx context.Context, r *rig) error {
		return only(r.Machines.ExitMaintenance(ctx, &pb.ExitMaintenanceRequest{MachineId: "m-busy", RequestId: "first"}))
	}},
	{"delete busy", precondition, "MACHINE_BUSY", "", func(ctx context.Context, r *rig) error {
		return only(r.Machines.DeleteMachine(ctx, &pb.DeleteMachineRequest{MachineId: "m-busy"}))
	}},
	{"bad netboot", invalid, "INVALID_FIELD", "mode", func(ctx context.Context, r *rig) error {
		return only(r.Machines.NetbootMachine(ctx, &pb.NetbootMachineRequest{MachineId: "m-1", RequestId: "q",
			Mode: "FLOPPY"}))
	}},
	{"bad image", invalid, "INVALID_FIELD", "image_ref", func(ctx context.Context, r *rig) error {
		return only(r.Machines.ReimageMachine(ctx, &pb.ReimageMachineRequest{MachineId: "m-1", RequestId: "q",
			ImageRef: "a b"}))
	}},
	{"no image anywhere", precondition, "MACHINE_HAS_NO_IMAGE", "image_ref", func(ctx context.Context, r *rig) error {
		return only(r.Machines.ReimageMachine(ctx, &pb.ReimageMachineRequest{MachineId: "m-maint", RequestId: "q"}))
	}},
	{"NUL in a comment", invalid, "INVALID_FIELD", "comment", func(ctx context.Context, r *rig) error {
		return only(r.Machines.EnterMaintenance(ctx, &pb.EnterMaintenanceRequest{MachineId: "m-1", RequestId: "q",
			Comment: "\x00"}))
	}},
	{"nothing to configure", invalid, "INVALID_FIELD", "config", reconfigure(nil)},
	{"empty configuration", invalid, "INVALID_FIELD", "config", reconfigure(&pb.NetReconfig{})},
	{"bad address", invalid, "INVALID_FIELD", "config.interfaces[0].addresses[0]", reconfigure(&pb.NetReconfig{
		Interfaces: []*pb.NetworkInterface{{Name: "eth0", Addresses: []string{"192.0.2.7"}}},
	})},
	{"bad host name", invalid, "INVALID_FIELD", "config.hostname", reconfigure(&pb.NetReconfig{Hostname: "-web"})},
	{"bad CIDR", invalid, "INVALID_FIELD", "config.firewall.allow[1].source_cidr", reconfigure(rules(
		&pb.FirewallRule{Protocol: "tcp", PortFrom: 22},
		&pb.FirewallRule{Protocol: "tcp", PortFrom: 22, SourceCidr: "10.0.0.0/40"}))},
	{"bad protocol", invalid, "INVALID_FIELD", "config.firewall.allow[0].protocol",
		reconfigure(rules(&pb.FirewallRule{Protocol: "sctp"}))},
	{"ports backwards", invalid, "INVALID_FIELD", "config.firewall.allow[0].port_to",
		reconfigure(rules(&pb.FirewallRule{Protocol: "udp", PortFrom: 9, PortTo: 8}))},
	{"bad default", invalid, "INVALID_FIELD", "config.firewall.default_input",
		reconfigure(&pb.NetReconfig{Firewall: &pb.FirewallPolicy{DefaultInput: "reject"}})},
	{"unknown run type", invalid, "UNKNOWN_RUN_TYPE", "type",
		run(&pb.StartRunRequest{MachineId: "m-1", RequestId: "q", Type: "DANCE"})},
	{"no run type", invalid, "UNKNOWN_RUN_TYPE", "type", run(&pb.StartRunRequest{MachineId: "m-1", RequestId: "q"})},
	{"zero run type", invalid, "UNKNOWN_RUN_TYPE", "type",
		run(&pb.StartRunRequest{MachineId: "m-1", RequestId: "q", Type: "OPERATION_TYPE_UNSPECIFIED"})},
	{"RUN_PLAN without one", invalid, "INVALID_FIELD", "plan_id",
		run(&pb.StartRunRequest{MachineId: "m-1", RequestId: "q", Type: "RUN_PLAN"})},
	{"unknown param", invalid, "INVALID_FIELD", "params[colour]",
		run(&pb.StartRunRequest{MachineId: "m-1", RequestId: "q", Type: "REBOOT",
			Params: map[string]string{"colour": "red"}})},
	{"bad param", invalid, "INVALID_FIELD", "params[timeout_seconds]",
		run(&pb.StartRunRequest{MachineId: "m-1", RequestId: "q", Type: "REBOOT",
			Params: map[string]string{"timeout_seconds": "soon"}})},
	{"bad config param", invalid, "INVALID_FIELD", "params[config]",
		run(&pb.StartRunRequest{MachineId: "m-1", RequestId: "q", Type: "NET_RECONFIG",
			Params: map[string]string{"config": "{"}})},
	{"reboot and plan", invalid, "INVALID_FIELD", "params[reboot]",
		run(&pb.StartRunRequest{MachineId: "m-1", RequestId: "q", Type: "NETBOOT", PlanId: "netboot",
			Params: map[string]string{"reboot": "true"}})},
	{"a workflow as a run", invalid, "INVALID_FIELD", "type",
		run(&pb.StartRunRequest{MachineId: "m-no", RequestId: "q", Type: "DECOMMISSION"})},
	{"validated first", invalid, "INVALID_FIELD", "machine_id", run(&pb.StartRunRequest{RequestId: "q", Type: "RMA"})},
	{"no cluster named", precondition, "CLUSTER_NOT_CONFIGURED", "params[target_cluster_ref]",
		run(&pb.StartRunRequest{MachineId: "m-maint", RequestId: "q", PlanId: "upgrade"})},
	{"plan that changes the phase", invalid, "INVALID_FIELD", "plan_id",
		run(&pb.StartRunRequest{MachineId: "m-1", RequestId: "q", PlanId: "enter-maintenance"})},
	{"work in maintenance's clothes", invalid, "INVALID_FIELD", "plan_id",
		run(&pb.StartRunRequest{MachineId: "m-1", RequestId: "q", Type: "ENTER_MAINTENANCE", PlanId: "repave"})},
	{"cancel unknown", notFound, "OPERATION_NOT_FOUND", "operation_id", func(ctx context.Context, r *rig) error {
		return only(r.Machines.CancelOperation(ctx, &pb.CancelOperationRequest{OperationId: "op-no"}))
	}},
	{"cancel none", invalid, "INVALID_FIELD", "run_id", func(ctx context.Context, r *rig) error {
		return only(r.Runs.CancelRun(ctx, &pb.CancelRunRequest{}))
	}},
	{"cancel finished", precondition, "OPERATION_FINISHED", "", func(ctx context.Context, r *rig) error {
		all, err := r.Operations.ListOperations(ctx, &pb.ListOperationsRequest{Filter: "machine_id=m-maint"})
		if err != nil {
			return err
		}
		return only(r.Machines.CancelOperation(ctx,
			&pb.CancelOperationRequest{OperationId: all.GetOperations()[0].GetOperationId()}))
	}},
}

var badOthers = []badCall{
	{"get operation", notFound, "OPERATION_NOT_FOUND", "", func(ctx context.Context, r *rig) error {
		return only(r.Operations.GetOperation(ctx, &pb.GetOperationRequest{OperationId: "op-no"}))
	}},
	{"get run", notFound, "OPERATION_NOT_FOUND", "", func(ctx context.Context, r *rig) error {
		return only(r.Runs.GetRun(ctx, &pb.GetRunRequest{RunId: "op-no"}))
	}},
	{"get plan", notFound, "PLAN_NOT_FOUND", "plan_id", func(ctx context.Context, r *rig) error {
		return only(r.Plans.GetPlan(ctx, &pb.GetPlanRequest{PlanId: "no"}))
	}},
	{"no plan", invalid, "INVALID_FIELD", "plan", createPlan(nil)},
	{"plan id", invalid, "INVALID_FIELD", "plan.plan_id", createPlan(&pb.Plan{PlanId: "A!"})},
	{"no steps", invalid, "INVALID_FIELD", "plan.steps", createPlan(&pb.Plan{PlanId: "p"})},
	{"unknown step kind", invalid, "UNKNOWN_STEP_KIND", "plan.steps[0]",
		createPlan(&pb.Plan{Steps: []*pb.Step{{Name: "a"}}})},
	{"step twice", invalid, "DUPLICATE_STEP_NAME", "plan.steps[1].name",
		createPlan(&pb.Plan{Steps: []*pb.Step{publictest.Step("a"), publictest.Step("a")}})},
	{"step's host name", invalid, "INVALID_FIELD", "plan.steps[0].net.hostname", createPlan(&pb.Plan{Steps: []*pb.Step{
		{Name: "a", Kind: &pb.Step_Net{Net: &pb.NetReconfig{Hostname: "_"}}}}})},
	{"built-in plan", exists, "PLAN_IMMUTABLE", "plan.plan_id",
		createPlan(&pb.Plan{PlanId: "reboot", Steps: []*pb.Step{publictest.Step("a")}})},
	{"watch filter", invalid, "INVALID_FILTER", "filter", watchOps(&pb.WatchOperationsRequest{Filter: "run_id=x"})},
	{"watch cursor", invalid, "INVALID_CURSOR", "cursor", watchOps(&pb.WatchOperationsRequest{Cursor: "!"})},
	{"watch unknown", notFound, "OPERATION_NOT_FOUND", "",
		watchOps(&pb.WatchOperationsRequest{Filter: "operation_id=op-no"})},
	{"logs of unknown", notFound, "OPERATION_NOT_FOUND", "", logs(&pb.StreamOperationLogsRequest{OperationId: "op-no"})},
	{"logs of none", invalid, "INVALID_FIELD", "operation_id", logs(&pb.StreamOperationLogsRequest{})},
	{"logs before the start", invalid, "INVALID_FIELD", "after_seq",
		logs(&pb.StreamOperationLogsRequest{OperationId: "op-no", AfterSeq: -1})},
	{"node", notFound, "MACHINE_NOT_FOUND", "", func(ctx context.Context, r *rig) error {
		return only(r.Nodes.GetNode(ctx, &pb.GetNodeRequest{NodeId: "m-no"}))
	}},
	{"node history", invalid, "INVALID_FIELD", "offset", func(ctx context.Context, r *rig) error {
		return only(r.Nodes.GetNodeHistory(ctx, &pb.GetNodeHistoryRequest{NodeId: "m-1", Offset: -1}))
	}},
	{"node transition", invalid, "REQUEST_ID_REQUIRED", "request_id", func(ctx context.Context, r *rig) error {
		return only(r.Nodes.TransitionNode(ctx, &pb.TransitionNodeRequest{State: pb.NodeState_NODE_STATE_REPROVISION}))
	}},
	{"workflow without a request id", invalid, "REQUEST_ID_REQUIRED", "request_id",
		func(ctx context.Context, r *rig) error {
			return only(r.Workflows.StartWorkflow(ctx, &pb.StartWorkflowRequest{}))
		}},
	{"workflow of no kind", invalid, "INVALID_FIELD", "kind", startWorkflow(&pb.StartWorkflowRequest{})},
	{"onboarding with a mode", invalid, "INVALID_FIELD", "mode",
		startWorkflow(&pb.StartWorkflowRequest{Kind: pb.Workflow_ONBOARDING, Mode: pb.Workflow_REIMAGE})},
	{"decommission without a mode", invalid, "INVALID_FIELD", "mode",
		startWorkflow(&pb.StartWorkflowRequest{Kind: pb.Workflow_DECOMMISSION})},
	{"workflow with a plan", invalid, "INVALID_FIELD", "plan_id",
		startWorkflow(&pb.StartWorkflowRequest{Kind: pb.Workflow_ONBOARDING, PlanId: "repave"})},
	{"workflow with an unknown parameter", invalid, "INVALID_FIELD", "params",
		startWorkflow(&pb.StartWorkflowRequest{Kind: pb.Workflow_ONBOARDING, Params: map[string]string{"x": "y"}})},
	{"onboarding by no path", invalid, "INVALID_FIELD", "params[path]",
		startWorkflow(&pb.StartWorkflowRequest{Kind: pb.Workflow_ONBOARDING, Params: map[string]string{"path": "air"}})},
	{"workflow outside maintenance", precondition, "WRONG_PHASE", "",
		startWorkflow(&pb.StartWorkflowRequest{Kind: pb.Workflow_ONBOARDING, Params: map[string]string{"path": "adopt"}})},
	{"soft reset of a new machine", precondition, "NODE_TRANSITION_ILLEGAL", "",
		startWorkflow(&pb.StartWorkflowRequest{Kind: pb.Workflow_DECOMMISSION, Mode: pb.Workflow_SOFT_RESET})},
	{"unknown workflow", notFound, "WORKFLOW_NOT_FOUND", "workflow_id", func(ctx context.Context, r *rig) error {
		return only(r.Workflows.GetWorkflow(ctx, &pb.GetWorkflowRequest{WorkflowId: "wf-no"}))
	}},
	{"workflow filter", invalid, "INVALID_FILTER", "filter", func(ctx context.Context, r *rig) error {
		return only(r.Workflows.ListWorkflows(ctx, &pb.ListWorkflowsRequest{Filter: "state=SLEEPING"}))
	}},
	{"no action", invalid, "INVALID_FIELD", "action", func(ctx context.Context, r *rig) error {
		return only(r.Workflows.ActOnWorkflow(ctx, &pb.ActOnWorkflowRequest{WorkflowId: "wf-no", RequestId: "x"}))
	}},
	{"action on an unknown workflow", notFound, "WORKFLOW_NOT_FOUND", "workflow_id",
		func(ctx context.Context, r *rig) error {
			return only(r.Workflows.ActOnWorkflow(ctx, &pb.ActOnWorkflowRequest{WorkflowId: "wf-no", RequestId: "x",
				Action: pb.WorkflowAction_WORKFLOW_ACTION_RESUME}))
		}},
	{"token for no machine", invalid, "INVALID_FIELD", "machine_id", token(&pb.IssueBootstrapTokenRequest{})},
	{"token for an unknown machine", notFound, "MACHINE_NOT_FOUND", "",
		token(&pb.IssueBootstrapTokenRequest{MachineId: "m-no"})},
	{"token for no site", invalid, "INVALID_FIELD", "site",
		token(&pb.IssueBootstrapTokenRequest{Role: pb.AgentRole_AGENT_ROLE_SITE})},
	{"token of a year", invalid, "INVALID_FIELD", "lifetime",
		token(&pb.IssueBootstrapTokenRequest{MachineId: "m-1", Lifetime: durationpb.New(365 * 24 * time.Hour)})},
	{"token bound to a bad MAC", invalid, "INVALID_FIELD", "mac_address",
		token(&pb.IssueBootstrapTokenRequest{MachineId: "m-1", MacAddress: "x"})},
	{"installer token", invalid, "INVALID_FIELD", "role",
		token(&pb.IssueBootstrapTokenRequest{Role: pb.AgentRole_AGENT_ROLE_INSTALLER})},
	{"revoke unknown token", notFound, "TOKEN_NOT_FOUND", "token_id", func(ctx context.Context, r *rig) error {
		return only(r.Admin.RevokeBootstrapToken(ctx, &pb.RevokeBootstrapTokenRequest{TokenId: "t-no"}))
	}},
	{"agent", notFound, "AGENT_NOT_FOUND", "agent_id", func(ctx context.Context, r *rig) error {
		return only(r.Admin.GetAgent(ctx, &pb.GetAgentRequest{AgentId: "a-no"}))
	}},
	{"revoke unknown agent", notFound, "AGENT_NOT_FOUND", "agent_id", func(ctx context.Context, r *rig) error {
		return only(r.Admin.RevokeAgent(ctx, &pb.RevokeAgentRequest{AgentId: "a-no"}))
	}},
	{"fingerprint", invalid, "INVALID_FIELD", "fingerprint", func(ctx context.Context, r *rig) error {
		return only(r.Admin.RevokeAgent(ctx, &pb.RevokeAgentRequest{AgentId: "a-no", Fingerprint: "AB"}))
	}},
	{"verdict", invalid, "INVALID_FIELD", "verdict", func(ctx context.Context, r *rig) error {
		return only(r.Admin.SettleCommand(ctx, &pb.SettleCommandRequest{MachineId: "m-1", CommandId: "c", Verdict: "maybe"}))
	}},
	{"a verdict without a reason", invalid, "INVALID_FIELD", "comment", func(ctx context.Context, r *rig) error {
		return only(r.Admin.SettleCommand(ctx, &pb.SettleCommandRequest{MachineId: "m-1", CommandId: "c", Verdict: "happened",
			Comment: " - "}))
	}},
	{"nothing to settle", precondition, "NOTHING_TO_SETTLE", "", func(ctx context.Context, r *rig) error {
		return only(r.Admin.SettleCommand(ctx, &pb.SettleCommandRequest{MachineId: "m-1", CommandId: "c",
			Verdict: "happened", Comment: "looked at it"}))
	}},
	{"flag", invalid, "INVALID_FIELD", "flag", func(ctx context.Context, r *rig) error {
		return only(r.Admin.SetMachineFlag(ctx, &pb.SetMachineFlagRequest{MachineId: "m-1", Flag: "Degraded"}))
	}},
	{"clear unknown", notFound, "MACHINE_NOT_FOUND", "", func(ctx context.Context, r *rig) error {
		return only(r.Admin.ClearIntervention(ctx, &pb.ClearInterventionRequest{MachineId: "m-no"}))
	}},
	{"commands of nothing", invalid, "INVALID_FIELD", "operation_id", func(ctx context.Context, r *rig) error {
		return only(r.Admin.ListCommands(ctx, &pb.ListCommandsRequest{}))
	}},
	{"commands of unknown", notFound, "OPERATION_NOT_FOUND", "", func(ctx context.Context, r *rig) error {
		return only(r.Admin.ListCommands(ctx, &pb.ListCommandsRequest{OperationId: "op-no"}))
	}},
	{"too many heads", invalid, "INVALID_FIELD", "heads", func(ctx context.Context, r *rig) error {
		return only(r.Admin.GetHeadVerdicts(ctx, &pb.GetHeadVerdictsRequest{Heads: make([]*pb.HistoryHead, 201)}))
	}},
	{"a head without its hash", invalid, "INVALID_FIELD", "heads[0].head_hash", func(ctx context.Context, r *rig) error {
		return only(r.Admin.GetHeadVerdicts(ctx, &pb.GetHeadVerdictsRequest{Heads: []*pb.HistoryHead{{Entries: 1}}}))
	}},
	{"scrub nothing", invalid, "INVALID_FIELD", "target_id", func(ctx context.Context, r *rig) error {
		return only(r.Admin.ScrubAuditEventData(ctx, &pb.ScrubAuditEventDataRequest{}))
	}},
}

func startWorkflow(q *pb.StartWorkflowRequest) func(context.Context, *rig) error {
	return func(ctx context.Context, r *rig) error {
		q.MachineId, q.RequestId = "m-1", "bad-workflow"
		return only(r.Workflows.StartWorkflow(ctx, q))
	}
}

// TestBadInput: every refusal has its code, its reason and the field at fault, and none changes anything.
func TestBadInput(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(&pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{MacAddresses: []string{"52:54:00:00:00:01"},
		ExternalId: "ext-1"}})
	r.Register(&pb.Machine{MachineId: "m-busy"})
	r.Enter("m-busy", "first")
	r.Register(&pb.Machine{MachineId: "m-maint"})
	r.Maintenance("m-maint")
	r.Register(&pb.Machine{MachineId: "m-ready"})
	r.Maintenance("m-ready")
	before := r.Everything()
	for name, cases := range map[string][]badCall{"machines": badMachines, "lists": badLists, "starts": badStarts,
		"others": badOthers} {
		for _, c := range cases {
			t.Run(name+"/"+c.name, func(t *testing.T) { publictest.Wants(t, c.call(t.Context(), r), c.kind, c.reason, c.field) })
		}
	}
	if after := r.Everything(); after != before {
		t.Errorf("refused calls changed something:\n%s\n%s", before, after)
	}
}
