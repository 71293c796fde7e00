package storetest

import (
	"testing"

	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/store"
)

// Decided are the tables that a decision may write.
var Decided = []string{
	"operations", "operation_steps", "commands", "operation_events", "machines", "machine_conditions", "agent_states",
	"audit_log",
}

// Dies turns a panic into an error.
func Dies(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err, _ = p.(error)
		}
	}()
	return fn()
}

// Whole checks that everything about an operation is of one decision.
func Whole(t *testing.T, s *store.Store, machineID, id string, want operation.Phase) {
	t.Helper()
	op, err := s.OperationQueries.GetOperation(t.Context(), id)
	if err != nil || op.GetPhase().String() != string(want) {
		t.Fatalf("%v, %v, want %s", op, err, want)
	}
	events, err := s.Logs.EventsOf(t.Context(), id, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		if e.Seq != int64(i+1) {
			t.Errorf("event %d has number %d", i, e.Seq)
		}
	}
	last := events[len(events)-1]
	if last.Snapshot.GetPhase() != op.GetPhase() {
		t.Errorf("the last event shows %s", last.Snapshot.GetPhase())
	}
	over := operation.IsTerminal(want)
	if m := Machine(t, s, machineID); (m.GetStatus().GetActiveOperationId() == "") != over {
		t.Errorf("%s, and the machine points to %q", want, m.GetStatus().GetActiveOperationId())
	}
	if n := Count(t, s,
		"SELECT count(*) FROM commands WHERE operation_id = $1 AND state IN ('QUEUED', 'SENT', 'ACKED', 'GRANTED')",
		id); (n == 0) != over {
		t.Errorf("%s with %d commands under way", want, n)
	}
}
