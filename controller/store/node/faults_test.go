package node_test

import (
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// moved moves a node once for each statement that the move sends, with that one failing, and then in earnest.
func moved(t *testing.T, s *store.Store, r nodestore.TransitionRequest) {
	t.Helper()
	if err := storetest.Each(t, s, func() error { return storetest.TransitionWith(s, r) }); err != nil {
		t.Fatal(err)
	}
}

func toldEach(t *testing.T, s *store.Store, status string) {
	t.Helper()
	if err := storetest.Each(t, s, func() error {
		_, err := reported(t, s, status, 50, "disk not found")
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// lives are what happens to nodes.
var lives = map[string]func(*testing.T, *store.Store){
	"reports": func(t *testing.T, s *store.Store) {
		storetest.Register(t, s, "m-1", storetest.Reporter)
		move := func(to node.State, force bool) {
			t.Helper()
			moved(t, s, nodestore.TransitionRequest{MachineID: "m-1", RequestID: node.Name(to), To: to, Force: force})
		}
		move(node.Pending, false)
		for range 2 {
			toldEach(t, s, node.Started)
			toldEach(t, s, node.Progress)
			toldEach(t, s, node.Failed)
		}
		toldEach(t, s, node.Started)
		toldEach(t, s, node.Complete)
		move(node.Active, false)
		move(node.Quarantined, false)
		moved(t, s, nodestore.TransitionRequest{MachineID: "m-1", RequestID: "out", To: node.Retired, Purge: true})
		if got := storetest.State(t, s, "m-1"); got != "retired" {
			t.Errorf("it is %s", got)
		}
	},
	// A machine with work under way is flagged, quarantined and retired.
	"flag": func(t *testing.T, s *store.Store) {
		intervention(t, s, func() error {
			_, err := s.Operations.SetFlag(t.Context(), "m-1", string(fleet.RMA), true, "broken", "tester", storetest.Now())
			return err
		})
	},
	"quarantine": func(t *testing.T, s *store.Store) {
		intervention(t, s, func() error {
			return storetest.TransitionWith(s, nodestore.TransitionRequest{MachineID: "m-1", RequestID: "q",
				To: node.Quarantined})
		})
		moved(t, s, nodestore.TransitionRequest{MachineID: "m-1", RequestID: "back", To: node.Active})
	},
	"retire": func(t *testing.T, s *store.Store) {
		intervention(t, s, func() error {
			return storetest.TransitionWith(s, nodestore.TransitionRequest{MachineID: "m-1", RequestID: "q",
				To: node.Retired, Force: true, Purge: true})
		})
	},
}

// longLives are of calls that other packages' lives make as well.
var longLives = map[string]func(*testing.T, *store.Store){
	// A system is written to the disk twice, without success at first.
	"attempts": func(t *testing.T, s *store.Store) {
		installer(t, s)
		a := serviced(t, s, "m-1")
		id, c := write(t, s, a, "a", 1)
		storetest.Decide(t, s, id, notWritten(a, c))
		id, c = write(t, s, a, "b", 2)
		storetest.Decide(t, s, id, wrote(a, c))
		exit := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "exit",
			Type: fleet.ExitMaintenance})
		storetest.Decide(t, s, exit.GetOperationId(), operation.Evaluate{})
	},
	"a write that is cancelled": func(t *testing.T, s *store.Store) {
		installer(t, s)
		a := serviced(t, s, "m-1")
		id, c := write(t, s, a, "r", 1)
		storetest.Decide(t, s, id, operation.CancelAsked{Actor: "x"})
		storetest.Decide(t, s, id, operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeCanceled})
	},
}

// TestLives makes each call of a life once for each of its statements, with that one failing, and compares the rows
// that each call writes.
func TestLives(t *testing.T) {
	for name, live := range lives {
		t.Run(name, func(t *testing.T) { storetest.OnEach(t, live) })
	}
	for name, live := range longLives {
		t.Run(name, func(t *testing.T) { storetest.OnRecorded(t, live) })
	}
}

// intervention has a machine with work under way, which the act cancels.
func intervention(t *testing.T, s *store.Store, act func() error) {
	t.Helper()
	storetest.Live(t, s, "m-1")
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot})
	storetest.Decide(t, s, op.GetOperationId(), operation.Evaluate{})
	if err := storetest.Each(t, s, act); err != nil {
		t.Fatal(err)
	}
	got, err := s.OperationQueries.GetOperation(t.Context(), op.GetOperationId())
	if err != nil || got.GetPhase() != baremetalv1.Operation_CANCELED {
		t.Errorf("the work is %s, %v", got.GetPhase(), err)
	}
}
