package operation_test

import (
	"fmt"
	"testing"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
	agentstore "github.com/ingot-metal/ingot/controller/store/agent"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

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
