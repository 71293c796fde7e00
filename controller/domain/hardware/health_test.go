package hardware

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// A part that was not read this time keeps its fault; one that was read, or a whole reading, has the reported health.
func TestSilenceHealsNoPart(t *testing.T) {
	t.Parallel()
	part := func(name, health string) *baremetalv1.HardwareSensor {
		return &baremetalv1.HardwareSensor{Name: name, Kind: "power supply", State: "s", Health: health}
	}
	before := reading(nil, part("PSU1", "critical"), part("PSU2", "warning"))
	for name, tc := range map[string]struct {
		now  []*baremetalv1.HardwareSensor
		want string
	}{
		"not read": {[]*baremetalv1.HardwareSensor{part("PSU1", "unknown"), part("PSU2", "ok")}, "power supply PSU1 (critical)"},
		"a whole document": {[]*baremetalv1.HardwareSensor{part("Chassis/1/Power", "unknown")},
			"power supply PSU1 (critical), power supply PSU2 (warning)"},
		"whole, and one is ok": {[]*baremetalv1.HardwareSensor{part("PSU1", "ok")}, ""},
		"worse": {[]*baremetalv1.HardwareSensor{part("PSU1", "unknown"), part("PSU2", "critical")},
			"power supply PSU2 (critical), power supply PSU1 (critical)"},
	} {
		now := reading(before, tc.now...)
		if got := FaultMessage(now); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
		again := reading(now, tc.now...) // what was kept is kept again
		if got := FaultMessage(again); got != tc.want {
			t.Errorf("%s, again: %q, want %q", name, got, tc.want)
		}
		for _, f := range again.GetFaults() {
			if strings.Count(f.GetSaid(), "not read now") > 1 {
				t.Errorf("%s: %q", name, f.GetSaid())
			}
		}
	}
}

// reading is what the controller stores of sensors, after the reading before.
func reading(before *baremetalv1.HardwareHealth, sensors ...*baremetalv1.HardwareSensor) *baremetalv1.HardwareHealth {
	h := &baremetalv1.HardwareHealth{}
	for _, s := range sensors {
		h.Sensors = append(h.Sensors, proto.CloneOf(s))
	}
	Settle(h, before)
	return h
}

// Intel's boards list sensors that no reading ever has. A fault that isn't listed any more is over all the same, and
// one whose document is not read for a while comes through until that is read again.
func TestWhatIsNeverReadKeepsNoFault(t *testing.T) {
	t.Parallel()
	part := func(kind, name, health string) *baremetalv1.HardwareSensor {
		return &baremetalv1.HardwareSensor{Name: name, Kind: kind, State: "s", Health: health}
	}
	engine, power := part("temperature", "ME Temp", "unknown"), part("document", "Chassis/1/Power", "unknown")
	thermal, supply := part("document", "Chassis/1/Thermal", "unknown"), part("power supply", "PSU1", "critical")
	const fault = "power supply PSU1 (critical)"
	last := reading(nil, engine, supply)
	for i, step := range []struct {
		now  []*baremetalv1.HardwareSensor
		want string
	}{
		{[]*baremetalv1.HardwareSensor{engine, power, thermal}, fault},
		{[]*baremetalv1.HardwareSensor{engine, power}, fault},
		{[]*baremetalv1.HardwareSensor{engine, power}, fault},
		{[]*baremetalv1.HardwareSensor{engine, thermal}, ""}, // that document has not had it either
		{[]*baremetalv1.HardwareSensor{engine, supply}, fault},
		{[]*baremetalv1.HardwareSensor{engine}, ""}, // it was pulled
		{[]*baremetalv1.HardwareSensor{engine, power}, ""},
	} {
		if last = reading(last, step.now...); FaultMessage(last) != step.want {
			t.Errorf("step %d: %q, want %q", i, FaultMessage(last), step.want)
		}
	}
	var many []*baremetalv1.HardwareSensor
	for i := range 10 {
		many = append(many, part("document", fmt.Sprint("d", i), "unknown"))
	}
	last = reading(reading(reading(nil, supply), many...), many[9])
	if FaultMessage(last) != fault || FaultMessage(reading(last)) != "" {
		t.Errorf("of many: %q", FaultMessage(last))
	}
}

// A firmware reports ten thousand sensors, some of them ill, with bytes that no terminal takes.
func TestSettleKeepsWhatIsIll(t *testing.T) {
	t.Parallel()
	h := &baremetalv1.HardwareHealth{Faults: []*baremetalv1.HardwareFault{{Component: "of an agent's own"}}}
	for i := range 10000 {
		h.Sensors = append(h.Sensors, &baremetalv1.HardwareSensor{Name: fmt.Sprint("T", i), Kind: "temperature",
			Value: proto.Float64(20), Unit: "Cel", Health: "OK"})
		h.Events = append(h.Events, &baremetalv1.HardwareEvent{Message: strings.Repeat("x", 1000), Severity: "Fatal"})
		h.NotRead = append(h.NotRead, "\x1b[31mred")
	}
	h.Sensors = append(h.Sensors,
		&baremetalv1.HardwareSensor{Name: "PSU2", Kind: "power supply", State: "Absent\x00\n\xff", Health: "Critical"},
		&baremetalv1.HardwareSensor{Name: "Memory A2", Kind: "memory", State: "Enabled", Health: "warning"},
		&baremetalv1.HardwareSensor{Name: "CPU1", Kind: "temperature", Value: proto.Float64(99.5), Unit: "Cel",
			State: "hot", Health: "critical"})
	Settle(h, nil)
	if len(h.GetSensors()) != 128 || len(h.GetEvents()) != 20 || len(h.GetNotRead()) != 8 {
		t.Errorf("%d sensors, %d events, %d not read", len(h.GetSensors()), len(h.GetEvents()), len(h.GetNotRead()))
	}
	var faults []string
	for _, f := range h.GetFaults() {
		faults = append(faults, f.GetComponent()+"|"+f.GetSeverity()+"|"+f.GetSaid())
	}
	want := "power supply PSU2|critical|Absent ? temperature CPU1|critical|99.5 Cel hot Memory A2|warning|Enabled"
	if got := strings.Join(faults, " "); got != want {
		t.Errorf("%q", got)
	}
	if got := FaultMessage(h); got != "power supply PSU2 (critical), temperature CPU1 (critical), Memory A2 (warning)" {
		t.Errorf("%q", got)
	}
	e := h.GetEvents()[0]
	if len([]rune(e.GetMessage())) != 200 || e.GetSeverity() != "" || strings.Contains(h.GetNotRead()[0], "\x1b") {
		t.Errorf("%v %q", e, h.GetNotRead()[0])
	}
	for i := range 40 {
		h.Sensors[i].Health = "critical"
	}
	if Settle(h, nil); len(h.GetFaults()) != 32 || !strings.HasSuffix(FaultMessage(h), ", and 24 more") {
		t.Errorf("%d faults: %s", len(h.GetFaults()), FaultMessage(h))
	}
}
