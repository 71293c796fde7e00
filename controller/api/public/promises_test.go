package public_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/internal/failure"
)

// claims is what a client might like to write and may not.
func claims() *pb.MachineStatus {
	return &pb.MachineStatus{
		Phase: pb.MachineStatus_READY, EffectiveState: pb.MachineStatus_IDLE, ActiveOperationId: "op-mine",
		ActiveRunId: "op-mine",
		NodeState:   node.Active, Schedulable: true, InstallAttempts: 7, PowerState: "on",
		Conditions: []*pb.Condition{{Type: "Provisioned", Status: true}, {Type: "RMA", Status: true}},
	}
}

// TestClientsWriteSpecAndLabelsOnly: by registering, by registering again and by updating; whatever they say of the
// status.
func TestClientsWriteSpecAndLabelsOnly(t *testing.T) {
	r := publictest.NewRig(t)
	spec := &pb.MachineSpec{
		SshEndpoint: "10.20.30.40:22", BmcEndpoint: "10.20.30.41", TargetClusterRef: "cluster-a",
		MacAddresses: []string{"aa:bb:cc:dd:ee:ff"},
		Provider:     "fake", Serial: "SN1", Rack: "r42", Location: "hall 2", Region: "eu", CustomerId: "c-1", Site: "lab",
		Group: "g",
	}
	first := r.Register(&pb.Machine{MachineId: "m-1", Labels: map[string]string{"env": "prod"}, Spec: spec,
		Status: claims()})
	if !proto.Equal(first.GetSpec(), spec) || first.GetLabels()["env"] != "prod" {
		t.Errorf("stored %v of %v", first.GetSpec(), spec)
	}
	before := first.GetStatus()
	if before.GetPhase() != pb.MachineStatus_FACTORY_READY || len(before.GetConditions()) != 0 ||
		before.GetActiveOperationId() != "" {
		t.Errorf("a client wrote the status %v", before)
	}
	again := r.Register(&pb.Machine{MachineId: "m-1", Labels: map[string]string{"env": "test"},
		Spec: &pb.MachineSpec{Rack: "r43"}, Status: claims()})
	if again.GetLabels()["env"] != "test" || again.GetSpec().GetRack() != "r43" ||
		again.GetSpec().GetSshEndpoint() != spec.GetSshEndpoint() {
		t.Errorf("registered again as %v", again)
	}
	updated, err := r.Machines.UpdateMachine(t.Context(), &pb.UpdateMachineRequest{
		Machine: &pb.Machine{MachineId: "m-1", Labels: map[string]string{"role": "worker"},
			Spec: &pb.MachineSpec{Rack: "r44"}, Status: claims()},
	})
	if err != nil || len(updated.GetLabels()) != 1 || updated.GetLabels()["role"] != "worker" ||
		updated.GetSpec().GetRack() != "r44" {
		t.Errorf("updated to %v, %v", updated, err)
	}
	for _, m := range []*pb.Machine{again, updated} {
		if !proto.Equal(m.GetStatus(), before) {
			t.Errorf("a client changed the status to %v, it was %v", m.GetStatus(), before)
		}
	}
}

// TestExternalIDIsSetOnce: the upstream's name of a machine finds it, and never becomes another.
func TestExternalIDIsSetOnce(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	r.Register(&pb.Machine{MachineId: "m-1"})
	update := func(id string) (*pb.Machine, error) {
		return r.Machines.UpdateMachine(ctx,
			&pb.UpdateMachineRequest{Machine: &pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{ExternalId: id}}})
	}
	if _, err := update("workspace-7"); err != nil {
		t.Fatal(err)
	}
	if m, err := update(""); err != nil || m.GetSpec().GetExternalId() != "workspace-7" {
		t.Errorf("left out of an update: %v, %v", m.GetSpec(), err)
	}
	_, err := update("workspace-8")
	publictest.Wants(t, err, failure.KindPrecondition, "EXTERNAL_ID_IMMUTABLE", "machine.spec.external_id")
	if m, err := r.Machines.GetMachine(ctx, &pb.GetMachineRequest{ExternalId: "workspace-7"}); err != nil ||
		m.GetMachineId() != "m-1" {
		t.Errorf("found %v, %v", m, err)
	}
}

// TestRequestIDIsRequiredOfEveryStart: no call that starts work goes without.
func TestRequestIDIsRequiredOfEveryStart(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(&pb.Machine{MachineId: "m-1"})
	for name, call := range map[string]func(context.Context) error{
		"reboot": func(ctx context.Context) error {
			return only(r.Machines.RebootMachine(ctx, &pb.RebootMachineRequest{MachineId: "m-1"}))
		},
		"reimage": func(ctx context.Context) error {
			return only(r.Machines.ReimageMachine(ctx, &pb.ReimageMachineRequest{MachineId: "m-1", ImageRef: "img"}))
		},
		"netboot": func(ctx context.Context) error {
			return only(r.Machines.NetbootMachine(ctx, &pb.NetbootMachineRequest{MachineId: "m-1"}))
		},
		"test": func(ctx context.Context) error {
			return only(r.Machines.TestMachine(ctx, &pb.TestMachineRequest{MachineId: "m-1"}))
		},
		"reconfigure": func(ctx context.Context) error {
			return only(r.Machines.ReconfigureMachine(ctx, &pb.ReconfigureMachineRequest{MachineId: "m-1",
				Config: &pb.NetReconfig{Hostname: "a"}}))
		},
		"enter maintenance": func(ctx context.Context) error {
			return only(r.Machines.EnterMaintenance(ctx, &pb.EnterMaintenanceRequest{MachineId: "m-1"}))
		},
		"exit maintenance": func(ctx context.Context) error {
			return only(r.Machines.ExitMaintenance(ctx, &pb.ExitMaintenanceRequest{MachineId: "m-1"}))
		},
		"run": func(ctx context.Context) error {
			return only(r.Runs.StartRun(ctx, &pb.StartRunRequest{MachineId: "m-1", Type: "REBOOT"}))
		},
	} {
		err := call(t.Context())
		if e := failure.From(err); e == nil || e.Kind != failure.KindInvalid || e.Reason != "REQUEST_ID_REQUIRED" {
			t.Errorf("%s without a request id: %v", name, err)
		}
	}
}

// TestRunTypesOfTheRequirements: the words of runs are those of operations, and a plan of one's own replaces the
// type's.
func TestRunTypesOfTheRequirements(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	own, err := r.Plans.CreatePlan(ctx,
		&pb.CreatePlanRequest{Plan: &pb.Plan{PlanId: "own", Steps: []*pb.Step{publictest.Step("one")}}})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		run    *pb.StartRunRequest
		plan   string
		opType pb.Operation_OperationType
	}{
		{&pb.StartRunRequest{Type: "REPAVE", Params: map[string]string{"image_ref": "img"}}, "repave", pb.Operation_REIMAGE},
		{&pb.StartRunRequest{Type: "REBOOT"}, "reboot", pb.Operation_REBOOT},
		{&pb.StartRunRequest{Type: "NET_RECONFIG", Params: map[string]string{"config": `{"hostname":"web-1"}`}},
			"net-reconfig", pb.Operation_RECONFIGURE},
		{&pb.StartRunRequest{Type: "RMA"}, "rma", pb.Operation_RMA},
		{&pb.StartRunRequest{Type: "REBOOT", PlanId: own.GetPlanId()}, "own", pb.Operation_REBOOT},
	} {
		id := fmt.Sprintf("m-%d", i)
		r.Register(&pb.Machine{MachineId: id})
		r.Maintenance(id)
		c.run.MachineId, c.run.RequestId = id, "q"
		run, err := r.Runs.StartRun(ctx, c.run)
		if err != nil || run.GetType() != c.run.GetType() || run.GetPlanId() != c.plan || run.GetPhase() != pb.Run_PENDING {
			t.Errorf("%v started %v, %v", c.run, run, err)
			continue
		}
		op, err := r.Operations.GetOperation(ctx, &pb.GetOperationRequest{OperationId: run.GetRunId()})
		if err != nil || op.GetType() != c.opType {
			t.Errorf("run %v is operation %v, %v", c.run, op, err)
		}
	}
}

// TestPollingARun: started, asked for until it has ended; the machine points to it meanwhile.
func TestPollingARun(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	r.Register(&pb.Machine{MachineId: "m-1"})
	op := r.Enter("m-1", "q").GetOperationId()
	var phases []pb.Run_Phase
	for range 10 {
		run, err := r.Runs.GetRun(ctx, &pb.GetRunRequest{RunId: op})
		if err != nil {
			t.Fatal(err)
		}
		phases = append(phases, run.GetPhase())
		m, err := r.Machines.GetMachine(ctx, &pb.GetMachineRequest{MachineId: "m-1"})
		if err != nil {
			t.Fatal(err)
		}
		over := run.GetPhase() >= pb.Run_SUCCEEDED
		status := m.GetStatus()
		if (status.GetActiveOperationId() == "") != over || status.GetActiveRunId() != status.GetActiveOperationId() {
			t.Errorf("%s, and the machine shows %v", run.GetPhase(), status)
		}
		if over {
			break
		}
		r.Look(op)
	}
	if phases[0] != pb.Run_PENDING || phases[len(phases)-1] != pb.Run_SUCCEEDED {
		t.Errorf("phases %v", phases)
	}
}

// TestNodeHistoryByLimitAndOffset: 50 rows unless another limit is asked for, from an offset on, newest first.
func TestNodeHistoryByLimitAndOffset(t *testing.T) {
	r := publictest.NewRig(t)
	ctx := t.Context()
	r.Register(&pb.Machine{MachineId: "m-1"})
	const moves = 53
	for i := range moves {
		to := []pb.NodeState{node.Retired, node.Offline}[i%2]
		q := publictest.Move("m-1", fmt.Sprint("move-", i), to)
		q.Purge = i > 0 && to == node.Retired
		if _, err := r.Nodes.TransitionNode(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	read := func(limit, offset int32) *pb.GetNodeHistoryResponse {
		t.Helper()
		h, err := r.Nodes.GetNodeHistory(ctx, &pb.GetNodeHistoryRequest{NodeId: "m-1", Limit: limit, Offset: offset})
		if err != nil || h.GetTotal() != moves {
			t.Fatalf("total %d, %v", h.GetTotal(), err)
		}
		return h
	}
	first, rest, some := read(0, 0).GetData(), read(0, 50).GetData(), read(2, 1).GetData()
	if len(first) != 50 || len(rest) != moves-50 || len(some) != 2 || some[0].GetId() != first[1].GetId() {
		t.Errorf("%d rows, then %d; two of them: %v", len(first), len(rest), some)
	}
	all := slices.Concat(first, rest)
	for i, row := range all {
		if row.GetId() == "" || row.GetFromState() == 0 || row.GetToState() == 0 || row.GetTriggeredBy() != "admin" ||
			row.GetUserId() != "tester" || row.GetCreatedAt() == nil {
			t.Errorf("row %v", row)
		}
		if i > 0 && (row.GetToState() != all[i-1].GetFromState() ||
			row.GetCreatedAt().AsTime().After(all[i-1].GetCreatedAt().AsTime())) {
			t.Errorf("row %d does not come before row %d: %v, %v", i, i-1, row, all[i-1])
		}
	}
}
