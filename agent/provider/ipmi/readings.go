package ipmi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bougou/go-ipmi/pkg/command/chassis"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/ingot-metal/ingot/agent/provider"
)

// Sensors reads every sensor of the repository that has a reading, the states of those that have none, and the faults
// of the chassis.
func (c *Client) Sensors(ctx context.Context) (out []provider.Sensor, err error) {
	err = c.call(ctx, func() error {
		status, err := c.api.GetChassisStatus(ctx)
		if err != nil {
			return err
		}
		out = chassisFaults(status)
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
			if read, ok := sensor(s); ok {
				out = append(out, read)
			}
		}
		return nil
	})
	return out, err
}

// chassisFaults are the faults that Get Chassis Status names (28.2).
func chassisFaults(s *chassis.GetChassisStatusResponse) (out []provider.Sensor) {
	for name, is := range map[string]bool{"power": s.PowerFault || s.PowerOverload, "cooling": s.CollingFanFault,
		"drive": s.DriveFault} {
		if is {
			out = append(out, provider.Sensor{Name: name, Kind: "chassis", Stateful: true, State: "fault", Health: critical})
		}
	}
	return out
}

// How well a part is.
const (
	ok       = "ok"
	warning  = "warning"
	critical = "critical"
)

// sensor gives what a sensor says; false where it says nothing.
func sensor(s *types.Sensor) (provider.Sensor, bool) {
	out := provider.Sensor{Name: strings.TrimSpace(s.Name), Kind: strings.ToLower(s.SensorType.String()),
		Stateful: !s.HasAnalogReading}
	if !s.IsReadingValid() {
		return out, false
	}
	if s.HasAnalogReading {
		out.Value, out.Unit = s.Value, s.SensorUnit.String()
	}
	if s.IsThreshold() {
		out.Health = thresholdHealth(s.Status())
		return out, s.HasAnalogReading
	}
	var states []string
	for _, offset := range s.DiscreteActiveEvents() {
		if state, health := discrete(s, offset); state != "" {
			states = append(states, state)
			out.Health = worse(out.Health, health)
		}
	}
	out.State = strings.Join(states, ", ")
	return out, s.HasAnalogReading || len(states) > 0
}

// thresholdHealth is what a threshold that was passed means (35.14): non-critical, critical, or non-recoverable.
func thresholdHealth(status string) string {
	switch {
	case strings.HasSuffix(status, "nc"):
		return warning
	case strings.HasSuffix(status, "cr"), strings.HasSuffix(status, "nr"):
		return critical
	}
	return ok
}

// discrete is one state of a sensor in words, and how well the part is in it. Of the states that mean something else
// with each kind of sensor (table 42-2, codes 02h to 0Ch), only redundancy (0Bh) and a predicted failure (04h) are
// believed: vendors use the others as they like.
func discrete(s *types.Sensor, offset uint8) (state, health string) {
	const predictive, redundancy, specific = 0x04, 0x0b, 0x6f
	e := s.EventReadingType.EventForOffset(s.SensorType, offset)
	switch {
	case e == nil:
		return "", ""
	case s.EventReadingType == specific:
		return e.EventName, severities[e.AssertionSeverity]
	case s.EventReadingType == predictive && offset == 1, s.EventReadingType == redundancy && offset > 0:
		return e.EventName, warning
	}
	return e.EventName, ""
}

// worse is the graver of two.
func worse(a, b string) string {
	for _, h := range []string{critical, warning, ok} {
		if a == h || b == h {
			return h
		}
	}
	return ""
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
