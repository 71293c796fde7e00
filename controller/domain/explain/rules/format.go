package rules

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ingot-metal/ingot/controller/domain/explain"
)

// span writes a duration the way a person says it.
func span(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours())/24)
}

// ago says how long t lies back.
func (s *scene) ago(t time.Time) string { return span(s.Now.Sub(t)) + " ago" }

// at is a time of day, with the day where it is another one.
func (s *scene) at(t time.Time) string {
	if d := s.Now.Sub(t); d > 18*time.Hour || d < -18*time.Hour {
		return t.UTC().Format("2006-01-02 15:04 UTC")
	}
	return t.UTC().Format("15:04:05 UTC")
}

// seen says when an agent was heard last.
func (s *scene) seen(a *explain.Agent) string {
	if a.LastSeen.IsZero() {
		return "has never connected"
	}
	return "was heard last at " + s.at(a.LastSeen) + ", " + s.ago(a.LastSeen)
}

func list(words []string) string { return strings.Join(words, ", ") }

// latest gives the latest of some times.
func latest(times ...time.Time) time.Time {
	var out time.Time
	for _, t := range times {
		if t.After(out) {
			out = t
		}
	}
	return out
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// when is a stamp as a time; the zero time where there is none.
func when(ts *timestamppb.Timestamp) time.Time {
	if ts == nil {
		return time.Time{}
	}
	return ts.AsTime()
}
