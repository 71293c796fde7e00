package engine

import (
	"fmt"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/controller/session"
	operationstore "github.com/ingot-metal/ingot/controller/store/operation"
	"github.com/ingot-metal/ingot/controller/store/storetest"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// TestASweepDoesNotFeedItself: while nobody gets round to the looks that are queued, sweeps queue no more than there is
// room for, however often the claims run out; once there is room, what is due has its turn.
func TestASweepDoesNotFeedItself(t *testing.T) {
	s := storetest.New(t)
	hands := clock.NewFake(time.Now())
	e, err := New(Config{Store: s, Sessions: session.NewRegistry(), Clock: hands, Logger: testkit.Logger(t),
		ControllerID: "ctl"})
	if err != nil {
		t.Fatal(err)
	}
	s.OnCreated(nil) // no first look: all are the sweep's
	const due = sweepAtMost + 20
	for i := range due {
		id := fmt.Sprintf("m-%03d", i)
		if _, err := s.Register(t.Context(),
			&baremetalv1.Machine{MachineId: id, Spec: &baremetalv1.MachineSpec{Provider: "fake"}}, "tester",
			hands.Now()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Start(t.Context(), operationstore.StartRequest{MachineID: id, RequestID: "r",
			Type: fleet.EnterMaintenance, Actor: "tester"}, hands.Now()); err != nil {
			t.Fatal(err)
		}
	}
	for round, want := range []int{sweepAtMost, 0, 0} {
		hands.Advance(10 * time.Second)
		if n, err := e.sweep(t.Context()); err != nil || n != want {
			t.Fatalf("round %d: %d looks queued, error %v; want %d", round, n, err, want)
		}
	}
	if _, err := s.Pool().Exec(t.Context(), `UPDATE river_job SET state = 'completed', finalized_at = now()`); err != nil {
		t.Fatal(err)
	}
	hands.Advance(10 * time.Second)
	if n, err := e.sweep(t.Context()); err != nil || n != sweepAtMost {
		t.Fatalf("with room again: %d looks queued, error %v", n, err)
	}
}
