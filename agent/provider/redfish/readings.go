package redfish

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	pathpkg "path"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/agent/provider"
)

// What one call reads at most: BMCs are slow.
const (
	maxChassis = 4
	maxSensors = 128
	maxParts   = 64
	maxPages   = 5
	maxLogs    = 4
)

// status is how a part is (DSP0266, 9.5.4.8). HealthRollup is the worst of all below it.
type status struct{ Health, HealthRollup, State lenient[string] }

// health of the part, or of what is below it, in lower case.
func (s status) health() string { return strings.ToLower(cmp.Or(s.Health.V, s.HealthRollup.V)) }

// worst is the rollup where that is unhealthy, else the part's own health.
func (s status) worst() string {
	if rollup := strings.ToLower(s.HealthRollup.V); unhealthy(rollup) {
		return rollup
	}
	return s.health()
}

type summary struct{ Status lenient[status] }

// reading is one member of Thermal, Power, Sensors, or of a collection of parts; each kind has its own names for the
// same.
type reading struct {
	ID                 lenient[string] `json:"Id"`
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
	Thermal, Power, Sensors path
	PowerSubsystem          path
}

// sensor returns the reading; absent sensors have null. Without a reading it returns the state of an unhealthy part.
func (r reading) sensor() (provider.Sensor, bool) {
	s := provider.Sensor{
		Name: cmp.Or(r.Name.V, r.FanName.V), Kind: strings.ToLower(r.ReadingType.V), Unit: r.ReadingUnits.V,
		Health: r.Status.V.health(),
	}
	switch {
	case r.ReadingCelsius != nil:
		s.Kind, s.Unit, s.Value = "temperature", "Cel", r.ReadingCelsius.V
	case r.ReadingVolts != nil:
		s.Kind, s.Unit, s.Value = "voltage", "V", r.ReadingVolts.V
	case r.PowerConsumedWatts != nil:
		s.Kind, s.Unit, s.Value = "power", "W", r.PowerConsumedWatts.V
	case r.Reading != nil:
		s.Value = r.Reading.V
		s.Kind = cmp.Or(s.Kind, "fan")
	default:
		s = r.part(cmp.Or(s.Kind, "sensor"))
		return s, s.Name != "" && unhealthy(s.Health)
	}
	return s, s.Name != ""
}

// part is a thing with a state and no reading.
func (r reading) part(kind string) provider.Sensor {
	return provider.Sensor{
		Name: cmp.Or(r.DeviceLocator.V, r.Name.V, r.FanName.V, r.ID.V), Kind: kind, Stateful: true, State: r.Status.V.State.V,
		Health: r.Status.V.health(),
	}
}

func unhealthy(health string) bool { return health == "warning" || health == "critical" }

// parseReadings takes a Thermal, a Power or a Sensor document.
func parseReadings(b []byte) []provider.Sensor {
	var doc readings
	if json.Unmarshal(b, &doc) != nil {
		return nil
	}
	out := parseParts("power supply", doc.PowerSupplies.V, func(s provider.Sensor) bool { return s.Health != "" })
	out = append(
		out,
		parseParts("redundancy", doc.Redundancy.V, func(s provider.Sensor) bool { return unhealthy(s.Health) })...)
	parts := slices.Concat(doc.Temperatures.V, doc.Fans.V, doc.Voltages.V, doc.PowerControl.V)
	if len(parts) == 0 && len(out) == 0 {
		parts = []json.RawMessage{b}
	}
	for _, part := range parts {
		var r reading
		if json.Unmarshal(part, &r) != nil {
			continue
		}
		if s, ok := r.sensor(); ok {
			out = append(out, s)
		}
	}
	return out
}

// parseParts takes documents of things with a state, and keeps some.
func parseParts(kind string, docs []json.RawMessage, keep func(provider.Sensor) bool) (out []provider.Sensor) {
	for _, doc := range docs {
		var r reading
		if json.Unmarshal(doc, &r) != nil {
			continue
		}
		if s := r.part(kind); s.Name != "" && keep(s) {
			out = append(out, s)
		}
	}
	return out
}

// Sensors reads what the chassis of the system measure, and how its parts are. Memory and processors are read one by
// one only where the system says that not all of them are well: BMCs are slow. A chassis that
// was not read is an error, because half a reading would clear the faults of the other half.
func (c *Client) Sensors(ctx context.Context) (out []provider.Sensor, err error) {
	err = c.call(ctx, func(context.Context) error {
		s, _, err := c.readSystem()
		if err != nil {
			return err
		}
		out = nil
		for _, p := range s.Links.V.Chassis[:min(len(s.Links.V.Chassis), maxChassis)] {
			found, err := c.chassisSensors(p)
			if out = append(out, found...); c.failed(err) {
				return fmt.Errorf("read sensors of %s: %w", p, err)
			}
		}
		out = append(out, c.summed("memory", s.MemorySummary.V.Status.V, s.Memory)...)
		out = append(out, c.summed("processor", s.ProcessorSummary.V.Status.V, s.Processors)...)
		worst := s.Status.V.worst()
		if unhealthy(worst) && !slices.ContainsFunc(out, func(p provider.Sensor) bool { return unhealthy(p.Health) }) {
			out = append(out, provider.Sensor{Name: "system", Kind: "system", Stateful: true, State: s.Status.V.State.V,
				Health: worst})
		}
		return nil
	})
	return out, err
}

// summed returns the unhealthy parts of an unhealthy summary, or the summary itself where no part is unhealthy.
func (c *Client) summed(kind string, sum status, all path) []provider.Sensor {
	if !unhealthy(sum.worst()) {
		return nil
	}
	found, err := c.parts(kind, all)
	if err != nil || len(found) == 0 {
		return []provider.Sensor{{Name: kind, Kind: kind, Stateful: true, State: sum.State.V, Health: sum.worst()}}
	}
	return found
}

// parts reads the unhealthy members of a collection.
func (c *Client) parts(kind string, all path) ([]provider.Sensor, error) {
	members, err := c.members(all)
	if err != nil {
		return nil, err
	}
	var docs []json.RawMessage
	for _, p := range members[:min(len(members), maxParts)] {
		b, _, err := c.get(p)
		if c.failed(err) {
			return nil, err
		}
		if err == nil {
			docs = append(docs, b)
		}
	}
	return parseParts(kind, docs, func(s provider.Sensor) bool { return unhealthy(s.Health) }), nil
}

// failed says whether err is more than a link to a document that isn't there: some services have those.
func (c *Client) failed(err error) bool {
	return err != nil && statusOf(classify(c.rt.ctx, err)) != http.StatusNotFound
}

func (c *Client) chassisSensors(p path) ([]provider.Sensor, error) {
	b, _, err := c.get(p)
	if err != nil {
		return nil, err
	}
	var ch chassis
	if err := json.Unmarshal(b, &ch); err != nil {
		return nil, fmt.Errorf("%w: chassis: %w", provider.ErrProtocol, err)
	}
	docs := []path{ch.Thermal, ch.Power}
	if ch.Thermal == "" && ch.Power == "" {
		if docs, err = c.members(ch.Sensors); err != nil {
			return nil, err
		}
	}
	var out []provider.Sensor
	for _, doc := range docs[:min(len(docs), maxSensors)] {
		if doc == "" {
			continue
		}
		b, _, err := c.get(doc)
		if c.failed(err) {
			return out, err
		}
		out = append(out, parseReadings(b)...)
	}
	if ch.Power != "" || ch.PowerSubsystem == "" {
		return out, nil
	}
	found, err := c.powerSupplies(ch.PowerSubsystem)
	return append(out, found...), err
}

// powerSupplies reads those of a PowerSubsystem, which replaces the Power document (DSP0268).
func (c *Client) powerSupplies(p path) ([]provider.Sensor, error) {
	b, _, err := c.get(p)
	if err != nil {
		return nil, err
	}
	var sub struct{ PowerSupplies path }
	if err := json.Unmarshal(b, &sub); err != nil {
		return nil, fmt.Errorf("%w: power subsystem: %w", provider.ErrProtocol, err)
	}
	return c.parts("power supply", sub.PowerSupplies)
}

// members of a collection; none where there is no collection.
func (c *Client) members(p path) ([]path, error) {
	if p == "" {
		return nil, nil
	}
	b, _, err := c.get(p)
	if err != nil {
		return nil, err
	}
	list, err := parseCollection(b)
	return list.links(), err
}

type logService struct{ Entries path }

type logEntry struct {
	ID        lenient[string] `json:"Id"`
	Created   lenient[string]
	Timestamp lenient[string] `json:"EventTimestamp"`
	Severity  lenient[string]
	Message   lenient[string]
}

// parseEntry gives the entry, if b is one and not only a link to it.
func parseEntry(b []byte) (provider.Event, bool) {
	var e logEntry
	if json.Unmarshal(b, &e) != nil {
		return provider.Event{}, false
	}
	return provider.Event{
		ID: e.ID.V, At: when(cmp.Or(e.Timestamp.V, e.Created.V)),
		Severity: strings.ToLower(e.Severity.V), Message: e.Message.V,
	}, e.Message.V != ""
}

// EventLog gives the newest entries of the system event log, newest first, at most limit.
func (c *Client) EventLog(ctx context.Context, limit int) (out []provider.Event, err error) {
	err = c.call(ctx, func(context.Context) error {
		entries, err := c.findLog()
		if err != nil {
			return err
		}
		out, err = c.readLog(entries, limit)
		return err
	})
	slices.SortStableFunc(out, func(a, b provider.Event) int { return b.At.Compare(a.At) })
	return out[:min(len(out), limit)], err
}

// findLog looks at the system, its managers and its chassis, in this order, and takes the first log that is named like
// an event log, else the first.
func (c *Client) findLog() (path, error) {
	s, _, err := c.readSystem()
	if err != nil {
		return "", err
	}
	places := []path{s.LogServices}
	for _, p := range slices.Concat(s.Links.V.ManagedBy, s.Links.V.Chassis) {
		b, _, err := c.get(p)
		if c.failed(err) {
			return "", err
		}
		var holder struct{ LogServices path }
		if json.Unmarshal(b, &holder) == nil {
			places = append(places, holder.LogServices)
		}
	}
	var all []path
	for _, place := range places {
		found, err := c.members(place)
		if c.failed(err) {
			return "", err
		}
		all = append(all, found...)
	}
	for _, service := range bestLogs(all) {
		b, _, err := c.get(service)
		if c.failed(err) {
			return "", err
		}
		var log logService
		if err == nil && json.Unmarshal(b, &log) == nil && log.Entries != "" {
			return log.Entries, nil
		}
	}
	return "", unsupported("the BMC has no event log")
}

// bestLogs are the log services to read, those that are named like an event log first. An XCC's SEL has no entries, and
// another one of its logs has them.
func bestLogs(services []path) []path {
	named := func(p path) bool {
		name := strings.ToLower(pathpkg.Base(string(p)))
		return name == "sel" || strings.Contains(name, "event")
	}
	out := slices.Clone(services)
	slices.SortStableFunc(out, func(a, b path) int {
		switch {
		case named(a) == named(b):
			return 0
		case named(a):
			return -1
		}
		return 1
	})
	return out[:min(len(out), maxLogs)]
}

// readLog follows pages, and links to single entries, the last ones first: there the newest mostly are.
func (c *Client) readLog(p path, limit int) ([]provider.Event, error) {
	var out []provider.Event
	for page := 0; p != "" && page < maxPages; page++ {
		b, _, err := c.get(p)
		if err != nil {
			return nil, err
		}
		list, err := parseCollection(b)
		if err != nil {
			return nil, err
		}
		fetched := 0
		for _, m := range slices.Backward(list.Members) {
			e, ok := parseEntry(m)
			if link := (collection{Members: []json.RawMessage{m}}).links(); !ok && len(link) == 1 && fetched < limit {
				fetched++
				if b, _, err = c.get(link[0]); err != nil {
					return nil, err
				}
				e, ok = parseEntry(b)
			}
			if ok {
				out = append(out, e)
			}
		}
		p = cleanPath(list.Next.V)
	}
	return out, nil
}
