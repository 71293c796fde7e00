package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/controller/limit/reconnect"
	"github.com/ingot-metal/ingot/internal/clock"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/task"
	"github.com/ingot-metal/ingot/internal/testkit"
)

// crowded is a gate with one place, which is taken; more of them come at 10 a second.
func crowded(t *testing.T, waiting int) (*sessionLimit, *clock.Fake) {
	t.Helper()
	c := clock.NewFake(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	g := &sessionLimit{limits: reconnect.Limits{Rate: 10, Burst: 1, Concurrent: 1, Waiting: waiting}, clock: c}
	if err := g.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g, c
}

func (g *sessionLimit) queue() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiting)
}

// hello enters in the background, after those who wait already.
func hello(ctx context.Context, t *testing.T, g *sessionLimit) <-chan error {
	t.Helper()
	n, done := g.queue(), make(chan error, 1)
	task.Background("hello", func() { done <- g.enter(ctx) })
	testkit.Eventually(t, 10*time.Second, func() bool { return g.queue() == n+1 }, "the hello waits")
	return done
}

func TestHellosWaitInTurn(t *testing.T) {
	t.Parallel()
	g, c := crowded(t, 2)
	first, second := hello(t.Context(), t, g), hello(t.Context(), t, g)
	if err := g.enter(t.Context()); failure.ReasonOf(err) != "ADMISSION_PACED" || failure.From(err).RetryAfter <= 0 {
		t.Errorf("a third one: %v", err)
	}
	g.leave()
	c.Advance(100 * time.Millisecond)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if n := g.queue(); n != 1 {
		t.Fatalf("%d wait behind the first", n)
	}
	c.Advance(100 * time.Millisecond) // room by the rate, and none beside the one in the making
	if n := g.queue(); n != 1 {
		t.Error("two sessions are in the making")
	}
	g.leave()
	if err := <-second; err != nil {
		t.Error(err)
	}
}

func TestAHelloWaitsNoLongerThanItMay(t *testing.T) {
	t.Parallel()
	g, c := crowded(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	gone, late := hello(ctx, t, g), hello(t.Context(), t, g)
	cancel()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("an agent that has gone: %v", err)
	}
	testkit.Eventually(t, 10*time.Second, func() bool {
		c.Advance(turnMost)
		select {
		case err := <-late:
			if failure.ReasonOf(err) != "ADMISSION_PACED" {
				t.Errorf("after its time: %v", err)
			}
			return true
		default:
			return false
		}
	}, "it is told to come again")
	if n := g.queue(); n != 0 {
		t.Errorf("%d wait still", n)
	}
}
