package public_test

import (
	"context"
	"slices"
	"testing"
	"time"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public"
	"github.com/ingot-metal/ingot/controller/domain/explain"
	"github.com/ingot-metal/ingot/internal/clock"
)

func (r *rig) explain(q *pb.ExplainMachineRequest) *pb.ExplainMachineResponse {
	r.t.Helper()
	e, err := r.machines.ExplainMachine(r.t.Context(), q)
	if err != nil {
		r.t.Fatalf("explain %v: %v", q, err)
	}
	return e
}

// TestExplainMachine follows a machine from its registration to a cancelled reboot.
func TestExplainMachine(t *testing.T) {
	r := newRig(t)
	r.register(&pb.Machine{MachineId: "m-1", Spec: &pb.MachineSpec{Provider: "agent"}})
	e := r.explain(&pb.ExplainMachineRequest{MachineId: "m-1"})
	if e.GetMachineId() != "m-1" || e.GetSummary() == "" || e.GetWaitsOn() != "operator" ||
		e.GetReason() != "AGENT_UNAVAILABLE" || e.GetRule() != "never-enrolled" {
		t.Errorf("a new machine: %v", e)
	}
	r.maintenance("m-1")
	op, err := r.machines.RebootMachine(t.Context(), &pb.RebootMachineRequest{MachineId: "m-1", RequestId: "r"})
	if err != nil {
		t.Fatal(err)
	}
	r.look(op.GetOperationId())
	e = r.explain(&pb.ExplainMachineRequest{MachineId: "m-1"})
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
	if _, err := r.machines.CancelOperation(t.Context(),
		&pb.CancelOperationRequest{OperationId: op.GetOperationId()}); err != nil {
		t.Fatal(err)
	}
	if e := r.explain(
		&pb.ExplainMachineRequest{OperationId: op.GetOperationId()}); e.GetReason() != "CANCELED_BY_REQUEST" ||
		e.GetMachineId() != "m-1" {
		t.Errorf("the cancelled operation: %v", e)
	}
}

// counting counts how often durations are measured.
type counting struct {
	public.Store
	measured int
}

func (c *counting) StepNormals(ctx context.Context) (explain.Baselines, error) {
	c.measured++
	return c.Store.StepNormals(ctx)
}

// TestNormalsAreKeptForAMinute: and measured anew after it.
func TestNormalsAreKeptForAMinute(t *testing.T) {
	fake := clock.NewFake(time.Now())
	store := &counting{}
	r := newRig(t, func(c *public.Config) { store.Store = c.Store; c.Store, c.Clock = store, fake })
	r.register(newMachine(1))
	for i, want := range []int{1, 1, 2} {
		r.explain(&pb.ExplainMachineRequest{MachineId: "m-001"})
		if store.measured != want {
			t.Errorf("call %d: measured %d times, want %d", i, store.measured, want)
		}
		fake.Advance(31 * time.Second)
	}
}
