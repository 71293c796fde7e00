package webhook

import (
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
)

// Filter is a parsed filter of machines: all terms must hold. It has the keys of ListMachines.
type Filter []term

type term struct{ key, value string }

// ParseFilter reads a filter that was checked, and its values normalized, when it was stored.
func ParseFilter(s string) Filter {
	var out Filter
	for part := range strings.SplitSeq(s, ",") {
		if key, value, ok := strings.Cut(part, "="); ok {
			out = append(out, term{key, value})
		}
	}
	return out
}

// Matches says whether a machine is one that ListMachines would show with the filter. No machine matches only the empty
// filter.
func (f Filter) Matches(m *baremetalv1.Machine) bool {
	if m == nil {
		return len(f) == 0
	}
	for _, t := range f {
		if !t.holds(m) {
			return false
		}
	}
	return true
}

// MatchesAny says whether one of the machines is one that ListMachines would show with the filter. The empty filter
// needs none.
func (f Filter) MatchesAny(machines []*baremetalv1.Machine) bool {
	return len(f) == 0 || slices.ContainsFunc(machines, f.Matches)
}

func (t term) holds(m *baremetalv1.Machine) bool {
	if key, ok := strings.CutPrefix(t.key, "labels."); ok {
		value, there := m.GetLabels()[key]
		return there && value == t.value
	}
	if name, ok := strings.CutPrefix(t.key, "conditions."); ok {
		return condition(m, name) == (t.value == "true")
	}
	switch t.key {
	case "phase":
		return phase(m, t.value)
	case "effective_state":
		return m.GetStatus().GetEffectiveState().String() == t.value
	case "node_state":
		return m.GetStatus().GetNodeState().String() == "NODE_STATE_"+strings.ToUpper(t.value)
	}
	value, known := specValue(m, t.key)
	return known && value == t.value
}

func specValue(m *baremetalv1.Machine, key string) (value string, known bool) {
	s := m.GetSpec()
	value, known = map[string]string{
		"provider": s.GetProvider(), "site": s.GetSite(), "region": s.GetRegion(), "rack": s.GetRack(), "group": s.GetGroup(),
		"machine_id": m.GetMachineId(),
	}[key]
	return value, known
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

func condition(m *baremetalv1.Machine, name string) bool {
	for _, c := range m.GetStatus().GetConditions() {
		if c.GetType() == name {
			return c.GetStatus()
		}
	}
	return false
}
