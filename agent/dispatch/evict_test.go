package dispatch_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/agent/dispatch"
	"github.com/ingot-metal/ingot/agent/state"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// settled puts a command that is over and done with into the store.
func settled(t *testing.T, s *state.Store, id string, done time.Time) {
	t.Helper()
	ctx := t.Context()
	if _, _, err := s.Receive(ctx, state.Command{ID: id, TargetID: "m", Spec: []byte("spec"), BootID: "b",
		ReceivedAt: done}); err != nil {
		t.Fatal(err)
	}
	if err := s.Finish(ctx, id, []byte("r"), done); err != nil {
		t.Fatal(err)
	}
	if err := s.Settle(ctx, id); err != nil {
		t.Fatal(err)
	}
}

func held(t *testing.T, s *state.Store, id string) bool {
	t.Helper()
	_, found, err := s.Command(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestOldCommandsAreEvictedAtStartAndDaily: commands that were settled over seven days ago are deleted when the agent
// starts, and once a day while it runs.
func TestOldCommandsAreEvictedAtStartAndDaily(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	fake := clock.NewFake(begin)
	store := memory(t)
	settled(t, store, "old", begin.Add(-state.Retention-time.Minute))
	settled(t, store, "recent", begin.Add(-state.Retention+time.Hour))
	start(t, store, &scriptedExecutor{}, func(c *dispatch.Config) { c.Clock, c.ResendEvery = fake, 48*time.Hour })
	if held(t, store, "old") || !held(t, store, "recent") {
		t.Fatalf("after the start: old %t, recent %t", held(t, store, "old"), held(t, store, "recent"))
	}
	if err := fake.BlockUntil(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	fake.Advance(24*time.Hour - time.Second)
	if !held(t, store, "recent") {
		t.Error("evicted before the day was over")
	}
	fake.Advance(time.Second)
	testkit.Eventually(t, 30*time.Second, func() bool { return !held(t, store, "recent") }, "not evicted after a day")
}
