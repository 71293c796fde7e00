package operation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// The grants of one memory that come together are counted in their order: none of them is taken for one of an older
// copy, also where a machine in the middle is locked by somebody else. A number that was used before is found among
// them.
func TestGrantsOfOneMemoryThatComeTogether(t *testing.T) {
	s := storetest.New(t)
	const machines, locked = 6, 2
	site := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "site", Role: "site", Site: "default"})
	storetest.Lease(t, s)
	storetest.Open(t, s, site.Hello("st-1", "boot-1"))
	var asked []operationstore.Asked
	for i := range machines {
		id := fmt.Sprintf("m-%d", i)
		if _, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: id,
			Spec: &baremetalv1.MachineSpec{Provider: "fake", Site: "default"}}, "tester", storetest.Now()); err != nil {
			t.Fatal(err)
		}
		storetest.Exec(t, s, "UPDATE machines SET phase = 'READY' WHERE machine_id = '"+id+"'")
		op := storetest.Start(t, s, operationstore.StartRequest{MachineID: id, RequestID: "r", Type: fleet.Reboot})
		c := storetest.Decide(t, s, op.GetOperationId(), operation.Due{}).Command
		if c == nil || c.ExecutorID != site.ID {
			t.Fatalf("the site's agent is not asked: %+v", c)
		}
		asked = append(asked, operationstore.Asked{OperationID: op.GetOperationId(), Event: storetest.Ask(site, c,
			uint64(10+i), 1)})
	}
	tx, err := s.DB.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), fmt.Sprintf("SELECT 1 FROM machines WHERE machine_id = 'm-%d' FOR UPDATE",
		locked)); err != nil {
		t.Fatal(err)
	}
	task.Background("let go of the machine", func() {
		<-time.After(200 * time.Millisecond)
		_ = tx.Rollback(context.Background()) // nothing was written
	})
	for i, d := range s.Operations.DecideAll(t.Context(), asked, storetest.Now()) {
		if d.Err != nil || !d.Applied.Decision.Grant {
			t.Errorf("grant %d: %v, %+v", i, d.Err, d.Applied)
		}
	}
	if n := storetest.Count(
		t,
		s,
		"SELECT last_grant_seq FROM agent_states WHERE agent_id = $1",
		site.ID,
	); n != 9+machines {
		t.Errorf("the last number is %d", n)
	}
	again := s.Operations.DecideAll(t.Context(), asked[:2], storetest.Now())
	for i, d := range again {
		if d.Err != nil || d.Applied.Decision.Grant {
			t.Errorf("used number %d: %v, %+v", i, d.Err, d.Applied)
		}
	}
}

// TestADecisionHasTheTimeOfItsLock: an operation that ends once somebody else has let go of its machine did not end
// before that.
func TestADecisionHasTheTimeOfItsLock(t *testing.T) {
	s := storetest.New(t)
	_, id, _ := storetest.Rebooting(t, s, "m-1")
	tx, err := s.DB.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM machines WHERE machine_id = 'm-1' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	released := make(chan time.Time, 1)
	task.Background("let go of the machine", func() {
		<-time.After(200 * time.Millisecond)
		released <- storetest.Now()
		_ = tx.Rollback(context.Background()) // nothing was written
	})
	asked := storetest.Now()
	a, err := s.Operations.Decide(t.Context(), id, operation.Quarantine{Reason: "OUTCOME_UNKNOWN", Message: "of the test"},
		asked)
	if err != nil {
		t.Fatal(err)
	}
	if free := <-released; a.FinishedAt.Before(free) {
		t.Errorf("asked at %s, locked until %s, finished at %s", asked, free, a.FinishedAt)
	}
}

// TestACallerThatLeavesTouchesNoDecision: a caller may leave while its event waits for a machine that is locked. The
// event is decided all the same, and the caller has read nothing of what it writes; the race detector watches.
func TestACallerThatLeavesTouchesNoDecision(t *testing.T) {
	s := storetest.New(t)
	storetest.Register(t, s, "m-1")
	storetest.Exec(t, s, "UPDATE machines SET phase = 'READY' WHERE machine_id = 'm-1'")
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot})
	tx, err := s.DB.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT 1 FROM machines WHERE machine_id = 'm-1' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	stored := make(chan struct{})
	task.Background("let go of the machine", func() {
		defer close(stored)
		<-time.After(200 * time.Millisecond)
		_ = tx.Rollback(context.Background()) // nothing was written
		testkit.Eventually(t, 20*time.Second, func() bool {
			return storetest.Count(t, s, "SELECT count(*) FROM operations WHERE phase = 'CANCELED'") == 1
		}, "the event of a caller that has left was lost")
	})
	ctx, leave := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer leave()
	a, err := s.Operations.Decide(ctx, op.GetOperationId(), operation.CancelAsked{Actor: "tester"}, storetest.Now())
	<-stored // any input or output here would order the caller's reads before the writes, and hide a race
	if a != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a caller that has left got %+v, %v", a, err)
	}
}

// TestASetIsOneTransaction: events of different machines that come together cost one transaction, and as many round
// trips as one of them. Without that a set is stored all the same, one member after the other.
func TestASetIsOneTransaction(t *testing.T) {
	const machines, mostTrips = 7, 6
	c := &storetest.Trips{}
	s := storetest.With(t, store.Config{Tracer: c})
	site := storetest.Enrol(t, s, agentstore.NewToken{TokenID: "site", Role: "site", Site: "default"})
	storetest.Lease(t, s)
	storetest.Open(t, s, site.Hello("st-1", "boot-1"))
	var ids []string
	for i := range machines {
		id := fmt.Sprint("m-", i)
		if _, err := s.Machines.Register(t.Context(), &baremetalv1.Machine{MachineId: id,
			Spec: &baremetalv1.MachineSpec{Provider: "fake", Site: "default"}}, "tester", storetest.Now()); err != nil {
			t.Fatal(err)
		}
		storetest.Maintenance(t, s, id)
		ids = append(ids, storetest.Start(t, s, operationstore.StartRequest{MachineID: id, RequestID: "r",
			Type: fleet.Reboot}).GetOperationId())
	}
	var last []operationstore.Decided
	together := func(what string, event func(i int) operation.Event) {
		t.Helper()
		var asked []operationstore.Asked
		for i, id := range ids {
			asked = append(asked, operationstore.Asked{OperationID: id, Event: event(i)})
		}
		transactions, trips := c.Transactions.Load(), c.RoundTrips.Load()
		last = s.Operations.DecideAll(t.Context(), asked, storetest.Now())
		transactions, trips = c.Transactions.Load()-transactions, c.RoundTrips.Load()-trips
		if transactions != 1 || trips > mostTrips {
			t.Errorf("%s: %d transactions in %d round trips, want 1 in %d at most", what, transactions, trips, mostTrips)
		}
		for i, d := range last {
			if d.Err != nil || d.Applied.Decision.Refusal != nil {
				t.Fatalf("%s %d: %v, %+v", what, i, d.Err, d.Applied)
			}
		}
	}
	commands := make([]*operation.Command, machines)
	together("a first look", func(int) operation.Event { return operation.Due{} })
	for i, d := range last {
		if commands[i] = d.Applied.Command; commands[i] == nil || commands[i].State != operation.Sent {
			t.Fatalf("the first look made %+v", commands[i])
		}
	}
	together("an acknowledgement", func(i int) operation.Event {
		return operation.AckedByAgent{CommandID: commands[i].ID}
	})
	together("an ask", func(i int) operation.Event { return storetest.Ask(site, commands[i], uint64(i+1), 1) })
	together("a result", func(i int) operation.Event {
		return operation.Resulted{CommandID: commands[i].ID, AgentID: site.ID, StateID: "st-1",
			Outcome: operation.OutcomeSucceeded}
	})
	for i := range ids {
		storetest.Intact(t, s, fmt.Sprint("m-", i))
	}
}
