package webhook

import (
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/filter"
)

// Filter is a parsed filter of machines: all terms must hold. It has the keys of ListMachines.
type Filter struct {
	terms []filter.Term
	// matchesNone is set of a text that cannot be read.
	matchesNone bool
}

// ParseFilter reads a filter that was checked, and its values normalized, when it was stored.
func ParseFilter(s string) Filter {
	terms, err := filter.Parse(s)
	return Filter{terms: terms, matchesNone: err != nil}
}

func (f Filter) matchesAll() bool { return len(f.terms) == 0 && !f.matchesNone }

// Matches says whether a machine is one that ListMachines would show with the filter. No machine matches only the empty
// filter.
func (f Filter) Matches(m *baremetalv1.Machine) bool {
	if m == nil || f.matchesNone {
		return f.matchesAll()
	}
	return !slices.ContainsFunc(f.terms, func(t filter.Term) bool { return !holds(t, m) })
}

// MatchesAny says whether one of the machines is one that ListMachines would show with the filter. The empty filter
// needs none.
func (f Filter) MatchesAny(machines []*baremetalv1.Machine) bool {
	return f.matchesAll() || slices.ContainsFunc(machines, f.Matches)
}

func holds(t filter.Term, m *baremetalv1.Machine) bool {
	if key, ok := strings.CutPrefix(t.Key, "labels."); ok {
		value, there := m.GetLabels()[key]
		return t.Holds(value, there)
	}
	if t.Key == "phase" { // several may be true of one machine
		return slices.ContainsFunc(t.Values, func(v filter.Value) bool { return phase(m, v.Text) }) != t.Not
	}
	value, known := valueOf(m, t.Key)
	return known && t.Holds(value, value != "")
}

func valueOf(m *baremetalv1.Machine, key string) (value string, known bool) {
	if name, ok := strings.CutPrefix(key, "conditions."); ok {
		return map[bool]string{true: "true", false: "false"}[condition(m, name)], true
	}
	s := m.GetSpec()
	value, known = map[string]string{
		"provider": s.GetProvider(), "site": s.GetSite(), "region": s.GetRegion(), "rack": s.GetRack(), "group": s.GetGroup(),
		"location": s.GetLocation(), "serial": s.GetSerial(), "cluster": s.GetTargetClusterRef(),
		"machine_id":      m.GetMachineId(),
		"effective_state": m.GetStatus().GetEffectiveState().String(),
		"node_state":      strings.ToLower(strings.TrimPrefix(m.GetStatus().GetNodeState().String(), "NODE_STATE_")),
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
