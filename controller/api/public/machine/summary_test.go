package machine

import (
	"context"
	"errors"
	"testing"
	"time"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/clock"
)

// The database is asked once in a while, however many callers there are. A caller whose read failed does not affect the
// others.
func TestSummariesAreReadOnceInAWhile(t *testing.T) {
	c := clock.NewFake(time.Unix(1000, 0))
	reads, broken := 0, errors.New("the database is away")
	var failing error
	s := newSummary(func(context.Context) (*baremetalv1.FleetSummary, error) {
		reads++
		return &baremetalv1.FleetSummary{TotalMachines: int32(reads)}, failing
	}, c)
	failing = broken
	if _, err := s.get(t.Context()); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	failing = nil
	for _, step := range []struct {
		later time.Duration
		want  int32
	}{{0, 2}, {0, 2}, {summaryFor - 1, 2}, {1, 3}, {time.Hour, 4}} {
		c.Advance(step.later)
		got, err := s.get(t.Context())
		if err != nil || got.GetTotalMachines() != step.want {
			t.Errorf("after %v: %v, %v; want read %d", step.later, got, err, step.want)
		}
		got.TotalMachines = 0 // an answer is its caller's own
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.turn <- struct{}{}
	if _, err := s.get(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("behind a read that hangs: %v", err)
	}
}
