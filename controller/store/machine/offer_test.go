package machine_test

import (
	"context"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/call"
	"github.com/ingot-metal/ingot/controller/domain/access"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/label"
)

// TestOnlyAnAdminOffersAMachine: an operator labels freely, but neither offers a machine nor takes an offer back.
func TestOnlyAnAdminOffersAMachine(t *testing.T) {
	s := storetest.New(t)
	as := func(scope access.Scope) context.Context {
		return call.WithCaller(t.Context(), access.Caller{Name: "someone", Scope: scope})
	}
	machine := func(offered, team string) *pb.Machine {
		m := &pb.Machine{MachineId: "m-1", Labels: map[string]string{"team": team}, Spec: &pb.MachineSpec{}}
		if offered != "" {
			m.Labels[label.Offered] = offered
		}
		return m
	}
	refused := func(what string, err error) {
		t.Helper()
		if f := failure.From(err); err == nil || f.Reason != access.ReasonScopeTooSmall {
			t.Errorf("%s: %v", what, err)
		}
	}
	write := func(ctx context.Context, m *pb.Machine) error {
		_, err := s.Machines.Register(ctx, m, "someone", storetest.Now())
		return err
	}
	operator, admin := as(access.ScopeOperate), as(access.ScopeAdmin)
	refused("registered with an offer", write(operator, machine(label.ClusterAPI, "a")))
	for _, step := range []struct {
		by      context.Context
		offered string
	}{{operator, ""}, {admin, label.ClusterAPI}, {operator, label.ClusterAPI}} {
		if err := write(step.by, machine(step.offered, "b")); err != nil {
			t.Fatalf("%+v: %v", step, err)
		}
	}
	refused("offered to another", write(operator, machine("opentofu", "b")))
	refused("taken back", write(operator, machine("", "b")))
	if err := write(admin, machine("", "b")); err != nil {
		t.Fatal(err)
	}
	refused("offered", write(operator, machine(label.ClusterAPI, "b")))
}
