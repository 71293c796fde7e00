package node_test

import (
	"context"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/api/public/publictest"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/internal/task"
)

// TestMovesWithoutARequestID: the body that REST's users know, a state with a comment and force, is safe to repeat;
// what starts work needs a request id.
func TestMovesWithoutARequestID(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(&pb.Machine{MachineId: "m-1"})
	seen := map[string]bool{}
	for _, to := range []pb.NodeState{node.Pending, node.Retired, node.Offline} {
		q := &pb.TransitionNodeRequest{NodeId: "m-1", State: to, Comment: "as planned"}
		dry := proto.CloneOf(q)
		dry.DryRun = true
		if op, err := r.Nodes.TransitionNode(t.Context(), dry); err != nil || op.GetOperationId() != "" {
			t.Fatalf("to %s, dry: %v %v", node.Name(to), op, err)
		}
		op, err := r.Nodes.TransitionNode(t.Context(), q)
		if err != nil || op.GetPhase() != pb.Operation_SUCCEEDED || op.GetRequestId() == "" || seen[op.GetOperationId()] {
			t.Fatalf("to %s: %v %v", node.Name(to), op, err)
		}
		seen[op.GetOperationId()] = true
		if again, err := r.Nodes.TransitionNode(t.Context(), q); err != nil || again.GetOperationId() != op.GetOperationId() {
			t.Errorf("repeated: %v %v", again, err)
		}
		_, err = r.Nodes.TransitionNode(t.Context(), dry)
		publictest.Wants(t, err, precondition, "NODE_TRANSITION_ILLEGAL", "")
	}
	for _, to := range node.States() {
		if !node.InProgress(to) {
			continue
		}
		_, err := r.Nodes.TransitionNode(t.Context(), &pb.TransitionNodeRequest{NodeId: "m-1", State: to})
		publictest.Wants(t, err, invalid, "REQUEST_ID_REQUIRED", "request_id")
	}
	if h, err := r.Nodes.GetNodeHistory(t.Context(), &pb.GetNodeHistoryRequest{NodeId: "m-1"}); err != nil ||
		h.GetTotal() != 3 {
		t.Errorf("%v %v", h, err)
	}
}

// TestTenMovesAtOnceAreOne: who comes second finds the first one's.
func TestTenMovesAtOnceAreOne(t *testing.T) {
	r := publictest.NewRig(t)
	r.Register(&pb.Machine{MachineId: "m-1"})
	var mu sync.Mutex
	got := map[string]int{}
	g, _ := task.New(t.Context())
	for range 10 {
		g.Go("move", func(ctx context.Context) error {
			op, err := r.Nodes.TransitionNode(ctx, &pb.TransitionNodeRequest{NodeId: "m-1", State: node.Pending})
			mu.Lock()
			defer mu.Unlock()
			got[op.GetOperationId()]++
			return err
		})
	}
	if err := g.Wait(); err != nil || len(got) != 1 {
		t.Errorf("%v, operations %v", err, got)
	}
}
