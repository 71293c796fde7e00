package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/store"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
)

func State(t testing.TB, s *store.Store, id string) string {
	t.Helper()
	return node.Name(Machine(t, s, id).GetStatus().GetNodeState())
}

// history is the node's life as "from>to by trigger", oldest first.
func NodeMoves(t testing.TB, s *store.Store, id string) []string {
	t.Helper()
	rows, _, err := s.Machines.NodeHistory(t.Context(), id, 1000, 0)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range rows {
		out = append([]string{fmt.Sprintf("%s>%s %s", node.Name(r.GetFromState()), node.Name(r.GetToState()),
			r.GetTriggeredBy())}, out...)
	}
	return out
}

func Transition(s *store.Store, id, request string, to node.State, force bool) error {
	return TransitionWith(s, nodestore.TransitionRequest{MachineID: id, RequestID: request, To: to, Force: force})
}

// TransitionWith moves a node as a request asks.
func TransitionWith(s *store.Store, r nodestore.TransitionRequest) error {
	r.Actor, r.Comment = "tester", "because"
	_, _, err := s.Nodes.TransitionNode(context.Background(), r, Now())
	return err
}
