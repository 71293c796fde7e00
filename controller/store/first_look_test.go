package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/fleet"
	"github.com/ingot-metal/ingot/controller/operation"
	"github.com/ingot-metal/ingot/controller/plan"
	"github.com/ingot-metal/ingot/controller/store"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/failpoint"
)

// heard is what a controller around the store is told.
type heard struct {
	mu      sync.Mutex
	created []string
	applied []*store.Applied
}

func listen(s *store.Store) *heard {
	h := &heard{}
	s.OnCreated(func(id string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.created = append(h.created, id)
	})
	s.OnApplied(func(a *store.Applied) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.applied = append(h.applied, a)
	})
	return h
}

// of gives the decisions that were told of an operation.
func (h *heard) of(operationID string) (list []*store.Applied) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, a := range h.applied {
		if a.OperationID == operationID {
			list = append(list, a)
		}
	}
	return list
}

// Where somebody carries out what is decided, an operation begins in the transaction that creates it. What comes after is as after
// any first look, also when many begin together.
func TestAnOperationBeginsWhereItIsCreated(t *testing.T) {
	s := storetest.New(t)
	const machines = 24
	agents := make([]enrolled, machines)
	for i := range agents {
		agents[i] = live(t, s, fmt.Sprintf("m-%d", i))
	}
	h := listen(s)
	ids := make([]string, machines)
	types := []fleet.OperationType{fleet.Reboot, fleet.Netboot, fleet.EnterMaintenance}
	for i, err := range together(t, machines, func(ctx context.Context, i int) error {
		a := agents[i]
		r := store.StartRequest{MachineID: a.machine, RequestID: "r", Type: types[i%len(types)]}
		op, created, err := s.Start(ctx, r, now())
		if err != nil || !created {
			return fmt.Errorf("created %t, %w", created, err)
		}
		id := op.GetOperationId()
		ids[i] = id
		first := h.of(id)
		if len(first) != 1 || first[0].Version != 2 {
			return fmt.Errorf("told of %d decisions", len(first))
		}
		if again, created, err := s.Start(ctx, r, now()); err != nil || created || again.GetOperationId() != id || len(h.of(id)) != 1 {
			return fmt.Errorf("a repeat: %v, created %t, %w", again, created, err)
		}
		if r.Type == fleet.EnterMaintenance {
			if first[0].Phase != operation.Succeeded {
				return fmt.Errorf("it is %s", first[0].Phase)
			}
			return nil
		}
		if len(first[0].Send) != 1 || first[0].Send[0].ExecutorID != a.id {
			return fmt.Errorf("sends %v", first[0].Send)
		}
		c := first[0].Command
		if look, err := s.Decide(ctx, id, 1, operation.Look{}, now()); err != nil || !look.StaleVersion {
			return fmt.Errorf("a look for the version before: %v, %w", look, err)
		}
		for _, e := range []operation.Event{
			ask(a, c, 1, 1),
			operation.Resulted{CommandID: c.ID, AgentID: a.id, Outcome: operation.OutcomeSucceeded, SessionBootID: "boot-2", Evidence: map[string]string{"boot_next": "network"}},
		} {
			if _, err := s.Decide(ctx, id, 0, e, now()); err != nil {
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
		whole(t, s, a.machine, ids[i], operation.Succeeded)
		intact(t, s, a.machine)
	}
	if len(h.created) != 0 {
		t.Errorf("%d are to be looked at by themselves", len(h.created))
	}
}

// An operation begins when its machine is its own, however long ago it was asked for: never before the end of the one before it.
func TestAnOperationBeginsWhenItsMachineIsFree(t *testing.T) {
	s := storetest.New(t)
	live(t, s, "m-1")
	h := listen(s)
	began := now()
	op, _, err := s.Start(t.Context(), store.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot}, began.Add(-time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	first := h.of(op.GetOperationId())
	if len(first) != 1 || first[0].Decision.Op.StartedAt.Before(began) || !first[0].CreatedAt.Before(began) {
		t.Errorf("%+v", first)
	}
}

// What takes part in more than its machine waits for a look of its own.
func TestDestructiveWorkIsLookedAtByItself(t *testing.T) {
	s := storetest.New(t)
	live(t, s, "m-1")
	maintenance(t, s, "m-1")
	h := listen(s)
	op := start(t, s, store.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reimage, Inputs: plan.Inputs{ImageRef: "any"}})
	if len(h.created) != 1 || h.created[0] != op.GetOperationId() || len(h.applied) != 0 || op.GetPhase().String() != "PENDING" {
		t.Errorf("%v, %v, %s", h.created, h.applied, op.GetPhase())
	}
}

// An operation whose first look cannot be stored does not exist, and nobody is told of it.
func TestAFirstLookThatFailsLeavesNothing(t *testing.T) {
	s := storetest.New(t)
	live(t, s, "m-1")
	h := listen(s)
	before := everything(t, s, decided...)
	for _, action := range []failpoint.Action{failpoint.Error(), failpoint.Panic()} {
		scope := failpoint.NewScope()
		scope.Set("store.before-apply", action)
		err := dies(func() error {
			_, _, err := s.Start(failpoint.With(t.Context(), scope), store.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot}, now())
			return err
		})
		if !errors.Is(err, failpoint.ErrInjected) || everything(t, s, decided...) != before || len(h.applied)+len(h.created) != 0 {
			t.Errorf("%v: %v, told of %d", action, err, len(h.applied)+len(h.created))
		}
	}
	op := start(t, s, store.StartRequest{MachineID: "m-1", RequestID: "r", Type: fleet.Reboot})
	whole(t, s, "m-1", op.GetOperationId(), operation.Running)
}
