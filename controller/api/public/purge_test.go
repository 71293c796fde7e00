package public_test

import (
	"context"
	"testing"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/internal/failure"
)

// Leaving out a decommission is an admin's word, in each call that can: the machine stays where it is for everybody
// else.
func TestPurgeIsAnAdminsWord(t *testing.T) {
	calls := map[string]func(context.Context, *rig, bool) error{
		"delete": func(ctx context.Context, r *rig, purge bool) error {
			return only(r.machines.DeleteMachine(ctx, &pb.DeleteMachineRequest{MachineId: "m-1", Purge: purge}))
		},
		"retire": func(ctx context.Context, r *rig, purge bool) error {
			q := move("m-1", "out", node.Retired)
			q.Purge = purge
			return only(r.nodes.TransitionNode(ctx, q))
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.register(&pb.Machine{MachineId: "m-1"})
			operator := asOperator(t.Context())
			wants(t, call(operator, r, true), failure.KindDenied, "SCOPE_TOO_SMALL", "purge")
			m, err := r.machines.GetMachine(t.Context(), &pb.GetMachineRequest{MachineId: "m-1"})
			if err != nil || m.GetDeletedAt() != nil || m.GetStatus().GetNodeState() == node.Retired {
				t.Fatalf("after a call that was refused: %v, %v", m, err)
			}
			if err := call(operator, r, false); err != nil {
				t.Fatalf("without purge: %v", err)
			}
			again := newRig(t)
			again.register(&pb.Machine{MachineId: "m-1"})
			if err := call(t.Context(), again, true); err != nil {
				t.Errorf("an admin: %v", err)
			}
		})
	}
}
