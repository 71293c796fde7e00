package public

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

func stamp(t time.Time) *timestamppb.Timestamp { return timestamppb.New(t.Truncate(time.Microsecond)) }

func stampIfSet(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return stamp(t)
}
