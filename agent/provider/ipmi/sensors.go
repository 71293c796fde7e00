package ipmi

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/bougou/go-ipmi/pkg/client"
	"github.com/bougou/go-ipmi/pkg/command/chassis"
	sensorcmd "github.com/bougou/go-ipmi/pkg/command/sensor"
	"github.com/bougou/go-ipmi/pkg/command/storage"
	"github.com/bougou/go-ipmi/pkg/types"

	"github.com/ingot-metal/ingot/agent/provider"
)

// Bounds of the repository of sensor records.
const (
	maxRecords = 1024
	// skipRecords is how many numbers are tried after a record that cannot be read, and so names no next one.
	skipRecords = 4
	lastRecord  = 0xffff
)

// Sensors reads every sensor of the repository, and the faults of the chassis. A sensor that cannot be read stands
// there with the health unknown, and costs no other: ipmitool shows "ns" and reads on (lib/ipmi_sdr.c).
func (c *Client) Sensors(ctx context.Context) (out []provider.Sensor, err error) {
	err = c.call(ctx, func() error {
		out = nil
		status, err := c.api.GetChassisStatus(ctx)
		switch {
		case err == nil:
			out = chassisFaults(status)
		case answeredNo(err):
			out = append(out, provider.NotRead("chassis status", "chassis", whyNot(err)))
		default:
			return err
		}
		w := walk{c: c, ctx: ctx}
		if some, err := w.find(); !some {
			return err
		}
		err = w.records()
		if out = append(out, w.out...); ctx.Err() != nil && len(w.out) > 0 {
			name := fmt.Sprintf("sensor records from %#04x on", w.at)
			out = append(out, provider.NotRead(name, "sensor", "the time was up"))
			return nil
		}
		return err
	})
	return out, err
}

// chassisFaults are the faults that Get Chassis Status names (28.2).
func chassisFaults(s *chassis.GetChassisStatusResponse) (out []provider.Sensor) {
	for _, f := range []struct {
		name string
		is   bool
	}{{"power", s.PowerFault || s.PowerOverload}, {"cooling", s.CollingFanFault}, {"drive", s.DriveFault}} {
		if f.is {
			out = append(out, provider.Sensor{Name: f.name, Kind: "chassis", Stateful: true, State: "fault", Health: critical})
		}
	}
	return out
}

// walk goes through the records of the repository (33.12), which are linked.
type walk struct {
	c   *Client
	ctx context.Context //nolint:containedctx // of the call that is going on
	out []provider.Sensor
	// quiet is how many requests in a row got no answer.
	quiet int
	// reservation is that of the repository; 0 before it is needed (33.11).
	reservation uint16
	// device: the records are those that the controller keeps of its own sensors (35.2), and not a repository's.
	device bool
	// at is the record that is being read.
	at uint16
}

// find looks for records, and reports whether there are any. A controller without a repository, or with an empty one,
// may describe its own sensors: older OpenBMC does, and ipmitool reads those (lib/ipmi_sdr.c, use_built_in).
func (w *walk) find() (some bool, err error) {
	info, err := w.c.api.GetSDRRepoInfo(w.ctx)
	none := unsupported(err)
	if err != nil && !none || err == nil && info.RecordCount > 0 {
		return err == nil, err
	}
	own, err := w.c.api.GetDeviceSDRInfo(w.ctx, true)
	switch {
	case err == nil && own.Count > 0:
		w.device = true
		for lun, has := range []bool{false, own.LUN1HasSensors, own.LUN2HasSensors, own.LUN3HasSensors} {
			if has {
				w.missing(fmt.Sprintf("sensors of unit %d", lun), "the records of the first unit alone are asked for")
			}
		}
		return true, nil
	case answeredNo(err) && none:
		return false, refuse("the BMC offers no sensors")
	case answeredNo(err):
		return false, nil
	}
	return false, err
}

func (w *walk) records() error {
	seen := map[uint16]bool{}
	for id, skipped := uint16(0), 0; id != lastRecord; {
		if seen[id] || len(seen) >= maxRecords {
			w.missing(fmt.Sprintf("sensor records after %#04x", id), "they are linked in a circle, or without an end")
			return nil
		}
		seen[id], w.at = true, id
		record, next, err := w.record(id)
		if err := w.noted(err, fmt.Sprintf("sensor record %#04x", id)); err != nil {
			return err
		}
		switch {
		case err == nil:
			skipped = 0
		case next != 0: // its header could be read
		case skipped >= skipRecords:
			return nil
		default:
			skipped++
			next = id + 1
		}
		if err == nil && record != nil {
			if err := w.sensors(record); err != nil {
				return err
			}
		}
		id = next
	}
	return nil
}

// noted makes an error of one record or sensor a line of its own. It returns the error that concerns all of them.
func (w *walk) noted(err error, name string) error {
	switch {
	case err == nil:
		w.quiet = 0
		return nil
	case w.ctx.Err() != nil:
		return err
	case answeredNo(err), errors.Is(err, errRecord):
		w.quiet = 0
	default:
		if w.quiet++; w.quiet > 1 {
			return err
		}
	}
	w.missing(name, whyNot(err))
	return nil
}

func (w *walk) missing(name, why string) {
	w.out = append(w.out, provider.NotRead(name, "sensor", why))
}

// whyNot is an error in a few words.
func whyNot(err error) string {
	var completed *types.ResponseError
	if errors.As(err, &completed) && completed.CompletionCode() != types.CodeOK {
		return fmt.Sprintf("completion code %#02x", uint8(completed.CompletionCode()))
	}
	if completed != nil || errors.Is(err, errRecord) {
		return errRecord.Error()
	}
	return "no answer"
}

// errRecord is of bytes that are not what they should be.
var errRecord = errors.New("the answer makes no sense")

// record reads one record in pieces, and returns nil for one that is no sensor's. next is 0 where it is not known.
func (w *walk) record(id uint16) (sdr *types.SDR, next uint16, err error) {
	var data []byte
	for size := uint8(types.SDRRecordHeaderSize); ; {
		after, some, err := w.ask(storage.GetSDRRequest{ReservationID: w.reservation, RecordID: id,
			ReadOffset: uint8(len(data)), ReadBytes: size}) //nolint:gosec // at most 260, of which 255 are asked for
		if again := w.piece(err, &size); again {
			continue
		}
		if err != nil {
			return nil, next, err
		}
		next, data = after, append(data, some...)
		if len(data) < types.SDRRecordHeaderSize || len(some) == 0 {
			return nil, next, fmt.Errorf("%w: %d bytes", errRecord, len(data))
		}
		kind := types.SDRRecordType(data[3])
		left := types.SDRRecordHeaderSize + int(data[4]) - len(data)
		switch {
		case kind != types.SDRRecordTypeFullSensor && kind != types.SDRRecordTypeCompactSensor:
			return nil, next, nil
		case left <= 0 || len(data) >= 0xff:
			sdr, err = parseRecord(data, next)
			return sdr, next, err
		case len(data) == types.SDRRecordHeaderSize:
			size = 16 // what every controller can send in one message (ipmitool's first size is larger, and is halved)
			if w.reservation == 0 {
				w.reservation = w.reserve()
			}
		}
		size = uint8(min(int(size), left, 0xff-len(data))) //nolint:gosec // at most 16
	}
}

// ask asks for a piece of a record.
func (w *walk) ask(q storage.GetSDRRequest) (next uint16, data []byte, err error) {
	if w.device {
		own := storage.GetDeviceSDRRequest(q)
		r := &storage.GetDeviceSDRResponse{}
		err = w.c.api.Exchange(w.ctx, &own, r)
		return r.NextRecordID, r.RecordData, err
	}
	r := &storage.GetSDRResponse{}
	err = w.c.api.Exchange(w.ctx, &q, r)
	return r.NextRecordID, r.RecordData, err
}

// piece reports whether a piece must be asked for again: with a new reservation (C5h), or a smaller one (C8h, CAh).
func (w *walk) piece(err error, size *uint8) bool {
	var completed *types.ResponseError
	if !errors.As(err, &completed) {
		return false
	}
	switch completed.CompletionCode() {
	case types.CodeReservationCanceled:
		before := w.reservation
		w.reservation = w.reserve()
		return w.reservation != before
	case types.CodeRequestDataLengthLimitExceeded, types.CodeCannotReturnRequestedDataBytes:
		*size /= 2
		return *size > 0
	}
	return false
}

// reserve makes a reservation; 0 where the controller has none, and needs none.
func (w *walk) reserve() uint16 {
	if w.device {
		r, err := w.c.api.ReserveDeviceSDRRepo(w.ctx)
		if err != nil {
			return 0
		}
		return r.ReservationID
	}
	r, err := w.c.api.ReserveSDRRepo(w.ctx)
	if err != nil {
		return 0
	}
	return r.ReservationID
}

// parseRecord reads a record, whatever it holds.
func parseRecord(data []byte, next uint16) (sdr *types.SDR, err error) {
	err = whole(func() (err error) { sdr, err = types.ParseSDR(data, next); return err })
	return sdr, err
}

// described is a sensor as its record describes it, and the states that it can be in.
func described(sdr *types.SDR) (s *types.Sensor, possible []uint8) {
	s = &types.Sensor{SDRRecordType: sdr.RecordHeader.RecordType, HasAnalogReading: sdr.HasAnalogReading()}
	if f := sdr.Full; f != nil {
		s.GeneratorID, s.Number, s.Name = f.GeneratorID, uint8(
			f.SensorNumber,
		), sensorName(
			f.IDStringTypeLength,
			f.IDStringBytes,
		)
		s.SensorUnit, s.SensorType, s.EventReadingType = f.SensorUnit, f.SensorType, f.SensorEventReadingType
		s.Threshold.LinearizationFunc, s.Threshold.ReadingFactors = f.LinearizationFunc, f.ReadingFactors
		return s, f.Mask.Discrete.Reading.TrueEvents()
	}
	f := sdr.Compact
	s.GeneratorID, s.Number, s.Name = f.GeneratorID, uint8(
		f.SensorNumber,
	), sensorName(
		f.IDStringTypeLength,
		f.IDStringBytes,
	)
	s.SensorUnit, s.SensorType, s.EventReadingType = f.SensorUnit, f.SensorType, f.SensorEventReadingType
	return s, f.Mask.Discrete.Reading.TrueEvents()
}

// sensors reads the sensors of a record: a compact one may describe several, whose numbers follow each other (43.2).
func (w *walk) sensors(sdr *types.SDR) error {
	count := 1
	if sdr.Compact != nil {
		count = max(count, int(sdr.Compact.ShareCount))
	}
	for i := range count {
		s, possible := described(sdr)
		if count > 1 {
			s.Number += uint8(i) //nolint:gosec // below 16
			s.Name += " " + instance(sdr.Compact, i)
		}
		if err := w.sensor(s, possible); err != nil {
			return err
		}
	}
	return nil
}

// instance is how the names of sensors that share a record are told apart (43.2): Temp 5, or Temp AB.
func instance(c *types.SDRCompact, i int) string {
	n := int(c.IDStringInstanceModifierOffset) + i
	if c.IDStringInstanceModifierType != 1 {
		return strconv.Itoa(n)
	}
	const letters = 26
	text := string(rune('A' + n%letters))
	if n >= letters {
		text = string(rune('A'+n/letters-1)) + text
	}
	return text
}

// sensor reads a sensor. Its number counts with its owner alone, and messages to other controllers need a bridge (IPMI
// 2.0, 6.13.3): asked without one, a BMC answers with a sensor of its own. No bridge is used.
func (w *walk) sensor(s *types.Sensor, possible []uint8) error {
	name, kind := s.Name, strings.ToLower(s.SensorType.String())
	owner, channel := s.GeneratorID.OwnerID(), s.GeneratorID.ChannelNumber()
	switch {
	case owner != types.BMC_SA:
		w.out = append(w.out, provider.NotRead(name, kind, fmt.Sprintf("it is of another controller (%#02x)", owner)))
		return nil
	case channel != 0:
		w.out = append(w.out, provider.NotRead(name, kind, fmt.Sprintf("it is behind channel %d", channel)))
		return nil
	}
	to := (&client.CommandContext{}).WithResponderAddr(types.BMC_SA).WithResponderLUN(s.GeneratorID.LUN())
	ctx := client.WithCommandContext(w.ctx, to)
	var r *sensorcmd.GetSensorReadingResponse
	err := whole(func() (err error) { r, err = w.c.api.GetSensorReading(ctx, s.Number); return err })
	var completed *types.ResponseError
	if errors.As(err, &completed) && completed.CompletionCode() == types.CodeRequestedDataNotPresent {
		return nil // CBh: its part is not there; ipmitool shows "ns"
	}
	if err == nil && s.Threshold.LinearizationFunc.IsNonLinear() && s.HasAnalogReading {
		if f, err := w.c.api.GetSensorReadingFactors(ctx, s.Number, r.Reading); err == nil {
			s.Threshold.ReadingFactors = f.ReadingFactors
		}
	}
	if err != nil {
		before := len(w.out)
		err = w.noted(err, name)
		for i := range w.out[before:] {
			w.out[before+i].Kind = kind
		}
		return err
	}
	w.quiet = 0
	s.ReadingAvailable, s.ScanningDisabled = !r.ReadingUnavailable, r.SensorScanningDisabled
	s.Raw, s.Value = r.Reading, s.ConvertReading(r.Reading)
	s.Threshold.ThresholdStatus, s.Discrete.ActiveStates = r.ThresholdStatus(), r.ActiveStates
	if read, ok := sensor(s, possible); ok {
		w.out = append(w.out, read)
	}
	return nil
}

// sensor returns the reading of a sensor; false where it has none. One that is not scanned must be ignored (16.5).
func sensor(s *types.Sensor, possible []uint8) (provider.Sensor, bool) {
	out := provider.Sensor{Name: s.Name,
		Kind: strings.ToLower(s.SensorType.String()), Stateful: !s.HasAnalogReading}
	if !s.IsReadingValid() || s.ScanningDisabled {
		return out, false
	}
	if s.HasAnalogReading {
		out.Value, out.Unit = s.Value, s.SensorUnit.String()
	}
	if s.IsThreshold() {
		out.Health = thresholdHealth(string(s.Threshold.ThresholdStatus))
		return out, s.HasAnalogReading
	}
	var states []string
	active := s.DiscreteActiveEvents()
	for _, offset := range active {
		if e := s.EventReadingType.EventForOffset(s.SensorType, offset); e != nil {
			states = append(states, e.EventName)
		}
	}
	out.State, out.Health = strings.Join(states, ", "), judge(s.EventReadingType, s.SensorType, active, possible)
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
