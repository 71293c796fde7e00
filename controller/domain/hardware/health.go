package hardware

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/safetext"
)

// Bounds of one stored reading.
const (
	mostSensors = 128
	mostEvents  = 20
	mostFaults  = 32
	mostNotRead = 8
	// mostText is in runes, of each text.
	mostText = 200
)

// faultRank orders the severities that are faults. A health that is not in it is no fault.
var faultRank = map[string]int{"warning": 1, "critical": 2}

// unknownHealth is that of a part that was not read, or whose reading means nothing in the state that it is in.
const unknownHealth = "unknown"

// worth orders sensors where there are more than are kept: faults, unknown ones, then those with a state or value.
func worth(s *baremetalv1.HardwareSensor) int {
	switch {
	case faultRank[s.GetHealth()] > 0:
		return 2 + faultRank[s.GetHealth()]
	case s.GetHealth() == unknownHealth:
		return 2
	case s.Value != nil || s.GetHealth() != "":
		return 1
	}
	return 0
}

// keepFaults keeps the faults of an earlier reading in a new one that was not whole: silence heals none. What the new
// one has read of the same part counts. read are the parts that it has read, unread those that it has not.
//
// Some parts are never read: sensors of another controller, documents that a service lists and has not. What was not
// read when a fault was found doesn't hold that fault, and doesn't keep it.
func keepFaults(h, before *baremetalv1.HardwareHealth, read map[string]bool, unread []string) {
	never := map[string]bool{}
	for _, s := range before.GetSensors() {
		never[component(s)] = s.GetHealth() == unknownHealth
	}
	for _, f := range before.GetFaults() {
		said, kept, waits := keptFor(f.GetSaid())
		var causes []string
		for _, u := range unread {
			if kept && (waits == "" || strings.Contains(waits, u)) || !kept && (u == f.GetComponent() || !never[u]) {
				causes = append(causes, u)
			}
		}
		if len(causes) > 0 && !read[f.GetComponent()] && len(h.Faults) < mostFaults {
			h.Faults = append(h.Faults, &baremetalv1.HardwareFault{Component: f.GetComponent(), Severity: f.GetSeverity(),
				Said: said + keptBy(causes)})
		}
	}
}

// keptText is what stands behind a fault that was not read again, with the parts that may still have it.
var keptText = regexp.MustCompile(`^(.*?) \(before; not read now(?:: (.*))?\)$`)

// keptFor takes apart what keptBy has written. waits are the parts that the fault waits for, empty for any.
func keptFor(said string) (text string, kept bool, waits string) {
	if m := keptText.FindStringSubmatch(said); m != nil {
		return m[1], true, m[2]
	}
	return said, false, ""
}

// keptBy names a few parts. With more the fault waits until everything is read.
func keptBy(causes []string) string {
	const most = 3
	if len(causes) > most {
		return " (before; not read now)"
	}
	return " (before; not read now: " + strings.Join(causes, "; ") + ")"
}

// Settle bounds, cleans and sorts a reading, and fills in its faults. Firmware may say anything of any size. before is
// the earlier reading of the same BMC, nil for none.
func Settle(h, before *baremetalv1.HardwareHealth) {
	for _, s := range h.GetSensors() {
		s.Name, s.Kind, s.Unit, s.State = printable(s.GetName()), printable(s.GetKind()), printable(s.GetUnit()),
			printable(s.GetState())
		s.Health = known(s.GetHealth())
	}
	for _, e := range h.GetEvents() {
		e.EventId, e.Severity, e.Message = printable(e.GetEventId()), known(e.GetSeverity()), printable(e.GetMessage())
	}
	for i, text := range h.GetNotRead() {
		h.NotRead[i] = printable(text)
	}
	h.Faults = nil
	read, unread := map[string]bool{}, []string(nil)
	for _, s := range h.GetSensors() {
		if s.GetHealth() == unknownHealth {
			unread = append(unread, component(s))
		} else {
			read[component(s)] = true
		}
	}
	// Faults come first, so that the bound cuts none of them off.
	slices.SortStableFunc(h.Sensors, func(a, b *baremetalv1.HardwareSensor) int {
		return cmp.Or(cmp.Compare(worth(b), worth(a)), cmp.Compare(a.GetKind(), b.GetKind()),
			cmp.Compare(a.GetName(), b.GetName()))
	})
	h.Sensors = h.Sensors[:min(len(h.Sensors), mostSensors)]
	for _, s := range h.GetSensors() {
		if faultRank[s.GetHealth()] > 0 && len(h.Faults) < mostFaults {
			h.Faults = append(h.Faults, &baremetalv1.HardwareFault{Component: component(s), Severity: s.GetHealth(),
				Said: Said(s)})
		}
	}
	keepFaults(h, before, read, unread)
	slices.SortStableFunc(h.Sensors, func(a, b *baremetalv1.HardwareSensor) int {
		return cmp.Or(cmp.Compare(a.GetKind(), b.GetKind()), cmp.Compare(a.GetName(), b.GetName()))
	})
	h.Events = h.Events[:min(len(h.Events), mostEvents)]
	if light := h.GetIdentifyLight(); light != "on" && light != "off" {
		h.IdentifyLight = ""
	}
	h.NotRead = h.NotRead[:min(len(h.NotRead), mostNotRead)]
}

// Said returns a sensor's value and state, such as "41 Cel" or "UnavailableOffline".
func Said(s *baremetalv1.HardwareSensor) string {
	if s.Value == nil {
		return s.GetState()
	}
	return strings.TrimSpace(fmt.Sprintf("%g %s", s.GetValue(), s.GetUnit()) + " " + s.GetState())
}

// FaultMessage names the faulty parts, without values, which change with each reading; it is empty without faults.
func FaultMessage(h *baremetalv1.HardwareHealth) string {
	var parts []string
	for _, f := range h.GetFaults() {
		parts = append(parts, f.GetComponent()+" ("+f.GetSeverity()+")")
	}
	const most = 8
	if more := len(parts) - most; more > 0 {
		parts = append(parts[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, ", ")
}

// component is the kind and the name, which often begins with the kind.
func component(s *baremetalv1.HardwareSensor) string {
	if strings.Contains(strings.ToLower(s.GetName()), strings.ToLower(s.GetKind())) {
		return s.GetName()
	}
	return s.GetKind() + " " + s.GetName()
}

// known returns a health in lower case, empty for an unknown word.
func known(health string) string {
	if h := strings.ToLower(health); h == "ok" || h == unknownHealth || faultRank[h] > 0 {
		return h
	}
	return ""
}

// printable is a text without what no terminal and no database takes, cut.
func printable(text string) string {
	return safetext.Bounded(text, mostText)
}
