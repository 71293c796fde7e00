package machine_test

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
)

// info is the reason of an error and what stands beside it.
func info(err error) *errdetails.ErrorInfo {
	for _, d := range status.Convert(err).Details() {
		if i, ok := d.(*errdetails.ErrorInfo); ok {
			return i
		}
	}
	return nil
}

func refused(t *testing.T, what string, err error, reason string) {
	t.Helper()
	if got := info(err).GetReason(); got != reason {
		t.Errorf("%s: %s, not %s (%v)", what, got, reason, err)
	}
}

func TestUpdateWithLabelsAloneKeepsTheSpec(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	spec := &pb.MachineSpec{SshEndpoint: "10.0.0.1:22", Rack: "r1", MacAddresses: []string{"52:54:00:00:00:01"},
		ExternalId: "up-1"}
	r.Register(&pb.Machine{MachineId: "m-1", Labels: map[string]string{"env": "prod", "tier": "a"}, Spec: spec})
	got, err := r.Machines.UpdateMachine(ctx,
		&pb.UpdateMachineRequest{Machine: &pb.Machine{MachineId: "m-1", Labels: map[string]string{"env": "test"}}})
	if err != nil || got.GetSpec().GetSshEndpoint() != "10.0.0.1:22" || len(got.GetSpec().GetMacAddresses()) != 1 ||
		len(got.GetLabels()) != 1 {
		t.Fatalf("labels alone made it %v, %v", got, err)
	}
	got, err = r.Machines.UpdateMachine(ctx, &pb.UpdateMachineRequest{
		Machine:    &pb.Machine{MachineId: "m-1", Labels: map[string]string{"row": "7"}},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"labels.row", "spec.rack"}},
	})
	if err != nil || got.GetSpec().GetRack() != "" || got.GetLabels()["row"] != "7" || got.GetLabels()["env"] != "test" ||
		got.GetSpec().GetSshEndpoint() == "" {
		t.Errorf("a mask made it %v, %v", got, err)
	}
	_, err = r.Machines.UpdateMachine(ctx, &pb.UpdateMachineRequest{
		Machine: &pb.Machine{MachineId: "m-1"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"spec.colour"}},
	})
	if status.Code(err) != codes.InvalidArgument {
		t.Errorf("an unknown path: %v", err)
	}
	_, err = r.Machines.UpdateMachine(ctx, &pb.UpdateMachineRequest{
		Machine: &pb.Machine{MachineId: "m-1"}, UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"spec.external_id"}},
	})
	refused(t, "clearing the external id", err, "EXTERNAL_ID_IMMUTABLE")
	got, err = r.Machines.UpdateMachine(ctx, &pb.UpdateMachineRequest{
		Machine:    &pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{Rack: "r2"}},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"*"}},
	})
	if err != nil || len(got.GetLabels()) != 0 || got.GetSpec().GetSshEndpoint() != "" ||
		got.GetSpec().GetRack() != "r2" || got.GetSpec().GetExternalId() != "up-1" {
		t.Errorf("a mask of everything made it %v, %v", got, err)
	}
}

func TestRegisteringAKnownMachineClearsNothing(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	first := r.Register(&pb.Machine{MachineId: "m-1", Labels: map[string]string{"env": "prod"},
		Spec: &pb.MachineSpec{Rack: "r1", MacAddresses: []string{"52:54:00:00:00:01"}}})
	again := r.Register(&pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{Serial: "SN1"}})
	if again.GetSpec().GetRack() != "r1" || again.GetSpec().GetSerial() != "SN1" ||
		len(again.GetSpec().GetMacAddresses()) != 1 || again.GetLabels()["env"] != "prod" {
		t.Errorf("registered again it is %v", again)
	}
	_, err := r.Machines.RegisterMachine(ctx,
		&pb.RegisterMachineRequest{Machine: &pb.Machine{MachineId: "m-1", Version: first.GetVersion()}})
	refused(t, "registering with an old version", err, "VERSION_CONFLICT")
	_, err = r.Machines.RegisterMachine(ctx,
		&pb.RegisterMachineRequest{Machine: &pb.Machine{MachineId: "m-2",
			Spec: &pb.MachineSpec{MacAddresses: []string{"52:54:00:00:00:01"}}}})
	refused(t, "the MAC of another machine", err, "MAC_ADDRESS_IN_USE")
}

func TestCreateOnlyTakesNobodysMachine(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	req := &pb.RegisterMachineRequest{Machine: &pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{Rack: "r1"}},
		CreateOnly: true, RequestId: "apply-1"}
	first, err := r.Machines.RegisterMachine(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.Machines.RegisterMachine(ctx, req)
	if err != nil || again.GetVersion() != first.GetVersion() {
		t.Errorf("the same request again is %v, %v", again, err)
	}
	req.RequestId, req.Machine.Spec.Rack = "apply-2", "r2"
	_, err = r.Machines.RegisterMachine(ctx, req)
	refused(t, "another create", err, "MACHINE_EXISTS")
	if m, err := r.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: "m-1"}); err != nil ||
		m.GetSpec().GetRack() != "r1" {
		t.Errorf("afterwards it is %v, %v", m, err)
	}
	for _, bad := range []*pb.RegisterMachineRequest{
		{Machine: &pb.Machine{MachineId: "m-3"}, CreateOnly: true, ExpectedVersion: 1},
		{Machine: &pb.Machine{}, CreateOnly: true, RequestId: "apply-3"},
		{Machine: &pb.Machine{MachineId: "m-3"}, ExpectedVersion: -1},
		{Machine: &pb.Machine{MachineId: "-x"}}, {Machine: &pb.Machine{MachineId: "."}},
		{Machine: &pb.Machine{MachineId: ".."}},
		{Machine: &pb.Machine{MachineId: "m-3"}, RequestId: "   "},
	} {
		if _, err := r.Machines.RegisterMachine(ctx, bad); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// TestLostUpdatesAreRefusedOfEverythingVersioned writes each thing twice under the version that was read first.
func TestLostUpdatesAreRefusedOfEverythingVersioned(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	r.Register(&pb.Machine{MachineId: "m-1"})
	step := []*pb.Step{{Name: "a", Kind: &pb.Step_Reboot{Reboot: &pb.Reboot{}}}}
	n := int32(0)
	for name, write := range map[string]func(expected int64) (int64, error){
		"machine": func(v int64) (int64, error) {
			n++
			m, err := r.Machines.UpdateMachine(ctx,
				&pb.UpdateMachineRequest{Machine: &pb.Machine{MachineId: "m-1", Labels: map[string]string{"n": fmt.Sprint(n)}},
					ExpectedVersion: v})
			return m.GetVersion(), err
		},
		"node": func(v int64) (int64, error) {
			n++
			m, err := r.Nodes.UpdateNode(ctx, &pb.UpdateNodeRequest{NodeId: "m-1", Group: fmt.Sprint("g", n),
				ExpectedVersion: v})
			return m.GetMachine().GetVersion(), err
		},
		"budget": func(v int64) (int64, error) {
			n++
			b, err := r.Budgets.SetBudget(ctx, &pb.SetBudgetRequest{Budget: &pb.Budget{Name: "b", Domain: "fleet", AtOnce: n},
				ExpectedVersion: v})
			return b.GetVersion(), err
		},
		"site": func(v int64) (int64, error) {
			n++
			s, err := r.Admin.SetSite(ctx, &pb.SetSiteRequest{Site: "berlin", ExpectedVersion: v, Segments: []*pb.Segment{{
				Name: fmt.Sprint("s", n), Interface: "eth0", Address: "10.20.0.1/24", PoolStart: "10.20.0.10",
				PoolEnd: "10.20.0.20",
			}}})
			return s.GetVersion(), err
		},
		"group": func(v int64) (int64, error) {
			g, err := r.Nodes.SetNodeGroup(ctx, &pb.SetNodeGroupRequest{Group: "web", AutoPromote: true, ExpectedVersion: v})
			return g.GetVersion(), err
		},
		"plan": func(v int64) (int64, error) {
			n++
			p, err := r.Plans.CreatePlan(ctx,
				&pb.CreatePlanRequest{Plan: &pb.Plan{PlanId: "plan/mine", DisplayName: fmt.Sprint(n), Steps: step},
					ExpectedVersion: v})
			return p.GetVersion(), err
		},
		"credentials": func(v int64) (int64, error) {
			c, err := r.Admin.SetBMCCredentials(ctx, &pb.SetBMCCredentialsRequest{CredentialsRef: "rack", Username: "u",
				Password: "p", AllowedEndpoints: []string{"10.20.30.41"}, ExpectedVersion: v})
			return c.GetVersion(), err
		},
	} {
		first, err := write(0)
		if err != nil || first == 0 {
			t.Errorf("%s: version %d, %v", name, first, err)
			continue
		}
		second, err := write(first)
		if err != nil || second <= first {
			t.Errorf("%s: from version %d to %d, %v", name, first, second, err)
		}
		_, err = write(first)
		refused(t, name, err, "VERSION_CONFLICT")
		if third, err := write(second); err != nil || third <= second {
			t.Errorf("%s: after a refused write, from version %d to %d, %v", name, second, third, err)
		}
	}
	_, err := r.Budgets.SetBudget(ctx, &pb.SetBudgetRequest{Budget: &pb.Budget{Name: "b", Domain: "fleet", AtOnce: 1},
		CreateOnly: true})
	refused(t, "create_only of a budget", err, "RESOURCE_EXISTS")
	_, err = r.Plans.CreatePlan(ctx, &pb.CreatePlanRequest{Plan: &pb.Plan{PlanId: "plan/mine", Steps: step},
		CreateOnly: true})
	refused(t, "create_only of a plan", err, "PLAN_EXISTS")
	_, err = r.Budgets.DeleteBudget(ctx, &pb.DeleteBudgetRequest{Name: "b", ExpectedVersion: 1})
	refused(t, "deleting an old version", err, "VERSION_CONFLICT")
	_, err = r.Machines.DeleteMachine(ctx, &pb.DeleteMachineRequest{MachineId: "m-1", ExpectedVersion: 1})
	refused(t, "deleting an old machine", err, "VERSION_CONFLICT")
}

func TestUnusedPlansAreDeletedAndUsedOnesStay(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	step := []*pb.Step{{Name: "a", Kind: &pb.Step_Reboot{Reboot: &pb.Reboot{}}}}
	for _, id := range []string{"plan/unused", "plan/used", "plan/named"} {
		if _, err := r.Plans.CreatePlan(ctx, &pb.CreatePlanRequest{Plan: &pb.Plan{PlanId: id, Steps: step}}); err != nil {
			t.Fatal(err)
		}
	}
	r.Register(&pb.Machine{MachineId: "m-1"})
	r.Maintenance("m-1")
	if _, err := r.Runs.StartRun(ctx, &pb.StartRunRequest{MachineId: "m-1", RequestId: "r-1",
		PlanId: "plan/used"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Nodes.UpdateNode(ctx, &pb.UpdateNodeRequest{NodeId: "m-1", PlanId: "plan/named"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Plans.DeletePlan(ctx, &pb.DeletePlanRequest{PlanId: "plan/unused"}); err != nil {
		t.Errorf("delete an unused plan: %v", err)
	}
	_, err := r.Plans.GetPlan(ctx, &pb.GetPlanRequest{PlanId: "plan/unused"})
	refused(t, "reading it afterwards", err, "PLAN_NOT_FOUND")
	for _, id := range []string{"plan/used", "plan/named", "reboot"} {
		_, err := r.Plans.DeletePlan(ctx, &pb.DeletePlanRequest{PlanId: id})
		refused(t, id, err, "PLAN_IN_USE")
	}
	log, err := r.Admin.ListAuditLog(ctx, &pb.ListAuditLogRequest{TargetId: "plan/unused"})
	if err != nil || len(log.GetEntries()) != 2 || log.GetEntries()[0].GetVerb() != "DELETE_PLAN" ||
		log.GetEntries()[1].GetVerb() != "CREATE_PLAN" {
		t.Errorf("the audit log has %v, %v", log.GetEntries(), err)
	}
}

func TestATokenRequestCanBeRepeated(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	r.Register(&pb.Machine{MachineId: "m-1"})
	req := &pb.IssueBootstrapTokenRequest{MachineId: "m-1", RequestId: "enrol-1"}
	first, err := r.Admin.IssueBootstrapToken(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.Admin.IssueBootstrapToken(ctx, req)
	if err != nil || again.GetBundle() != first.GetBundle() ||
		again.GetToken().GetTokenId() != first.GetToken().GetTokenId() {
		t.Errorf("the same request again gave %v, %v", again, err)
	}
	other, err := r.Admin.IssueBootstrapToken(ctx, &pb.IssueBootstrapTokenRequest{MachineId: "m-1", RequestId: "enrol-2"})
	if err != nil || other.GetBundle() == first.GetBundle() {
		t.Errorf("another request gave %v, %v", other, err)
	}
	_, err = r.Admin.IssueBootstrapToken(ctx, &pb.IssueBootstrapTokenRequest{MachineId: "m-1", RequestId: "enrol-1",
		Lifetime: durationpb.New(time.Hour)})
	refused(t, "another body", err, "REQUEST_ID_REUSED")
	if _, err := r.Admin.RevokeBootstrapToken(ctx,
		&pb.RevokeBootstrapTokenRequest{TokenId: first.GetToken().GetTokenId()}); err != nil {
		t.Fatal(err)
	}
	_, err = r.Admin.IssueBootstrapToken(ctx, req)
	refused(t, "a revoked token", err, "TOKEN_SPENT")
	all, err := r.Admin.ListBootstrapTokens(ctx, &pb.ListBootstrapTokensRequest{})
	if err != nil || len(all.GetTokens()) != 2 || all.GetTotalSize() != 2 {
		t.Errorf("the tokens are %v, %v", all, err)
	}
}

func TestADeletedMachineIsNotFound(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	r.Register(&pb.Machine{MachineId: "m-1"})
	if gone, err := r.Machines.DeleteMachine(ctx, &pb.DeleteMachineRequest{MachineId: "m-1"}); err != nil ||
		gone.GetDeletedAt() == nil {
		t.Fatalf("%v, %v", gone, err)
	}
	_, err := r.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: "m-1"})
	refused(t, "reading a tombstone", err, "MACHINE_NOT_FOUND")
	if h, err := r.Machines.GetMachineTimeline(ctx, &pb.GetMachineTimelineRequest{MachineId: "m-1"}); err != nil ||
		len(h.GetEntries()) == 0 {
		t.Errorf("its history is %v, %v", h, err)
	}
}

func TestWatchingAnUnknownMachineFailsAtOnce(t *testing.T) {
	r := publictest.NewRig(t)
	ops, err := r.Operations.WatchOperations(t.Context(), &pb.WatchOperationsRequest{Filter: "machine_id=m-none"})
	if err == nil {
		_, err = ops.Recv()
	}
	refused(t, "operations", err, "MACHINE_NOT_FOUND")
	runs, err := r.Runs.WatchRuns(t.Context(), &pb.WatchRunsRequest{Filter: "machine_id=m-none"})
	if err == nil {
		_, err = runs.Recv()
	}
	refused(t, "runs", err, "MACHINE_NOT_FOUND")
}

func TestAnExplicitDefaultIsNoOtherRequest(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	r.Register(&pb.Machine{MachineId: "m-1"})
	r.Maintenance("m-1")
	first, err := r.Machines.RebootMachine(ctx, &pb.RebootMachineRequest{MachineId: "m-1", RequestId: "r-1"})
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.Machines.RebootMachine(ctx, &pb.RebootMachineRequest{MachineId: "m-1", RequestId: "r-1",
		Mode: "graceful", PlanId: "reboot"})
	if err != nil || again.GetOperationId() != first.GetOperationId() {
		t.Errorf("with its defaults spelled out it is %v, %v", again, err)
	}
	_, err = r.Machines.RebootMachine(ctx, &pb.RebootMachineRequest{MachineId: "m-1", RequestId: "r-1", Mode: "force"})
	refused(t, "another mode", err, "REQUEST_ID_REUSED")
	read, err := r.Operations.GetOperation(ctx, &pb.GetOperationRequest{OperationId: first.GetOperationId()})
	if err != nil || !first.GetCreatedAt().AsTime().Equal(read.GetCreatedAt().AsTime()) {
		t.Errorf("created at %v, read as %v, %v", first.GetCreatedAt(), read.GetCreatedAt(), err)
	}
}

func TestARepeatedCancelSaysWhatBecameOfTheFirst(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	r.Register(&pb.Machine{MachineId: "m-1"})
	r.Maintenance("m-1")
	op, err := r.Machines.RebootMachine(ctx, &pb.RebootMachineRequest{MachineId: "m-1", RequestId: "r-1", Mode: "bmc"})
	if err != nil {
		t.Fatalf("reboot out of band: %v", err)
	}
	if got, err := r.Machines.CancelOperation(ctx,
		&pb.CancelOperationRequest{OperationId: op.GetOperationId()}); err != nil || got.GetPhase() != pb.Operation_CANCELED {
		t.Fatalf("%v, %v", got, err)
	}
	_, err = r.Machines.CancelOperation(ctx, &pb.CancelOperationRequest{OperationId: op.GetOperationId()})
	e := info(err)
	if e.GetReason() != "OPERATION_FINISHED" || e.GetMetadata()["operation_id"] != op.GetOperationId() ||
		e.GetMetadata()["phase"] != "CANCELED" {
		t.Errorf("the repeat is %v", err)
	}
}

// TestOneBMCIsOfOneMachine: however it is written, and not of machines of other sites or other systems behind it.
func TestOneBMCIsOfOneMachine(t *testing.T) {
	r := publictest.NewRig(t)
	register := func(id, site, bmc string) error {
		_, err := r.Machines.RegisterMachine(t.Context(), &pb.RegisterMachineRequest{Machine: &pb.Machine{MachineId: id,
			Spec: &pb.MachineSpec{Site: site, BmcEndpoint: bmc}}})
		return err
	}
	for id, at := range map[string][2]string{"m-1": {"lab", "198.51.100.15"}, "m-2": {"oslo", "198.51.100.15"},
		"m-3": {"lab", "redfish://198.51.100.15/redfish/v1/Systems/2"}, "m-4": {"lab", "198.51.100.15:8443"}} {
		if err := register(id, at[0], at[1]); err != nil {
			t.Errorf("%s at %v: %v", id, at, err)
		}
	}
	for _, bmc := range []string{"198.51.100.15", "redfish://198.51.100.15", "ipmi://198.51.100.15:623",
		"redfish://198.51.100.15:443"} {
		refused(t, bmc, register("m-5", "lab", bmc), "BMC_IN_USE")
	}
	refused(
		t,
		"the second system",
		register("m-5", "lab", "redfish://198.51.100.15:443/redfish/v1/Systems/2"),
		"BMC_IN_USE",
	)
	r.Register(&pb.Machine{MachineId: "m-6", Spec: &pb.MachineSpec{Site: "lab"}})
	refused(t, "a change", register("m-6", "lab", "ipmi://198.51.100.15"), "BMC_IN_USE")
	if err := register("m-1", "lab", "ipmi://198.51.100.15"); err != nil {
		t.Errorf("its own: %v", err)
	}
}

// TestValidateOnlyRegistersNothing: it refuses what the write would refuse, and leaves nothing behind.
func TestValidateOnlyRegistersNothing(t *testing.T) {
	r := publictest.NewRig(t)
	known := r.Register(&pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{MacAddresses: []string{"52:54:00:00:00:01"}}})
	ask := func(m *pb.Machine) (*pb.Machine, error) {
		return r.Machines.RegisterMachine(t.Context(), &pb.RegisterMachineRequest{Machine: m, ValidateOnly: true})
	}
	got, err := ask(&pb.Machine{MachineId: "m-2", Spec: &pb.MachineSpec{Rack: "r1"}})
	if err != nil || got.GetSpec().GetRack() != "r1" {
		t.Errorf("a new machine: %v, %v", got, err)
	}
	_, err = r.Machines.GetMachine(t.Context(), &pb.GetMachineRequest{MachineId: "m-2"})
	refused(t, "what was only checked", err, "MACHINE_NOT_FOUND")
	_, err = ask(&pb.Machine{MachineId: "m-3", Spec: &pb.MachineSpec{MacAddresses: []string{"52:54:00:00:00:01"}}})
	refused(t, "a MAC that is taken", err, "MAC_ADDRESS_IN_USE")
	if _, err = ask(&pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{Rack: "r2"}}); err != nil {
		t.Error(err)
	}
	if _, err = r.Machines.UpdateMachine(t.Context(), &pb.UpdateMachineRequest{ValidateOnly: true,
		Machine: &pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{Rack: "r3"}}}); err != nil {
		t.Error(err)
	}
	after, err := r.Machines.GetMachine(t.Context(), &pb.GetMachineRequest{MachineId: "m-1"})
	if err != nil || after.GetVersion() != known.GetVersion() || after.GetSpec().GetRack() != "" {
		t.Errorf("the known machine is %v, %v", after, err)
	}
	_, err = ask(&pb.Machine{MachineId: "srv7."})
	refused(t, "a name that is no host's", err, "INVALID_FIELD")
}
