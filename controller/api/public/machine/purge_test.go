package machine_test

import (
	"context"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Leaving out a decommission is an admin's word, in each call that can: the machine stays where it is for everybody
// else.
func TestPurgeIsAnAdminsWord(t *testing.T) {
	calls := map[string]func(context.Context, *publictest.Rig, bool) error{
		"delete": func(ctx context.Context, r *publictest.Rig, purge bool) error {
			_, err := r.Machines.DeleteMachine(ctx, &pb.DeleteMachineRequest{MachineId: "m-1", Purge: purge})
			return err
		},
		"retire": func(ctx context.Context, r *publictest.Rig, purge bool) error {
			q := publictest.Move("m-1", "out", node.Retired)
			q.Purge = purge
			_, err := r.Nodes.TransitionNode(ctx, q)
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			r := publictest.NewRig(t)
			r.Register(&pb.Machine{MachineId: "m-1"})
			operator := publictest.AsOperator(t.Context())
			publictest.Wants(t, call(operator, r, true), failure.KindDenied, "SCOPE_TOO_SMALL", "purge")
			m, err := r.Machines.GetMachine(t.Context(), &pb.GetMachineRequest{MachineId: "m-1"})
			if err != nil || m.GetDeletedAt() != nil || m.GetStatus().GetNodeState() == node.Retired {
				t.Fatalf("after a call that was refused: %v, %v", m, err)
			}
			if err := call(operator, r, false); err != nil {
				t.Fatalf("without purge: %v", err)
			}
			again := publictest.NewRig(t)
			again.Register(&pb.Machine{MachineId: "m-1"})
			if err := call(t.Context(), again, true); err != nil {
				t.Errorf("an admin: %v", err)
			}
		})
	}
}
