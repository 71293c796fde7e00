package node_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/node"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	nodestore "github.com/ingot-metal/ingot/controller/store/node"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// block flags a machine, or retires it.
var block = map[string]func(t testing.TB, s *store.Store, id string) error{
	"RMA": func(t testing.TB, s *store.Store, id string) error {
		_, err := s.Operations.SetFlag(t.Context(), id, "RMA", true, "ann", "DIMM 3", storetest.Now())
		return err
	},
	"Retired": func(t testing.TB, s *store.Store, id string) error {
		_, err := s.Operations.SetFlag(t.Context(), id, "Retired", true, "ann", "", storetest.Now())
		return err
	},
	"retired node": func(t testing.TB, s *store.Store, id string) error {
		return purge(t.Context(), s, id, "out")
	},
}

func blocked(t testing.TB, s *store.Store, id string) bool {
	t.Helper()
	m := storetest.Machine(t, s, id)
	return storetest.Condition(m, fleet.RMA) != nil || storetest.Condition(m, fleet.RetiredFlag) != nil
}

// told collects what the store asks to be told to agents.
func told(s *store.Store) *[]*operationstore.Applied {
	var all []*operationstore.Applied
	s.Operations.OnApplied(func(a *operationstore.Applied) { all = append(all, a) })
	return &all
}

// What was never granted never starts, whether it waits for its agent or has been sent: the operation ends in the
// transaction that blocks the machine, and its executor is told.
func TestBlockingEndsWhatWasNotGranted(t *testing.T) {
	for how, doIt := range block {
		for _, sent := range []bool{false, true} {
			s := storetest.New(t)
			tell := told(s)
			a := storetest.Live(t, s, "m-1")
			if !sent {
				if err := storetest.ExecSQL(t, s, "UPDATE agent_sessions SET ended_at = now()"); err != nil {
					t.Fatal(err)
				}
			}
			op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r",
				Type: fleet.Reboot}).GetOperationId()
			c := storetest.Decide(t, s, op, operation.Evaluate{}).Command
			if err := doIt(t, s, "m-1"); err != nil {
				t.Fatalf("%s: %v", how, err)
			}
			storetest.Whole(t, s, "m-1", op, operation.Canceled)
			if !blocked(t, s, "m-1") || len(*tell) != 1 || !operation.IsTerminal((*tell)[0].Phase) {
				t.Errorf("%s: blocked %t, told %d", how, blocked(t, s, "m-1"), len(*tell))
			}
			if c != nil {
				if (*tell)[0].Decision.CancelOnAgent != c.ID {
					t.Errorf("%s: the executor is told of %q", how, (*tell)[0].Decision.CancelOnAgent)
				}
				if g := storetest.Decide(t, s, op, storetest.Ask(a, c, 1, 1)); g.Decision.Grant {
					t.Errorf("%s: a command that was sent before is granted afterwards", how)
				}
			}
			_, _, err := s.Operations.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "another",
				Type: fleet.Reboot}, storetest.Now())
			storetest.WantReason(t, err, "MACHINE_BLOCKED")
			if how == "retired node" && storetest.State(t, s, "m-1") != "retired" {
				t.Errorf("the node is %s", storetest.State(t, s, "m-1"))
			}
		}
	}
}

// What was granted is told to stop, and nothing more is granted or made; a node that is to be retired is, in the
// transaction that ends the operation, however it ends.
func TestBlockingStopsWhatWasGranted(t *testing.T) {
	for how, doIt := range block {
		for outcome, phase := range map[operation.Outcome]operation.Phase{
			operation.OutcomeCanceled: operation.Canceled, operation.OutcomeSucceeded: operation.Succeeded,
			operation.OutcomeUnknown: operation.Failed, "": operation.Failed,
		} {
			s := storetest.New(t)
			installer(t, s)
			tell := told(s)
			a := serviced(t, s, "m-1")
			op, c := write(t, s, a, "r", 1)
			if err := doIt(t, s, "m-1"); err != nil {
				t.Fatalf("%s: %v", how, err)
			}
			if !blocked(t, s, "m-1") || storetest.State(t, s, "m-1") != "installing" || len(*tell) != 1 ||
				(*tell)[0].Decision.CancelOnAgent != c.ID {
				t.Fatalf("%s: blocked %t, %s, told %+v", how, blocked(t, s, "m-1"), storetest.State(t, s, "m-1"), *tell)
			}
			owned(t, s)
			if g := storetest.Decide(t, s, op, storetest.Ask(a, c, 2, 1)); g.Decision.Grant {
				t.Errorf("%s: granted again", how)
			}
			r := wrote(a, c)
			if r.Outcome = outcome; outcome == "" {
				if _, err := s.Operations.Decide(t.Context(), op, operation.Evaluate{},
					storetest.Now().Add(time.Hour)); err != nil {
					t.Fatal(err)
				}
			} else {
				storetest.Decide(t, s, op, r)
			}
			got, err := s.OperationQueries.GetOperation(t.Context(), op)
			if err != nil || got.GetPhase().String() != string(phase) {
				t.Errorf("%s, %q: %s, want %s (%v)", how, outcome, got.GetPhase(), phase, err)
			}
			if retired := storetest.State(t, s, "m-1") == "retired"; retired != (how == "retired node") {
				t.Errorf("%s, %q: the node is %s", how, outcome, storetest.State(t, s, "m-1"))
			}
			owned(t, s)
		}
	}
}

// A request to retire a busy machine is one request: before the end it answers with the operation that is being
// cancelled, afterwards with the move, and it never moves twice.
func TestRetiringIsOneRequest(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	a := serviced(t, s, "m-1")
	op, c := write(t, s, a, "r", 1)
	retire := func(request string) *baremetalv1.Operation {
		t.Helper()
		got, _, err := s.Nodes.TransitionNode(t.Context(), nodestore.TransitionRequest{MachineID: "m-1", RequestID: request,
			To: node.Retired, Actor: "ann", Comment: "worn out"}, storetest.Now())
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, request := range []string{"out", "out", "out again"} {
		if got := retire(request); got.GetOperationId() != op || got.GetWaitReason() != "CANCELLING" {
			t.Fatalf("%s: %v", request, got)
		}
	}
	storetest.Decide(t, s, op, operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeCanceled})
	got := retire("out")
	if got.GetType() != baremetalv1.Operation_NODE_TRANSITION || got.GetPhase() != baremetalv1.Operation_SUCCEEDED {
		t.Errorf("afterwards: %v", got)
	}
	rows, _, err := s.Machines.NodeHistory(t.Context(), "m-1", 1, 0)
	if err != nil || rows[0].GetToState() != node.Retired || rows[0].GetUserId() != "ann" ||
		rows[0].GetComment() != "worn out" || rows[0].GetTriggeredBy() != "admin" {
		t.Errorf("%v %v", rows, err)
	}
	if n := storetest.Count(t, s, "SELECT count(*) FROM node_state_log WHERE to_state = 'retired'"); n != 1 {
		t.Errorf("retired %d times", n)
	}
}

// A dry run of it cancels nothing.
func TestRetiringABusyMachineDry(t *testing.T) {
	s := storetest.New(t)
	installer(t, s)
	tell := told(s)
	a := serviced(t, s, "m-1")
	write(t, s, a, "r", 1)
	tables := append([]string{"node_state_log"}, storetest.Decided...)
	before := storetest.Everything(t, s, tables...)
	op, created, err := s.Nodes.TransitionNode(t.Context(),
		nodestore.TransitionRequest{MachineID: "m-1", RequestID: "out", To: node.Retired, DryRun: true}, storetest.Now())
	if err != nil || created || op.GetOperationId() != "" || len(*tell) != 0 ||
		storetest.Everything(t, s, tables...) != before {
		t.Errorf("%v %t %v, told %d", op, created, err, len(*tell))
	}
}

// A controller that dies anywhere in it has done all of it or nothing, and the same request brings it to its end.
func TestRetiringSurvivesACrash(t *testing.T) {
	for n, point := range []string{"store.before-apply", "store.before-commit", "store.after-commit"} {
		s := storetest.New(t)
		installer(t, s)
		a := serviced(t, s, "m-1")
		op, c := write(t, s, a, "r", 1)
		if err := storetest.Transition(s, "m-1", "out", node.Retired, false); err != nil {
			t.Fatal(err)
		}
		end := operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeCanceled}
		scope := failpoint.NewScope()
		scope.Set(point, failpoint.Panic())
		died := storetest.Dies(func() error {
			_, err := s.Operations.Decide(failpoint.With(t.Context(), scope), op, end, storetest.Now())
			return err
		})
		if !errors.Is(died, failpoint.ErrInjected) {
			t.Fatalf("got %v", died)
		}
		want := "installing"
		if n == 2 {
			want = "retired"
		}
		if got := storetest.State(t, s, "m-1"); got != want {
			t.Errorf("%s: the node is %s, want %s", point, got, want)
		}
		owned(t, s)
		storetest.Decide(t, s, op, end)
		if got := storetest.State(t, s, "m-1"); got != "retired" ||
			storetest.Count(t, s, "SELECT count(*) FROM node_state_log WHERE to_state = 'retired'") != 1 {
			t.Errorf("%s: in the end the node is %s", point, got)
		}
	}
}

// Of a retirement and a grant at the same time one comes first: what was granted is stopped, and what was not never
// starts.
func TestRetirementAgainstAGrant(t *testing.T) {
	s := storetest.New(t)
	for n := range 20 {
		id := fmt.Sprintf("m-%d", n)
		a := storetest.Live(t, s, id)
		op := storetest.Start(t, s, operationstore.StartRequest{MachineID: id, RequestID: "r",
			Type: fleet.Reboot}).GetOperationId()
		c := storetest.Decide(t, s, op, operation.Evaluate{}).Command
		var g *operationstore.Applied
		for _, err := range storetest.Together(t, 2, func(ctx context.Context, i int) error {
			if i == 0 {
				return purge(ctx, s, id, "out")
			}
			var err error
			g, err = s.Operations.Decide(ctx, op, storetest.Ask(a, c, 1, 1), storetest.Now())
			return err
		}) {
			if err != nil {
				t.Fatal(err)
			}
		}
		if g.Decision.Grant {
			if got := storetest.State(t, s, id); got != "active" {
				t.Errorf("granted first, and the node is %s already", got)
			}
			storetest.Decide(t, s, op, operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeCanceled})
		}
		if got := storetest.State(t, s, id); got != "retired" {
			t.Errorf("granted %t, and the node is %s", g.Decision.Grant, got)
		}
	}
}
