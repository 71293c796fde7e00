package command_test

import (
	"testing"
	"time"

	"github.com/ingot-metal/ingot/cli/command"
	"github.com/ingot-metal/ingot/cli/times"
	"github.com/ingot-metal/ingot/internal/clock"
)

func TestMoment(t *testing.T) {
	berlin := time.FixedZone("CET", 3600)
	times.SetZone(berlin)
	defer times.SetZone(nil)
	now := time.Date(2026, 3, 1, 14, 0, 0, 0, berlin)
	a := &command.App{Config: command.Config{Clock: clock.NewFake(now)}}
	for s, want := range map[string]time.Time{
		"2026-02-03T04:05:06Z": time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC),
		"90m":                  now.Add(-90 * time.Minute),
		"0s":                   now,
		"03:12":                time.Date(2026, 3, 1, 3, 12, 0, 0, berlin),
		"14:00":                now,
		// It was never so late today.
		"14:01":    time.Date(2026, 2, 28, 14, 1, 0, 0, berlin),
		"22:30:05": time.Date(2026, 2, 28, 22, 30, 5, 0, berlin),
		// An offset is taken at its word.
		"13:12Z":           time.Date(2026, 2, 28, 13, 12, 0, 0, time.UTC),
		"12:59Z":           time.Date(2026, 3, 1, 12, 59, 0, 0, time.UTC),
		"03:12+02:00":      time.Date(2026, 3, 1, 1, 12, 0, 0, time.UTC),
		"2026-02-03 04:05": time.Date(2026, 2, 3, 4, 5, 0, 0, berlin),
	} {
		if got, err := a.Moment("--as-of", s); err != nil || !got.AsTime().Equal(want) {
			t.Errorf("%s: %v, want %v, %v", s, got.AsTime().In(berlin), want, err)
		}
	}
	if got, err := a.Moment("--as-of", ""); got != nil || err != nil {
		t.Errorf("none: %v, %v", got, err)
	}
	for _, s := range []string{"-2h", "25:00", "yesterday", "3:1", "2026-03-01"} {
		if got, err := a.Moment("--as-of", s); err == nil {
			t.Errorf("%s: %v", s, got)
		}
	}
}
