package clock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ingot-metal/ingot/internal/clock"
)

func TestSteeredFollowsWhatIsFarAway(t *testing.T) {
	t.Parallel()
	own := clock.NewFake(start)
	s := clock.NewSteered(own)
	tell := func(at time.Time, after time.Duration) func() (time.Time, error) {
		return func() (time.Time, error) {
			own.Advance(after)
			return at, nil
		}
	}
	if behind, set, err := s.Follow(tell(start.Add(200*time.Millisecond), 0)); set || err != nil ||
		behind != 200*time.Millisecond {
		t.Fatalf("a little off: behind %v, set %v, error %v", behind, set, err)
	}
	if !s.Now().Equal(start) {
		t.Fatalf("moved to %v without being set", s.Now())
	}
	// The answer took two seconds: when it was given is known to one second, and nothing less is acted on.
	if _, set, _ := s.Follow(tell(start.Add(2*time.Second+200*time.Millisecond), 2*time.Second)); set {
		t.Fatal("set by less than the answer's uncertainty")
	}
	hours := start.Add(-3 * time.Hour)
	if behind, set, _ := s.Follow(tell(hours, 0)); !set || behind != -3*time.Hour-2*time.Second {
		t.Fatalf("hours ahead: behind %v, set %v", behind, set)
	}
	own.Advance(time.Minute)
	if want := hours.Add(time.Minute); !s.Now().Equal(want) {
		t.Fatalf("Now = %v, want %v", s.Now(), want)
	}
}

func TestSteeredGoesOnAloneWhenNobodyAnswers(t *testing.T) {
	t.Parallel()
	own := clock.NewFake(start)
	s := clock.NewSteered(own)
	gone := errors.New("gone")
	if _, set, err := s.Follow(func() (time.Time, error) { return time.Time{}, gone }); set || !errors.Is(err, gone) {
		t.Fatalf("set %v, error %v", set, err)
	}
	own.Advance(time.Hour)
	if !s.Now().Equal(start.Add(time.Hour)) {
		t.Fatalf("Now = %v", s.Now())
	}
}
