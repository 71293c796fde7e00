package hardware

import (
	"fmt"
	"strings"

	pb "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/cli/view"
)

// Health is the output of `ingot machine health`: faults, the newest events, and sensors.
func Health(s view.Style, h *pb.HardwareHealth) string {
	f := &view.Fields{}
	f.Add("Machine", h.GetMachineId())
	f.Add("BMC", words(h.GetEndpoint()))
	f.Add("Read", view.Time(h.GetReadAt()))
	f.Add("Health", healthWord(s, h))
	f.Add("Identify light", light(h))
	for _, n := range h.GetNotRead() {
		f.Add("Not read", words(n))
	}
	out := f.String()
	faults := &view.Table{Header: []string{"FAULT", "SEVERITY", "THE BMC SAYS"}}
	for _, x := range h.GetFaults() {
		faults.Add(words(x.GetComponent()), words(x.GetSeverity()), words(x.GetSaid()))
	}
	events := &view.Table{Header: []string{"EVENT", "SEVERITY", "MESSAGE"}}
	for _, e := range h.GetEvents() {
		events.Add(view.Time(e.GetAt()), words(e.GetSeverity()), words(e.GetMessage()))
	}
	sensors := &view.Table{Header: []string{"KIND", "NAME", "VALUE", "HEALTH"}}
	for _, x := range h.GetSensors() {
		said := words(x.GetState())
		if x.Value != nil {
			said = strings.TrimSpace(fmt.Sprintf("%g %s %s", x.GetValue(), words(x.GetUnit()), said))
		}
		sensors.Add(words(x.GetKind()), words(x.GetName()), said, words(x.GetHealth()))
	}
	for _, t := range []*view.Table{faults, events, sensors} {
		if len(t.Rows) > 0 {
			out += "\n" + t.String()
		}
	}
	return out
}

func healthWord(s view.Style, h *pb.HardwareHealth) string {
	switch {
	case h.GetEndpoint() == "":
		return s.Warn("not known: the machine has no BMC") + "\nNext: ingot machine update " + h.GetMachineId() +
			" --bmc-endpoint ADDRESS --bmc-credentials NAME"
	case h.GetReadAt() == nil:
		return s.Warn("not read yet: `ingot why " + h.GetMachineId() + "` says whether its BMC answers")
	case len(h.GetFaults()) == 1:
		return s.Bad("one part is not well")
	case len(h.GetFaults()) > 1:
		return s.Bad(fmt.Sprintf("%d parts are not well", len(h.GetFaults())))
	}
	if len(h.GetSensors()) == 0 {
		return s.Warn("not known: the BMC shows no part of its machine")
	}
	if n := notKnown(h); n > 0 {
		return s.Warn(fmt.Sprintf("not known: %s not read; the BMC names nothing else that is not well", parts(n)))
	}
	return s.Good("the BMC names nothing that is not well")
}

// notKnown counts the parts whose health is unknown.
func notKnown(h *pb.HardwareHealth) (n int) {
	for _, x := range h.GetSensors() {
		if x.GetHealth() == "unknown" {
			n++
		}
	}
	return n
}

func parts(n int) string {
	if n == 1 {
		return "one part was"
	}
	return fmt.Sprintf("%d parts were", n)
}

// light returns the ordered light beside the one that was read back: the BMC takes a moment.
func light(h *pb.HardwareHealth) string {
	said, ordered := words(h.GetIdentifyLight()), words(h.GetIdentifyLightOrdered())
	if said == "" {
		said = "not known"
	}
	if ordered == "" || ordered == said {
		return said
	}
	return said + ", ordered " + ordered + " by " + words(h.GetIdentifyLightOrderedBy()) + " at " +
		view.Time(h.GetIdentifyLightOrderedAt())
}
