package ipmi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/ingot-metal/ingot/agent/provider"
)

// Sensors reads every sensor of the repository that has a reading.
func (c *Client) Sensors(ctx context.Context) (out []provider.Sensor, err error) {
	err = c.call(ctx, func() error {
		info, err := c.api.GetSDRRepoInfo(ctx)
		if unsupported(err) {
			return refuse("the BMC offers no sensors")
		}
		if err != nil || info.RecordCount == 0 {
			return err
		}
		found, err := c.api.GetSensors(ctx)
		if err != nil {
			return err
		}
		for _, s := range found {
			if s.IsReadingValid() && s.HasAnalogReading {
				out = append(out, sensor(s))
			}
		}
		return nil
	})
	return out, err
}

func sensor(s *types.Sensor) provider.Sensor {
	return provider.Sensor{
		Name: strings.TrimSpace(s.Name), Kind: strings.ToLower(s.SensorType.String()), Value: s.Value,
		Unit: s.SensorUnit.String(), Health: strings.ToLower(s.Status()),
	}
}

// EventLog gives the newest entries of the system event log, newest first, at most limit. Entries are read one by one,
// from the oldest on: that is how the log is linked (31.5).
func (c *Client) EventLog(ctx context.Context, limit int) (out []provider.Event, err error) {
	err = c.call(ctx, func() error {
		info, err := c.api.GetSELInfo(ctx)
		if unsupported(err) {
			return refuse("the BMC offers no event log")
		}
		if err != nil || info.Entries == 0 {
			return err
		}
		const first, last = 0x0000, 0xffff
		for next := uint16(first); next != last; {
			r, err := c.api.GetSELEntry(ctx, 0, next)
			if err != nil {
				return err
			}
			if entry, err := types.ParseSEL(r.Data); err == nil {
				out = append(out, event(entry))
			}
			if r.NextRecordID == next || len(out) > int(info.Entries) {
				return errors.New("the event log is linked in a circle")
			}
			next = r.NextRecordID
			out = out[max(0, len(out)-limit):]
		}
		return nil
	})
	slices.Reverse(out)
	return out, err
}

var severities = map[types.EventSeverity]string{
	types.EventSeverityOK: "ok", types.EventSeverityInfo: "ok", types.EventSeverityWarning: "warning",
	types.EventSeverityDegraded: "warning", types.EventSeverityCritical: "critical",
	types.EventSeverityNonFatal: "critical",
}

func event(e *types.SEL) provider.Event {
	out := provider.Event{ID: fmt.Sprint(e.RecordID)}
	switch {
	case e.Standard != nil:
		out.At = logTime(e.Standard.Timestamp)
		out.Message = fmt.Sprintf("%s sensor %#02x: %s", e.Standard.SensorType, uint8(e.Standard.SensorNumber),
			e.Standard.EventString())
		out.Severity = severities[e.Standard.EventSeverity()]
	case e.OEMTimestamped != nil:
		out.At = logTime(e.OEMTimestamped.Timestamp)
		out.Message = fmt.Sprintf("OEM record of manufacturer %d: % x", e.OEMTimestamped.ManufacturerID,
			e.OEMTimestamped.OEMDefined)
	case e.OEMNonTimestamped != nil:
		out.Message = fmt.Sprintf("OEM record: % x", e.OEMNonTimestamped.OEM)
	}
	return out
}

// logTime: up to 0x20000000 the clock of the BMC counts from its start, and tells no time (37.1).
func logTime(t time.Time) time.Time {
	if t.Unix() <= 0x20000000 {
		return time.Time{}
	}
	return t.UTC()
}
