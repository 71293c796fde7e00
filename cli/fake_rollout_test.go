package cli

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

var rolloutDigest = strings.Repeat("5f", 32)

func tally(pending, running, succeeded, failed int32) *pb.RolloutTally {
	return &pb.RolloutTally{
		Machines: pending + running + succeeded + failed, Pending: pending, Running: running, Succeeded: succeeded,
		Failed: failed, Done: succeeded, Left: pending + running,
	}
}

// someRollout is one of two waves over five machines, of which one was refused.
func someRollout(state pb.Rollout_State, first, second *pb.RolloutTally) *pb.Rollout {
	r := &pb.Rollout{
		RolloutId: "ro-1", RequestId: "r-1", Digest: rolloutDigest, State: state, Wave: 1, Destructive: true,
		CreatedBy: "alice", CreatedAt: at(0),
		Spec: &pb.RolloutSpec{Filter: "site=berlin", Type: "REPAVE", Title: "new image", Canary: 1,
			Params: map[string]string{"image_ref": "ubuntu-2204"}},
		Waves: []*pb.RolloutWave{{Wave: 1, Tally: first}, {Wave: 2, Tally: second}}, Version: 1,
	}
	r.Tally = &pb.RolloutTally{
		Machines: first.GetMachines() + second.GetMachines() + 1, Pending: first.GetPending() + second.GetPending(),
		Running: first.GetRunning() + second.GetRunning(), Succeeded: first.GetSucceeded() + second.GetSucceeded(),
		Failed: first.GetFailed() + second.GetFailed(), Skipped: 1, Done: first.GetDone() + second.GetDone(),
		Left: first.GetLeft() + second.GetLeft(),
	}
	return r
}

func (f *fakeServer) PreviewRollout(_ context.Context, r *pb.PreviewRolloutRequest) (*pb.RolloutPreview, error) {
	spec := proto.CloneOf(r.GetSpec())
	spec.OnGate, spec.MaxPerDomain = "pause", 1
	if spec.GetFilter() == "rack=none" {
		return &pb.RolloutPreview{Digest: rolloutDigest, Spec: spec}, nil
	}
	if spec.GetParams()["image_ref"] == "no-such" {
		return &pb.RolloutPreview{Digest: rolloutDigest, Spec: spec, Machines: []*pb.RolloutMachine{{MachineId: "machine-1",
			State: pb.RolloutMachine_SKIPPED, Reason: "IMAGE_NOT_FOUND", Message: "there is no image no-such",
			Code: int32(codes.NotFound)}}}, nil
	}
	return &pb.RolloutPreview{
		Digest: rolloutDigest, Spec: spec, Destructive: spec.GetType() != "REBOOT", InService: 1,
		Waves: []*pb.RolloutWave{{Wave: 1, Tally: tally(1, 0, 0, 0)}, {Wave: 2, Tally: tally(2, 0, 0, 0)}},
		Machines: []*pb.RolloutMachine{
			{MachineId: "machine-1", Wave: 1, Domain: "r1", State: pb.RolloutMachine_PENDING},
			{MachineId: "machine-2", Wave: 2, Domain: "r2", State: pb.RolloutMachine_PENDING},
			{MachineId: "machine-3", Wave: 2, State: pb.RolloutMachine_PENDING},
			{MachineId: "machine-4", State: pb.RolloutMachine_SKIPPED, Reason: "WRONG_PHASE",
				Message: "enter maintenance first"},
		},
		StepLists: []*pb.RolloutSteps{{PlanId: "repave", Machines: 3, DestructiveSteps: []string{"repave-os"},
			Steps: []*pb.Step{
				{Name: "set-netboot", Kind: &pb.Step_Netboot{Netboot: &pb.SetNetboot{}}},
				{Name: "repave-os", Kind: &pb.Step_Repave{Repave: &pb.RepaveImage{Image: "ubuntu-2204"}}},
			}}},
		Budgets: []*pb.RolloutBudget{{Name: "racks", Domain: "label:rack", Value: "r1", Kind: "at once", Limit: 1,
			Wanted: 2}},
	}, nil
}

func (f *fakeServer) CreateRollout(_ context.Context, r *pb.CreateRolloutRequest) (*pb.Rollout, error) {
	if r.GetRequestId() == "again" {
		if r.GetSpec().GetAction() != pb.RolloutSpec_PROVISION {
			return nil, refuse(codes.AlreadyExists, pb.Reason_REQUEST_ID_REUSED, "used for another rollout (ro-1)", nil)
		}
		return f.rollout("ro-1", func(*pb.Rollout) {})
	}
	if r.GetDigest() != rolloutDigest {
		return nil, refuse(codes.FailedPrecondition, pb.Reason_ROLLOUT_CHANGED,
			"fleet, plan or spec have changed since the preview", map[string]string{"digest": rolloutDigest})
	}
	out := someRollout(pb.Rollout_RUNNING, tally(0, 1, 0, 0), tally(3, 0, 0, 0))
	out.WaitReason, out.Message = "WAITING_FOR_MACHINES", "1 under way"
	if r.GetSpec().GetRequireApproval() {
		out.State, out.WaitReason, out.Message = pb.Rollout_AWAITING_APPROVAL, "WAITING_FOR_APPROVAL",
			"another person must approve it"
	}
	return out, nil
}

func (f *fakeServer) rollout(id string, change func(*pb.Rollout)) (*pb.Rollout, error) {
	if id != "ro-1" {
		return nil, refuse(codes.NotFound, pb.Reason_ROLLOUT_NOT_FOUND, "there is no rollout \""+id+"\"", nil)
	}
	r := someRollout(pb.Rollout_RUNNING, tally(0, 0, 1, 0), tally(1, 1, 0, 1))
	r.Wave, r.WaitReason, r.Message = 2, "WAITING_FOR_MACHINES", "1 under way"
	change(r)
	return r, nil
}

func (f *fakeServer) GetRollout(_ context.Context, r *pb.GetRolloutRequest) (*pb.Rollout, error) {
	return f.rollout(r.GetRolloutId(), func(*pb.Rollout) {})
}

func (f *fakeServer) ApproveRollout(_ context.Context, r *pb.ApproveRolloutRequest) (*pb.Rollout, error) {
	if r.GetDigest() != rolloutDigest {
		return nil, refuse(codes.PermissionDenied, pb.Reason_ROLLOUT_SELF_APPROVAL, "alice has created the rollout", nil)
	}
	return f.rollout(r.GetRolloutId(), func(ro *pb.Rollout) { ro.ApprovedBy, ro.ApprovedAt = "bob", at(30) })
}

func (f *fakeServer) PauseRollout(_ context.Context, r *pb.PauseRolloutRequest) (*pb.Rollout, error) {
	return f.rollout(r.GetRolloutId(), func(ro *pb.Rollout) {
		ro.State, ro.WaitReason = pb.Rollout_PAUSED,
			"PAUSED_BY_OPERATOR"
	})
}

func (f *fakeServer) ResumeRollout(_ context.Context, r *pb.ResumeRolloutRequest) (*pb.Rollout, error) {
	return f.rollout(r.GetRolloutId(), func(*pb.Rollout) {})
}

func (f *fakeServer) CancelRollout(_ context.Context, r *pb.CancelRolloutRequest) (*pb.Rollout, error) {
	return f.rollout(r.GetRolloutId(), func(ro *pb.Rollout) { ro.State = pb.Rollout_STOPPING })
}

// CreateSelection stores the named machines, and three for a filter.
func (f *fakeServer) CreateSelection(_ context.Context, r *pb.CreateSelectionRequest) (*pb.Selection, error) {
	n := int32(len(r.GetMachineIds()))
	switch r.GetFilter() {
	case "":
	case "rack=none":
		n = 0
	default:
		n = 3
	}
	return &pb.Selection{SelectionId: "sel-1", Count: n, Filter: r.GetFilter(), CreatedAt: at(0), ExpiresAt: at(3600)}, nil
}

// ListRollouts returns one rollout a page.
func (f *fakeServer) ListRollouts(_ context.Context, r *pb.ListRolloutsRequest) (*pb.ListRolloutsResponse, error) {
	one, err := f.rollout("ro-1", func(*pb.Rollout) {})
	if r.GetFilter() == "state=PAUSED" || r.GetFilter() == "state=STOPPING" {
		return &pb.ListRolloutsResponse{}, nil
	}
	if id, ok := strings.CutPrefix(r.GetFilter(), "request_id="); ok {
		if id == `"again"` {
			return &pb.ListRolloutsResponse{Rollouts: []*pb.Rollout{one}}, err
		}
		return &pb.ListRolloutsResponse{}, err
	}
	if r.GetPageToken() == "" {
		return &pb.ListRolloutsResponse{Rollouts: []*pb.Rollout{one}, NextPageToken: "2"}, err
	}
	old := someRollout(pb.Rollout_SUCCEEDED, tally(0, 0, 1, 0), tally(0, 0, 3, 0))
	old.RolloutId, old.FinishedAt = "ro-0", at(20)
	return &pb.ListRolloutsResponse{Rollouts: []*pb.Rollout{old}}, err
}

func (f *fakeServer) ListRolloutMachines(
	_ context.Context, r *pb.ListRolloutMachinesRequest,
) (*pb.ListRolloutMachinesResponse, error) {
	all := []*pb.RolloutMachine{
		{MachineId: "machine-1", Wave: 1, Domain: "r1", State: pb.RolloutMachine_SUCCEEDED, OperationId: "op-1",
			StartedAt: at(0), FinishedAt: at(9)},
		{MachineId: "machine-2", Wave: 2, Domain: "r2", State: pb.RolloutMachine_FAILED, OperationId: "op-2",
			Reason: "DISK_WRITE_ERROR"},
		{MachineId: "machine-4", State: pb.RolloutMachine_SKIPPED, Reason: "WRONG_PHASE", Message: "enter maintenance first"},
	}
	if r.GetFilter() == "state=FAILED" {
		all = all[1:2]
	}
	return &pb.ListRolloutMachinesResponse{Machines: all}, nil
}

// WatchRollout shows one that stops at a gate, is resumed and ends.
func (f *fakeServer) WatchRollout(r *pb.WatchRolloutRequest, stream grpc.ServerStreamingServer[pb.Rollout]) error {
	steps := []*pb.Rollout{
		someRollout(pb.Rollout_RUNNING, tally(0, 1, 0, 0), tally(3, 0, 0, 0)),
		someRollout(pb.Rollout_RUNNING, tally(0, 0, 1, 0), tally(3, 0, 0, 0)),
		someRollout(pb.Rollout_RUNNING, tally(0, 0, 1, 0), tally(2, 1, 0, 0)),
		someRollout(pb.Rollout_PAUSED, tally(0, 0, 1, 0), tally(2, 0, 0, 1)),
		someRollout(pb.Rollout_RUNNING, tally(0, 0, 1, 0), tally(0, 2, 0, 1)),
		someRollout(pb.Rollout_COMPLETED_WITH_FAILURES, tally(0, 0, 1, 0), tally(0, 0, 2, 1)),
	}
	for i, s := range steps {
		s.Version, s.Wave, s.WaitReason = int64(i+1), 2, "WAITING_FOR_MACHINES"
		switch i {
		case 0:
			s.Wave = 1
		case 1:
			s.Wave, s.WaitReason, s.SoakUntil, s.Message = 1, "SOAKING", timestamppb.New(at(120).AsTime()), "wave 1 has ended"
		case 3:
			s.WaitReason, s.Message = "PAUSED_BY_GATE", "1 of 4 machines have failed, the gate is 1"
		case 5:
			s.WaitReason = ""
		}
		if err := stream.Send(s); err != nil {
			return err
		}
	}
	return nil
}

var (
	fleetBudget = &pb.Budget{Name: "all", Domain: "fleet", AtOnce: 50, PerHour: 200, UpdatedAt: at(0)}
	rackBudget  = &pb.Budget{Name: "racks", Domain: "label:rack", Percent: 10, UpdatedAt: at(5)}
	siteBudget  = &pb.Budget{Name: "old", Domain: "site", Value: "cellar\x1b[2J", AtOnce: 1, PerDay: 3, UpdatedAt: at(9)}
)

func (f *fakeServer) SetBudget(_ context.Context, r *pb.SetBudgetRequest) (*pb.Budget, error) {
	b := r.GetBudget()
	if b.GetAtOnce()+b.GetPercent()+b.GetPerHour()+b.GetPerDay() == 0 {
		return nil, refuse(codes.InvalidArgument, pb.Reason_INVALID_FIELD, "budget.at_once: set at least one limit", nil)
	}
	b.UpdatedAt = at(60)
	return b, nil
}

func (f *fakeServer) ListBudgets(context.Context, *pb.ListBudgetsRequest) (*pb.ListBudgetsResponse, error) {
	return &pb.ListBudgetsResponse{Budgets: []*pb.Budget{fleetBudget, siteBudget, rackBudget}}, nil
}

func (f *fakeServer) DeleteBudget(_ context.Context, r *pb.DeleteBudgetRequest) (*pb.Budget, error) {
	if r.GetName() != "racks" {
		return nil, refuse(codes.NotFound, pb.Reason_BUDGET_NOT_FOUND, "there is no budget \""+r.GetName()+"\"", nil)
	}
	return rackBudget, nil
}

func (f *fakeServer) SetApprovalPolicy(
	_ context.Context, r *pb.SetApprovalPolicyRequest,
) (*pb.ApprovalPolicy, error) {
	p := r.GetPolicy()
	if p.GetMachines() < 0 {
		return nil, refuse(codes.InvalidArgument, pb.Reason_INVALID_FIELD, "policy.machines: 0 to 1000000", nil)
	}
	p.SetBy, p.UpdatedAt, p.Version = "ada", at(60), 1
	return p, nil
}

func (f *fakeServer) ListApprovalPolicies(
	context.Context, *pb.ListApprovalPoliciesRequest,
) (*pb.ListApprovalPoliciesResponse, error) {
	return &pb.ListApprovalPoliciesResponse{Policies: []*pb.ApprovalPolicy{
		{Name: "everything", Harm: pb.ApprovalPolicy_DESTROYS, Machines: 50, SetBy: "ada", UpdatedAt: at(0), Version: 1},
		{Name: "prod", Harm: pb.ApprovalPolicy_DESTROYS, Selection: "labels.env=prod", SetBy: "bob", UpdatedAt: at(0),
			Version: 3},
	}}, nil
}

func (f *fakeServer) DeleteApprovalPolicy(
	_ context.Context, r *pb.DeleteApprovalPolicyRequest,
) (*pb.ApprovalPolicy, error) {
	if r.GetName() != "prod" {
		return nil, refuse(codes.NotFound, pb.Reason_APPROVAL_POLICY_NOT_FOUND,
			"there is no approval policy \""+r.GetName()+"\"", nil)
	}
	return &pb.ApprovalPolicy{Name: "prod", Harm: pb.ApprovalPolicy_DESTROYS}, nil
}

// ListBudgetSlots returns one slot a page.
func (f *fakeServer) ListBudgetSlots(
	_ context.Context, r *pb.ListBudgetSlotsRequest,
) (*pb.ListBudgetSlotsResponse, error) {
	if r.GetPageToken() == "" {
		return &pb.ListBudgetSlotsResponse{NextPageToken: "2", Slots: []*pb.BudgetSlot{
			{OperationId: "op-1", MachineId: "machine-1", TakenAt: at(0), OperationPhase: "FAILED"},
		}}, nil
	}
	return &pb.ListBudgetSlotsResponse{Slots: []*pb.BudgetSlot{
		{OperationId: "op-2", MachineId: "machine-2", TakenAt: at(50), OperationPhase: "RUNNING"},
	}}, nil
}

func (f *fakeServer) ReleaseBudgetSlot(_ context.Context, r *pb.ReleaseBudgetSlotRequest) (*pb.BudgetSlot, error) {
	switch r.GetMachineId() {
	case "machine-1":
		return &pb.BudgetSlot{OperationId: "op-1", MachineId: "machine-1", TakenAt: at(0), OperationPhase: "FAILED",
			ReleasedAt: at(60)}, nil
	case "machine-2":
		return nil, refuse(codes.FailedPrecondition, pb.Reason_BUDGET_SLOT_IN_USE,
			"operation op-2 is RUNNING and holds the slot; wait for its end or cancel it",
			map[string]string{"operation_id": "op-2"})
	}
	return nil, refuse(codes.NotFound, pb.Reason_BUDGET_SLOT_NOT_FOUND, "machine "+r.GetMachineId()+" holds no slot", nil)
}

func (f *fakeServer) FreezeFleet(context.Context, *pb.FreezeFleetRequest) (*pb.ServerInfo, error) {
	return &pb.ServerInfo{Version: "v9", ControllerId: "c-1", FrozenSince: at(60)}, nil
}
