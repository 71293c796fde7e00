package operation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
)

// Operations that are created together have one job each, whatever their type, and a repeated request has no other.
func TestEachNewOperationHasItsJob(t *testing.T) {
	s := storetest.New(t)
	const machines = 24
	agents := make([]storetest.Enrolled, machines)
	for i := range agents {
		agents[i] = storetest.Live(t, s, fmt.Sprintf("m-%d", i))
	}
	h := storetest.Listen(s)
	ids := make([]string, machines)
	types := []fleet.OperationType{fleet.Reboot, fleet.Netboot, fleet.EnterMaintenance}
	for i, err := range storetest.Together(t, machines, func(ctx context.Context, i int) error {
		a := agents[i]
		r := operationstore.StartRequest{MachineID: a.Machine, RequestID: "r", Type: types[i%len(types)]}
		op, created, err := s.Operations.Start(ctx, r, storetest.Now())
		if err != nil || !created {
			return fmt.Errorf("created %t, %w", created, err)
		}
		ids[i] = op.GetOperationId()
		if again, created, err := s.Operations.Start(ctx, r, storetest.Now()); err != nil || created ||
			again.GetOperationId() != ids[i] {
			return fmt.Errorf("a repeat: %v, created %t, %w", again, created, err)
		}
		first, err := s.Operations.Decide(ctx, ids[i], operation.Due{}, storetest.Now())
		if err != nil || r.Type == fleet.EnterMaintenance {
			return err
		}
		c := first.Command
		for _, e := range []operation.Event{
			operation.Due{}, // which it is no more
			storetest.Ask(a, c, 1, 1),
			operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeSucceeded, SessionBootID: "boot-2",
				Evidence: map[string]string{"boot_next": "network"}},
		} {
			if _, err := s.Operations.Decide(ctx, ids[i], e, storetest.Now()); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("%s on machine %d: %v", types[i%len(types)], i, err)
		}
	}
	jobs := map[operationstore.JobKey]int{}
	for _, k := range h.Jobs {
		jobs[k]++
	}
	for i, a := range agents {
		storetest.Whole(t, s, a.Machine, ids[i], operation.Succeeded)
		storetest.Intact(t, s, a.Machine)
		if n := jobs[operationstore.JobKey{OperationID: ids[i], MachineID: a.Machine, RequestID: "r"}]; n != 1 {
			t.Errorf("operation %d has %d jobs", i, n)
		}
	}
	if len(jobs) != machines {
		t.Errorf("%d jobs of %d operations", len(jobs), machines)
	}
}

// An operation whose job cannot be inserted does not exist.
func TestNoOperationWithoutItsJob(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	full := errors.New("no more room")
	s.Operations.OnCreated(func(context.Context, pgx.Tx, []*operationstore.NewJob) error { return full }, nil)
	before := storetest.Everything(t, s, storetest.Decided...)
	r := operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot}
	if _, _, err := s.Operations.Start(t.Context(), r, storetest.Now()); !errors.Is(err, full) ||
		storetest.Everything(t, s, storetest.Decided...) != before {
		t.Errorf("%v, or something is left", err)
	}
}

// A job that comes before an operation's time decides nothing; one that comes by a clock that is a little slow does.
func TestWhatIsNotDueWaits(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	id := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r",
		Type: fleet.Reboot}).GetOperationId()
	before := storetest.Everything(t, s, storetest.Decided...)
	if _, err := s.Operations.Decide(t.Context(), id, operation.Due{}, storetest.Now().Add(-time.Minute)); err != nil ||
		storetest.Everything(t, s, storetest.Decided...) != before {
		t.Errorf("a minute early: %v, or something has changed", err)
	}
	a, err := s.Operations.Decide(t.Context(), id, operation.Due{}, storetest.Now().Add(-100*time.Millisecond))
	if err != nil || a.Phase != operation.Running {
		t.Errorf("by a slow clock: %+v, %v", a, err)
	}
}
