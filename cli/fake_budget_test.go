package cli

import (
	"context"

	"google.golang.org/grpc/codes"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
)

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

// ListBudgetSlots gives one slot a page.
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
