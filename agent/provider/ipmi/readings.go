package ipmi

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/ingot-metal/ingot/agent/provider"
)

// skipEntries is how many numbers are tried after an entry that cannot be read, and so names no next one.
const skipEntries = 4

// EventLog returns the newest entries of the system event log, newest first, at most limit. Entries are read one by
// one, from the oldest on: that is how the log is linked (31.5). Where entries could not be read it returns the others,
// and an error that names those.
func (c *Client) EventLog(ctx context.Context, limit int) (out []provider.Event, err error) {
	err = c.call(ctx, func() error {
		info, err := c.api.GetSELInfo(ctx)
		if unsupported(err) {
			return refuse("the BMC offers no event log")
		}
		if err != nil || info.Entries == 0 {
			return err
		}
		out, err = c.entries(ctx, limit, int(info.Entries))
		return err
	})
	slices.Reverse(out)
	return out, err
}

func (c *Client) entries(ctx context.Context, limit, count int) (out []provider.Event, err error) {
	var missing []string
	const first, last = 0x0000, 0xffff
	for next, skipped, asked := uint16(first), 0, 0; next != last; asked++ {
		if asked > count+skipEntries {
			missing = append(missing, "entries of a log that is linked in a circle")
			break
		}
		r, err := c.api.GetSELEntry(ctx, 0, next)
		if answeredNo(err) {
			missing = append(missing, fmt.Sprintf("entry %#04x: %s", next, whyNot(err)))
			if skipped++; skipped > skipEntries {
				break
			}
			next++
			continue
		}
		if err != nil {
			return out, err
		}
		skipped = 0
		if entry, err := types.ParseSEL(r.Data); err == nil {
			out = append(out, event(entry))
		} else {
			missing = append(missing, fmt.Sprintf("entry %#04x: it makes no sense", next))
		}
		if r.NextRecordID == next {
			missing = append(missing, "entries of a log that is linked in a circle")
			break
		}
		next = r.NextRecordID
		out = out[max(0, len(out)-limit):]
	}
	if len(missing) > 0 {
		return out, &provider.Incomplete{Missing: missing}
	}
	return out, nil
}

// severities are those of go-ipmi, for thresholds that were passed.
var severities = map[types.EventSeverity]string{
	types.EventSeverityOK: ok, types.EventSeverityInfo: ok, types.EventSeverityWarning: warning,
	types.EventSeverityDegraded: warning, types.EventSeverityCritical: critical,
	types.EventSeverityNonFatal: critical,
}

func event(e *types.SEL) provider.Event {
	out := provider.Event{ID: fmt.Sprint(e.RecordID)}
	switch {
	case e.Standard != nil:
		out.At = logTime(e.Standard.Timestamp)
		out.Message = fmt.Sprintf("%s sensor %#02x: %s", e.Standard.SensorType, uint8(e.Standard.SensorNumber),
			e.Standard.EventString())
		out.Severity = severity(e.Standard)
	case e.OEMTimestamped != nil:
		out.At = logTime(e.OEMTimestamped.Timestamp)
		out.Message = fmt.Sprintf("OEM record of manufacturer %d: % x", e.OEMTimestamped.ManufacturerID,
			e.OEMTimestamped.OEMDefined)
	case e.OEMNonTimestamped != nil:
		out.Message = fmt.Sprintf("OEM record: % x", e.OEMNonTimestamped.OEM)
	}
	return out
}

// severity is that of the state that was entered, by the same tables as a sensor's; to leave one is no fault.
func severity(e *types.SELStandard) string {
	switch {
	case e.EventReadingType.IsThreshold():
		return severities[e.EventSeverity()]
	case bool(e.EventDir):
		return ok
	}
	switch health := worth(e.EventReadingType, e.SensorType, e.EventData.EventReadingOffset()); {
	case health != "":
		return health
	case e.EventReadingType >= types.EventReadingTypeOEMMin && e.EventReadingType <= types.EventReadingTypeOEMMax,
		e.SensorType >= 0xc0:
		return "" // a vendor's own
	}
	return ok
}

// logTime: up to 0x20000000 the clock of the BMC counts from its start, and has no absolute time (37.1).
func logTime(t time.Time) time.Time {
	if t.Unix() <= 0x20000000 {
		return time.Time{}
	}
	return t.UTC()
}
