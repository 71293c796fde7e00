package engine_test

import (
	"context"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/engine"
	"github.com/ingot-metal/ingot/controller/session"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// TestReconcilersRunOnSignals: the end of an operation lets the reconcilers look, long before their period is over.
// What they find is a node that an older version has left in a state of work, and a condition that does not follow its
// node.
func TestReconcilersRunOnSignals(t *testing.T) {
	s := storetest.New(t)
	e, err := engine.New(engine.Config{
		Store: s, Sessions: session.NewRegistry(), Clock: clock.Real(), Logger: testkit.Logger(t), ControllerID: "ctl",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"m-lost", "m-retired", "m-other"} {
		_, err := s.Machines.Register(t.Context(),
			&baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{Provider: "fake"}}, "tester", time.Now())
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	g, ctx := task.New(ctx)
	g.Go("engine", e.Run)
	began := time.Now()
	for _, q := range []string{
		`UPDATE machines SET node_state = 'installing', node_state_changed_at = now() - interval '1 hour' WHERE machine_id = 'm-lost'`,
		`UPDATE machines SET node_state = 'retired' WHERE machine_id = 'm-retired'`,
	} {
		if _, err := s.DB.Pool().Exec(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Requests.TransitionNode(ctx, nodestore.TransitionRequest{MachineID: "m-other", RequestID: "r",
		To: node.Pending, Actor: "tester"}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, 20*time.Second, func() bool {
		lost, err := s.Nodes.GetNode(t.Context(), "m-lost")
		if err != nil {
			t.Fatal(err)
		}
		retired, err := s.Machines.GetMachine(t.Context(), "m-retired", "")
		if err != nil {
			t.Fatal(err)
		}
		return lost.GetState() == node.Pending && len(retired.GetStatus().GetConditions()) == 1
	}, "nobody has looked")
	t.Logf("after %v", time.Since(began))
	stop()
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}
