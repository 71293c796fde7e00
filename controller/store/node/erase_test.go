package node_test

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// A node that is deprovisioned is retired when its disks are read back as erased, and by nothing less.
func TestDeprovisioningErasesAndRetires(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	a := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "t-1", MachineID: "m-1"})
	storetest.Lease(t, s)
	h := a.Hello("st-1", "boot-1")
	h.Capabilities = append(h.Capabilities, "erase")
	storetest.Open(t, s, h)
	storetest.Maintenance(t, s, "m-1")
	ask1 := nodestore.TransitionRequest{MachineID: "m-1", RequestID: "erase", To: node.Deprovisioning, Actor: "tester"}
	op, created, err := s.Nodes.TransitionNode(t.Context(), ask1, storetest.Now())
	if err != nil || !created || op.GetType() != baremetalv1.Operation_RUN_PLAN || op.GetPlanId() != "erase" ||
		storetest.State(t, s, "m-1") != "deprovisioning" {
		t.Fatalf("%v %t %v, %s", op, created, err, storetest.State(t, s, "m-1"))
	}
	if again, created, err := s.Nodes.TransitionNode(t.Context(), ask1, storetest.Now()); err != nil || created ||
		again.GetOperationId() != op.GetOperationId() {
		t.Errorf("repeated: %v %t %v", again, created, err)
	}
	d := storetest.Decide(t, s, op.GetOperationId(), operation.Evaluate{})
	for seq, proof := range []map[string]string{{"boot_next": "network"}, {"erase_method": "discard"}} {
		c := d.Command
		if g := storetest.Decide(t, s, op.GetOperationId(), storetest.Ask(a, c, uint64(seq)+1, 1)); !g.Decision.Grant {
			t.Fatalf("no grant: %+v", g.Decision.Refusal)
		}
		if got := storetest.State(t, s, "m-1"); got != "deprovisioning" {
			t.Fatalf("%s before the erasure was read back", got)
		}
		d = storetest.Decide(t, s, op.GetOperationId(), operation.Resulted{CommandID: c.ID, AgentID: a.ID,
			Outcome: operation.OutcomeSucceeded, Evidence: proof})
	}
	storetest.Whole(t, s, "m-1", op.GetOperationId(), operation.Succeeded)
	wantHistory(t, s, "m-1", append(adopted[:3:3], "active>deprovisioning admin", "deprovisioning>retired workflow")...)
}
