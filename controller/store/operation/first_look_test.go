package operation_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/domain/operation"
	"github.com/ingot-metal/ingot/controller/domain/plan"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// Where somebody carries out what is decided, an operation begins in the transaction that creates it. What comes after
// is as after any first look, also when many begin together.
func TestAnOperationBeginsWhereItIsCreated(t *testing.T) {
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
		op, created, err := s.Start(ctx, r, storetest.Now())
		if err != nil || !created {
			return fmt.Errorf("created %t, %w", created, err)
		}
		id := op.GetOperationId()
		ids[i] = id
		first := h.Of(id)
		if len(first) != 1 || first[0].Version != 2 {
			return fmt.Errorf("told of %d decisions", len(first))
		}
		if again, created, err := s.Start(ctx, r, storetest.Now()); err != nil || created || again.GetOperationId() != id ||
			len(h.Of(id)) != 1 {
			return fmt.Errorf("a repeat: %v, created %t, %w", again, created, err)
		}
		if r.Type == fleet.EnterMaintenance {
			if first[0].Phase != operation.Succeeded {
				return fmt.Errorf("it is %s", first[0].Phase)
			}
			return nil
		}
		if len(first[0].Send) != 1 || first[0].Send[0].ExecutorID != a.ID {
			return fmt.Errorf("sends %v", first[0].Send)
		}
		c := first[0].Command
		if look, err := s.Decide(ctx, id, 1, operation.Evaluate{}, storetest.Now()); err != nil || !look.StaleVersion {
			return fmt.Errorf("a look for the version before: %v, %w", look, err)
		}
		for _, e := range []operation.Event{
			storetest.Ask(a, c, 1, 1),
			operation.Resulted{CommandID: c.ID, AgentID: a.ID, Outcome: operation.OutcomeSucceeded, SessionBootID: "boot-2",
				Evidence: map[string]string{"boot_next": "network"}},
		} {
			if _, err := s.Decide(ctx, id, 0, e, storetest.Now()); err != nil {
				return err
			}
		}
		return nil
	}) {
		if err != nil {
			t.Errorf("%s on machine %d: %v", types[i%len(types)], i, err)
		}
	}
	for i, a := range agents {
		storetest.Whole(t, s, a.Machine, ids[i], operation.Succeeded)
		storetest.Intact(t, s, a.Machine)
	}
	if len(h.Created) != 0 {
		t.Errorf("%d are to be looked at by themselves", len(h.Created))
	}
}

// An operation begins when its machine is its own, however long ago it was asked for: never before the end of the one
// before it.
func TestAnOperationBeginsWhenItsMachineIsFree(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	h := storetest.Listen(s)
	began := storetest.Now()
	op, _, err := s.Start(t.Context(), operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot},
		began.Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	first := h.Of(op.GetOperationId())
	if len(first) != 1 || first[0].Decision.Op.StartedAt.Before(began) || !first[0].CreatedAt.Before(began) {
		t.Errorf("%+v", first)
	}
}

// What takes part in more than its machine waits for a look of its own.
func TestDestructiveWorkIsLookedAtByItself(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	storetest.Maintenance(t, s, "m-1")
	h := storetest.Listen(s)
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage,
		Inputs: plan.Inputs{ImageRef: "any"}})
	if len(h.Created) != 1 || h.Created[0] != op.GetOperationId() || len(h.Applied) != 0 ||
		op.GetPhase().String() != "PENDING" {
		t.Errorf("%v, %v, %s", h.Created, h.Applied, op.GetPhase())
	}
}

// An operation whose first look cannot be stored does not exist, and nobody is told of it.
func TestAFirstLookThatFailsLeavesNothing(t *testing.T) {
	s := storetest.New(t)
	storetest.Live(t, s, "m-1")
	h := storetest.Listen(s)
	before := storetest.Everything(t, s, storetest.Decided...)
	for _, action := range []failpoint.Action{failpoint.Error(), failpoint.Panic()} {
		scope := failpoint.NewScope()
		scope.Set("store.before-apply", action)
		err := storetest.Dies(func() error {
			_, _, err := s.Start(failpoint.With(t.Context(), scope),
				operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot}, storetest.Now())
			return err
		})
		if !errors.Is(err, failpoint.ErrInjected) || storetest.Everything(t, s, storetest.Decided...) != before ||
			len(h.Applied)+len(h.Created) != 0 {
			t.Errorf("%v: %v, told of %d", action, err, len(h.Applied)+len(h.Created))
		}
	}
	op := storetest.Start(t, s, operationstore.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot})
	storetest.Whole(t, s, "m-1", op.GetOperationId(), operation.Running)
}
