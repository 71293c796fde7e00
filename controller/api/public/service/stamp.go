package service

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// Stamp is a time as the API shows it, in microseconds.
func Stamp(t time.Time) *timestamppb.Timestamp { return timestamppb.New(t.Truncate(time.Microsecond)) }

// StampIfSet is Stamp, and nil for the zero time.
func StampIfSet(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return Stamp(t)
}
