// Package times writes and reads every time of the command line, in one zone.
package times

import (
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ingot-metal/ingot/internal/when"
)

// zone is that of every time in this process's output for people. A process writes one output.
var zone atomic.Pointer[time.Location]

// SetZone sets the zone of every time in output for people; nil is UTC.
func SetZone(l *time.Location) { zone.Store(l) }

// Zone returns the zone of every time in output for people.
func Zone() *time.Location {
	if l := zone.Load(); l != nil {
		return l
	}
	return time.UTC
}

// Time is RFC 3339 to the second in the zone of the output, which its offset names; empty when absent.
func Time(ts *timestamppb.Timestamp) string {
	if ts == nil {
		return ""
	}
	return TimeOf(ts.AsTime())
}

// TimeOf is Time of a moment that is always there.
func TimeOf(t time.Time) string { return t.In(Zone()).Format(time.RFC3339) }

// Clock is the time of day in the zone of the output, with its offset: "03:12:07+01:00", "03:12:07Z".
func Clock(ts *timestamppb.Timestamp) string {
	if ts == nil {
		return "--:--:--"
	}
	return ClockOf(ts.AsTime())
}

// ClockOf is Clock of a moment that is always there.
func ClockOf(t time.Time) string { return t.In(Zone()).Format(time.TimeOnly + "Z07:00") }

// Stamp is RFC 3339 in UTC to the second, for documents that programs read and signatures cover.
func Stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// FileStamp is a moment in UTC as a part of a file's name: "20260301-031207".
func FileStamp(t time.Time) string { return t.UTC().Format("20060102-150405") }

// ParseTime reads a moment as a person writes it. Without an offset it is in the zone of the output. A time of day is
// the last one before now. ok reports whether text is a time.
func ParseTime(text string, now time.Time) (at time.Time, ok bool) {
	return when.Person(text, now, Zone())
}
