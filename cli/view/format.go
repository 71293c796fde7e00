package view

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ingot-metal/ingot/cli/times"
)

// Duration writes d in the usual form: "850ms", "12s", "4m 32s", "1h 05m", "3d 4h".
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm %02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh %02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd %dh", int(d.Hours())/24, int(d.Hours())%24)
}

// Time is the moment in the zone of the output; empty when absent.
func Time(ts *timestamppb.Timestamp) string { return times.Time(ts) }

// Age is the time from ts to now; empty when ts is absent.
func Age(ts *timestamppb.Timestamp, now time.Time) string {
	if ts == nil {
		return ""
	}
	return Duration(now.Sub(ts.AsTime()).Truncate(time.Second))
}

// Between is the time from one stamp to another; empty when one is absent.
func Between(from, to *timestamppb.Timestamp) string {
	if from == nil || to == nil {
		return ""
	}
	return Duration(to.AsTime().Sub(from.AsTime()))
}

// Pairs writes a map as "a=1,b=2" in the order of the keys.
func Pairs(m map[string]string) string {
	parts := make([]string, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, Clean(k+"="+m[k]))
	}
	return strings.Join(parts, ",")
}

// Mark is ✓ for true and nothing for false, which a table shows as "-".
func Mark(b bool) string {
	if b {
		return "✓"
	}
	return ""
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// trimEnum takes the prefix that top-level protobuf enums carry off a name.
func trimEnum(name, prefix string) string {
	name = strings.TrimPrefix(name, prefix)
	if name == "UNSPECIFIED" {
		return ""
	}
	return name
}
