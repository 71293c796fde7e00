package explain

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// Span writes a duration in the usual form.
func Span(d time.Duration) string {
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

// Ago returns how long t lies back.
func (f *Facts) Ago(t time.Time) string { return Span(f.Now.Sub(t)) + " ago" }

// At is a time of day, with the day where it is another one.
func (f *Facts) At(t time.Time) string {
	if d := f.Now.Sub(t); d > 18*time.Hour || d < -18*time.Hour {
		return t.UTC().Format("2006-01-02 15:04 UTC")
	}
	return t.UTC().Format("15:04:05 UTC")
}

// Seen returns a text with when an agent was heard last.
func (f *Facts) Seen(a *Agent) string {
	if a.LastSeen.IsZero() {
		return "has never connected"
	}
	return "was heard last at " + f.At(a.LastSeen) + ", " + f.Ago(a.LastSeen)
}

// Latest returns the latest of some times.
func Latest(times ...time.Time) time.Time {
	var out time.Time
	for _, t := range times {
		if t.After(out) {
			out = t
		}
	}
	return out
}

// Earliest returns the earlier of two times.
func Earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// When is a stamp as a time; the zero time where there is none.
func When(ts *timestamppb.Timestamp) time.Time {
	if ts == nil {
		return time.Time{}
	}
	return ts.AsTime()
}
