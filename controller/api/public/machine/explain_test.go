package machine_test

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/api/public/service"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
)

func explainMachine(r *publictest.Rig, q *pb.ExplainMachineRequest) *pb.ExplainMachineResponse {
	r.T.Helper()
	e, err := r.Machines.ExplainMachine(r.T.Context(), q)
	if err != nil {
		r.T.Fatalf("explain %v: %v", q, err)
	}
	return e
}

// TestExplainMachine follows a machine from its registration to a cancelled reboot.
func TestExplainMachine(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(&pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{Provider: "agent"}})
	e := explainMachine(r, &pb.ExplainMachineRequest{MachineId: "m-1"})
	if e.GetMachineId() != "m-1" || e.GetSummary() == "" || e.GetWaitsOn() != "operator" ||
		e.GetReason() != "AGENT_UNAVAILABLE" || e.GetRule() != "never-enrolled" {
		t.Errorf("a new machine: %v", e)
	}
	r.Maintenance("m-1")
	op, err := r.Machines.RebootMachine(t.Context(), &pb.RebootMachineRequest{MachineId: "m-1", RequestId: "r"})
	if err != nil {
		t.Fatal(err)
	}
	r.Look(op.GetOperationId())
	e = explainMachine(r, &pb.ExplainMachineRequest{MachineId: "m-1"})
	if e.GetOperationId() != op.GetOperationId() || e.GetStep() != "reboot" || e.GetStepKind() != "reboot" ||
		e.GetCause() == "" ||
		e.GetNextAction() == "" || e.GetNextActionAt() == nil || e.GetSince() == nil || e.GetStepStartedAt() == nil ||
		e.GetStuck() {
		t.Errorf("a reboot without an agent: %v", e)
	}
	if !slices.Contains(e.GetOperatorActions(), "ingot cancel "+op.GetOperationId()) ||
		len(e.GetActions()) != len(e.GetOperatorActions()) {
		t.Errorf("actions %v", e.GetActions())
	}
	if _, err := r.Machines.CancelOperation(t.Context(),
		&pb.CancelOperationRequest{OperationId: op.GetOperationId()}); err != nil {
		t.Fatal(err)
	}
	if e := explainMachine(r,
		&pb.ExplainMachineRequest{OperationId: op.GetOperationId()}); e.GetReason() != "CANCELED_BY_REQUEST" ||
		e.GetMachineId() != "m-1" {
		t.Errorf("the cancelled operation: %v", e)
	}
}

// TestMachinesDeletedAmidAPageAreLeftOut: a machine that was deleted after the page was listed does not fail the page.
func TestMachinesDeletedAmidAPageAreLeftOut(t *testing.T) {
	r := publictest.NewRig(t)
	for i := range 3 {
		r.Register(publictest.NewMachine(i))
	}
	if _, err := r.Machines.DeleteMachine(t.Context(), &pb.DeleteMachineRequest{MachineId: "m-001"}); err != nil {
		t.Fatal(err)
	}
	all, err := r.Store.Explain.ExplainFactsOf(t.Context(), []string{"m-000", "m-001", "m-002", "never"}, time.Now())
	if err != nil || len(all) != 2 || all[0].Machine.GetMachineId() != "m-000" ||
		all[1].Machine.GetMachineId() != "m-002" {
		t.Errorf("%d machines explained: %v", len(all), err)
	}
}

// TestExplainMachines gives of many what ExplainMachine gives of each.
func TestExplainMachines(t *testing.T) {
	fake := clock.NewFake(time.Now())
	r := publictest.NewRig(t, func(c *service.Config) { c.Clock = fake })
	for i := range 5 {
		r.Register(publictest.NewMachine(i))
	}
	r.Maintenance("m-001")
	r.Maintenance("m-003")
	if err := putIntoService(r, "m-003"); err != nil {
		t.Fatal(err)
	}
	got, err := r.Machines.ExplainMachines(t.Context(), &pb.ExplainMachinesRequest{})
	if err != nil || len(got.GetMachines()) != 1 || got.GetTotalSize() != 1 {
		t.Fatalf("those that need somebody: %v, %v", got, err)
	}
	m := got.GetMachines()[0]
	if m.GetMachine().GetMachineId() != "m-003" || m.GetExplanation().GetReason() == "" ||
		m.GetExplanation().GetWaitsOn() != "operator" || len(m.GetExplanation().GetActions()) == 0 ||
		m.GetMachine().GetStatus().GetAttentionReason() != "NOT_PROVISIONED" {
		t.Errorf("m-003: %v", m)
	}
	var seen []string
	publictest.Walk(t, func(token string) (string, error) {
		p, err := r.Machines.ExplainMachines(t.Context(),
			&pb.ExplainMachinesRequest{Filter: "machine_id=m-*", PageSize: 2, PageToken: token})
		for _, m := range p.GetMachines() {
			seen = append(seen, m.GetMachine().GetMachineId())
			alone := explainMachine(r, &pb.ExplainMachineRequest{MachineId: m.GetMachine().GetMachineId()})
			if !proto.Equal(m.GetExplanation(), alone) {
				t.Errorf("among others\n%v\nand alone\n%v", m.GetExplanation(), alone)
			}
		}
		return p.GetNextPageToken(), err
	})
	if !slices.Equal(seen, []string{"m-000", "m-001", "m-002", "m-003", "m-004"}) {
		t.Errorf("explained %v", seen)
	}
	_, err = r.Machines.ExplainMachines(t.Context(), &pb.ExplainMachinesRequest{Filter: "colour=red"})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_FILTER", "filter")
	_, err = r.Machines.ExplainMachines(t.Context(), &pb.ExplainMachinesRequest{PageSize: -1})
	publictest.Wants(t, err, failure.KindInvalid, "INVALID_FIELD", "page_size")
}

// putIntoService ends the maintenance of a machine.
func putIntoService(r *publictest.Rig, id string) error {
	op, err := r.Machines.ExitMaintenance(r.T.Context(),
		&pb.ExitMaintenanceRequest{MachineId: id, RequestId: "into-service"})
	if err != nil {
		return err
	}
	r.Look(op.GetOperationId())
	r.Look(op.GetOperationId())
	return nil
}
