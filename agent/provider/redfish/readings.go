package redfish

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/agent/provider"
)

// What one call reads at most: BMCs are slow.
const (
	maxSensors = 512
	maxParts   = 64
	maxLogs    = 4
)

type summary struct{ Status lenient[status] }

// reading is one member of Thermal, Power, Sensors, or of a collection of parts; each kind has its own names for the
// same.
type reading struct {
	ID                 lenient[string] `json:"Id"`
	MemberID           lenient[string] `json:"MemberId"`
	Name, FanName      lenient[string]
	DeviceLocator      lenient[string]
	ReadingType        lenient[string]
	ReadingUnits       lenient[string]
	ReadingCelsius     *lenient[float64]
	ReadingVolts       *lenient[float64]
	PowerConsumedWatts *lenient[float64]
	Reading            *lenient[float64]
	Status             lenient[status]
}

type readings struct {
	Temperatures, Fans, Voltages, PowerControl, PowerSupplies, Redundancy lenient[[]json.RawMessage]
}

type chassis struct {
	Thermal, Power, Sensors          path
	PowerSubsystem, ThermalSubsystem path
}

// sensor returns the reading. An absent part, or one that is off, measures nothing, whatever its value. A part whose
// reading is null or no number is worth a line where its health is.
func (r reading) sensor() (provider.Sensor, bool) {
	s := provider.Sensor{
		Name: cmp.Or(r.Name.V, r.FanName.V, r.DeviceLocator.V, r.MemberID.V, r.ID.V), // a name is not required (DSP0268)
		Kind: strings.ToLower(r.ReadingType.V), Unit: r.ReadingUnits.V, Health: r.Status.V.health(),
	}
	if j := r.Status.V.judge(); j == absent || j == off {
		return s, false
	}
	value := r.Reading
	switch {
	case r.ReadingCelsius != nil:
		s.Kind, s.Unit, value = "temperature", "Cel", r.ReadingCelsius
	case r.ReadingVolts != nil:
		s.Kind, s.Unit, value = "voltage", "V", r.ReadingVolts
	case r.PowerConsumedWatts != nil:
		s.Kind, s.Unit, value = "power", "W", r.PowerConsumedWatts
	case r.Reading != nil:
		s.Kind = cmp.Or(s.Kind, "fan")
	}
	if value == nil || !value.Said {
		s = r.part(cmp.Or(s.Kind, "sensor"))
		return s, s.Name != "" && unwell(s)
	}
	s.Value = value.V
	return s, s.Name != ""
}

// part is a thing with a state and no reading.
func (r reading) part(kind string) provider.Sensor {
	return provider.Sensor{
		Name: cmp.Or(r.DeviceLocator.V, r.Name.V, r.FanName.V, r.ID.V, r.MemberID.V), Kind: kind, Stateful: true,
		State: r.Status.V.State.V, Health: r.Status.V.health(),
	}
}

// parsed is what one document has brought. explained: a part of it has a bad health that is no fault.
type parsed struct {
	sensors   []provider.Sensor
	explained bool
}

func (p *parsed) add(s provider.Sensor, keep bool, of status) {
	p.explained = p.explained || of.discounted()
	if keep {
		p.sensors = append(p.sensors, s)
	}
}

// parseReadings takes a Thermal, a Power or a Sensor document.
func parseReadings(b []byte) (out parsed, err error) {
	var doc readings
	if err := parseObject(b, &doc); err != nil {
		return parsed{}, err
	}
	out.parts("power supply", doc.PowerSupplies.V, func(s provider.Sensor) bool { return s.Health != "" || s.State != "" })
	out.parts("redundancy", doc.Redundancy.V, func(s provider.Sensor) bool { return unhealthy(s.Health) })
	all := slices.Concat(doc.Temperatures.V, doc.Fans.V, doc.Voltages.V, doc.PowerControl.V)
	if len(all) == 0 && len(doc.PowerSupplies.V) == 0 && len(doc.Redundancy.V) == 0 {
		all = []json.RawMessage{b}
	}
	for _, one := range all {
		var r reading
		if json.Unmarshal(one, &r) != nil {
			continue // null, where a part is missing
		}
		s, keep := r.sensor()
		out.add(s, keep, r.Status.V)
	}
	return out, nil
}

// parts takes documents of things with a state, and keeps some.
func (p *parsed) parts(kind string, docs []json.RawMessage, keep func(provider.Sensor) bool) {
	for _, doc := range docs {
		var r reading
		if json.Unmarshal(doc, &r) != nil {
			continue
		}
		s := r.part(kind)
		p.add(s, s.Name != "" && keep(s), r.Status.V)
	}
}

// unwell reports whether a sensor is not known to be well.
func unwell(s provider.Sensor) bool { return unhealthy(s.Health) || s.Health == provider.HealthUnknown }

// Sensors returns the sensors of the system's chassis and the health of its parts. Memory and processors are read one
// by one only where the system reports that not all of them are well: BMCs are slow. A part that could not be read is
// among the sensors with the health unknown: half a reading must not clear the faults of the other half.
func (c *Client) Sensors(ctx context.Context) (out []provider.Sensor, err error) {
	err = c.call(ctx, func(context.Context) error {
		s, _, err := c.readSystem()
		if err != nil {
			return err
		}
		sv, all := &survey{c: c}, parsed{}
		err = sv.sensorsOf(s, &all)
		out = append(all.sensors, sv.unknown()...)
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && len(all.sensors) > 0 {
			out = append(out, provider.NotRead("documents after "+tail(c.last), "document", "the time was up"))
			return nil
		}
		return err
	})
	return out, err
}

// sensorsOf adds what the chassis of a system measure, and the parts of it that are not known to be well.
func (s *survey) sensorsOf(sys system, all *parsed) error {
	for _, p := range s.chassis(sys) {
		if err := s.chassisSensors(p, all); err != nil {
			return fmt.Errorf("read sensors of %s: %w", p, err)
		}
	}
	if err := s.summed("memory", sys.MemorySummary.V.Status.V, sys.Memory, all); err != nil {
		return err
	}
	if err := s.summed("processor", sys.ProcessorSummary.V.Status.V, sys.Processors, all); err != nil {
		return err
	}
	whole, ill := sum("system", "system", sys.Status.V, all.explained)
	if ill && !slices.ContainsFunc(all.sensors, func(p provider.Sensor) bool { return unhealthy(p.Health) }) {
		all.sensors = append(all.sensors, whole)
	}
	return nil
}

// unknown are the documents that could not be read, as sensors.
func (s *survey) unknown() (out []provider.Sensor) {
	for _, text := range s.missing {
		name, why, _ := strings.Cut(text, ": ")
		out = append(out, provider.NotRead(name, "document", why))
	}
	return out
}

// summed adds the unhealthy parts of an unhealthy summary, or the summary itself where no part is unhealthy.
func (s *survey) summed(kind string, of status, list path, all *parsed) error {
	if !unwellSum(of) {
		return nil
	}
	var found parsed
	if err := s.parts(kind, list, unwell, &found); err != nil {
		return err
	}
	if !slices.ContainsFunc(found.sensors, func(p provider.Sensor) bool { return unhealthy(p.Health) }) {
		if whole, ill := sum(kind, kind, of, found.explained); ill {
			found.sensors = append(found.sensors, whole)
		}
	}
	all.sensors, all.explained = append(all.sensors, found.sensors...), all.explained || found.explained
	return nil
}

// parts adds members of a collection, some of them.
func (s *survey) parts(kind string, list path, keep func(provider.Sensor) bool, into *parsed) error {
	return s.each(list, maxParts, func(_ path, b []byte, _ string) error {
		var r reading
		if err := parseObject(b, &r); err != nil {
			return err
		}
		into.parts(kind, []json.RawMessage{b}, keep)
		return nil
	})
}

func (s *survey) chassisSensors(p path, into *parsed) error {
	var ch chassis
	if ok, err := s.object(p, &ch); !ok {
		return err
	}
	take := func(_ path, b []byte, _ string) error {
		found, err := parseReadings(b)
		into.sensors, into.explained = append(into.sensors, found.sensors...), into.explained || found.explained
		return err
	}
	read := map[path]bool{}
	for _, at := range once([]path{ch.Thermal, ch.Power}, 2) {
		b, _, err := s.c.get(at)
		if err == nil {
			err = take(at, b, "")
		}
		read[at] = err == nil
		if err = s.miss(at, err); err != nil {
			return err
		}
	}
	if !read[ch.Thermal] && (!read[ch.Power] || ch.ThermalSubsystem != "") {
		if err := s.each(ch.Sensors, maxSensors, take); err != nil {
			return err
		}
	}
	// PowerSubsystem and ThermalSubsystem replace the documents Power and Thermal (DSP0268).
	for _, sub := range []struct {
		kind string
		old  path
		at   path
	}{{"power supply", ch.Power, ch.PowerSubsystem}, {"fan", ch.Thermal, ch.ThermalSubsystem}} {
		var doc struct{ PowerSupplies, Fans path }
		if sub.at == "" || read[sub.old] {
			continue
		}
		ok, err := s.object(sub.at, &doc)
		if ok {
			err = s.parts(sub.kind, cmp.Or(doc.PowerSupplies, doc.Fans), unwell, into)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
