package store_test

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/node"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// A node that is deprovisioned is retired when its disks are read back as erased, and by nothing less.
func TestDeprovisioningErasesAndRetires(t *testing.T) {
	s := storetest.New(t)
	register(t, s, "m-1")
	a := enrol(t, s, store.NewToken{TokenID: "t-1", MachineID: "m-1"})
	lease(t, s)
	h := a.hello("st-1", "boot-1")
	h.Capabilities = append(h.Capabilities, "erase")
	open(t, s, h)
	maintenance(t, s, "m-1")
	ask1 := store.TransitionRequest{MachineID: "m-1", RequestID: "erase", To: node.Deprovisioning, Actor: "tester"}
	op, created, err := s.TransitionNode(t.Context(), ask1, now())
	if err != nil || !created || op.GetType() != baremetalv1.Operation_RUN_PLAN || op.GetPlanId() != "erase" || state(t, s, "m-1") != "deprovisioning" {
		t.Fatalf("%v %t %v, %s", op, created, err, state(t, s, "m-1"))
	}
	if again, created, err := s.TransitionNode(t.Context(), ask1, now()); err != nil || created || again.GetOperationId() != op.GetOperationId() {
		t.Errorf("repeated: %v %t %v", again, created, err)
	}
	d := decide(t, s, op.GetOperationId(), operation.Look{})
	for seq, proof := range []map[string]string{{"boot_next": "network"}, {"erase_method": "discard"}} {
		c := d.Command
		if g := decide(t, s, op.GetOperationId(), ask(a, c, uint64(seq)+1, 1)); !g.Decision.Grant {
			t.Fatalf("no grant: %+v", g.Decision.Refusal)
		}
		if got := state(t, s, "m-1"); got != "deprovisioning" {
			t.Fatalf("%s before the erasure was read back", got)
		}
		d = decide(t, s, op.GetOperationId(), operation.Resulted{CommandID: c.ID, AgentID: a.id, Outcome: operation.OutcomeSucceeded, Evidence: proof})
	}
	whole(t, s, "m-1", op.GetOperationId(), operation.Succeeded)
	wantHistory(t, s, "m-1", append(adopted[:3:3], "active>deprovisioning admin", "deprovisioning>retired workflow")...)
}
