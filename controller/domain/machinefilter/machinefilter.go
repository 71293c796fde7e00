// Package machinefilter evaluates a filter on one machine, as ListMachines does on a fleet.
package machinefilter

import (
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/controller/domain/fleet"
	"github.com/ingot-metal/ingot/internal/filter"
	"github.com/ingot-metal/ingot/internal/label"
)

// Filter is a parsed filter of machines: all terms must hold. It has the keys of ListMachines.
type Filter struct {
	terms []filter.Term
	// matchesNone is set of a text that cannot be read.
	matchesNone bool
}

// Parse reads a filter that was checked, and its values normalized, when it was stored.
func Parse(s string) Filter {
	terms, err := filter.Parse(s)
	return Filter{terms: terms, matchesNone: err != nil}
}

// Of is the filter of terms that were checked, and their values normalized.
func Of(terms []filter.Term) Filter { return Filter{terms: terms} }

// MatchesAll reports whether the filter asks for nothing.
func (f Filter) MatchesAll() bool { return len(f.terms) == 0 && !f.matchesNone }

// Matches reports whether a machine is one that ListMachines would show with the filter. No machine matches only the
// empty filter.
func (f Filter) Matches(m *baremetalv1.Machine) bool {
	if m == nil || f.matchesNone {
		return f.MatchesAll()
	}
	return !slices.ContainsFunc(f.terms, func(t filter.Term) bool { return !holds(t, m) })
}

// MatchesAny reports whether one of the machines is one that ListMachines would show with the filter. The empty filter
// needs none.
func (f Filter) MatchesAny(machines []*baremetalv1.Machine) bool {
	return f.MatchesAll() || slices.ContainsFunc(machines, f.Matches)
}

func holds(t filter.Term, m *baremetalv1.Machine) bool {
	if t.Key == "phase" { // several may be true of one machine
		return slices.ContainsFunc(t.Values, func(v filter.Value) bool { return phase(m, v.Text) }) != t.Not
	}
	value, set, known := Value(m, t.Key)
	return known && t.Holds(value, set)
}

// Value returns the machine's value of a key, and reports whether it is set. known is false for an unknown key.
func Value(m *baremetalv1.Machine, key string) (value string, set, known bool) {
	if name, ok := strings.CutPrefix(key, "labels."); ok {
		value, set = m.GetLabels()[name]
		return value, set, true
	}
	if name, ok := strings.CutPrefix(key, "conditions."); ok {
		return conditionValue(m, name), true, true
	}
	read, known := values[key]
	if known {
		value = read(m)
	}
	return value, value != "", known
}

// values read the keys that have no dot.
var values = map[string]func(*baremetalv1.Machine) string{
	"machine_id": (*baremetalv1.Machine).GetMachineId,
	"provider":   func(m *baremetalv1.Machine) string { return m.GetSpec().GetProvider() },
	"site":       func(m *baremetalv1.Machine) string { return m.GetSpec().GetSite() },
	"region":     func(m *baremetalv1.Machine) string { return m.GetSpec().GetRegion() },
	label.Rack:   func(m *baremetalv1.Machine) string { return label.RackOf(m.GetSpec().GetRack(), m.GetLabels()) },
	"group":      func(m *baremetalv1.Machine) string { return m.GetSpec().GetGroup() },
	"location":   func(m *baremetalv1.Machine) string { return m.GetSpec().GetLocation() },
	"serial":     func(m *baremetalv1.Machine) string { return m.GetSpec().GetSerial() },
	"cluster":    func(m *baremetalv1.Machine) string { return m.GetSpec().GetTargetClusterRef() },
	"image":      func(m *baremetalv1.Machine) string { return m.GetStatus().GetOsImageDigest() },
	"attention_reason": func(m *baremetalv1.Machine) string {
		if r := m.GetStatus().GetAttentionReason(); r == fleet.AttentionNotObserved {
			return r
		}
		return "" // no other reason is a value of the key
	},
	"phase":           func(m *baremetalv1.Machine) string { return m.GetStatus().GetPhase().String() },
	"effective_state": func(m *baremetalv1.Machine) string { return m.GetStatus().GetEffectiveState().String() },
	"node_state": func(m *baremetalv1.Machine) string {
		return strings.ToLower(strings.TrimPrefix(m.GetStatus().GetNodeState().String(), "NODE_STATE_"))
	},
}

// phase knows what the phases meant that are no longer stored.
func phase(m *baremetalv1.Machine, name string) bool {
	switch name {
	case "PROVISIONING":
		return m.GetStatus().GetActiveOperationId() != ""
	case "IN_SERVICE":
		return condition(m, "InCustomerCluster")
	case "RMA":
		return condition(m, "RMA")
	case "RETIRED":
		return condition(m, "Retired")
	}
	return m.GetStatus().GetPhase().String() == name
}

// conditionValue is "unknown" of a condition that is false only because its witness is silent. One that was never
// reported is false.
func conditionValue(m *baremetalv1.Machine, name string) string {
	for _, c := range m.GetStatus().GetConditions() {
		switch {
		case c.GetType() != name:
		case c.GetStatus():
			return "true"
		case !c.GetKnown():
			return "unknown"
		}
	}
	return "false"
}

func condition(m *baremetalv1.Machine, name string) bool {
	for _, c := range m.GetStatus().GetConditions() {
		if c.GetType() == name {
			return c.GetStatus()
		}
	}
	return false
}
