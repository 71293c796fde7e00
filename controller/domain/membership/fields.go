// Package membership decides who may write the fields of a machine that other rules depend on. These rules are the
// selections of roles and tokens, the domains of budgets, required identity levels and approval policies.
//
// A write that moves a machine into or out of one of them needs an admin's role for the machine, before and after the
// write. Otherwise an operator could escape a budget, or enter a selection in which the operator is admin, by a label.
// The package is pure: fields, roles and uses in, a refusal out.
package membership

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/internal/filter"
	"github.com/ingot-metal/ingot/internal/label"
)

// labelPrefix begins the key of a label in a filter.
const labelPrefix = "labels."

// Fields are the values of one machine by which selections, budgets and identity levels find it.
type Fields struct {
	MachineID string
	// Image is the digest of the installed image. No client writes it.
	Image  string
	Labels map[string]string
	// Spec holds the fields of the spec by their key in a filter, such as site, rack or group.
	Spec map[string]string
}

// Equal reports whether no selection, budget or level can tell the fields apart.
func (f Fields) Equal(g Fields) bool {
	return f.MachineID == g.MachineID && f.Image == g.Image && maps.Equal(f.Labels, g.Labels) && maps.Equal(f.Spec, g.Spec)
}

// Value returns the value of a filter's key and reports whether the machine has one. An empty field of the spec is
// none; an empty label is one.
func (f Fields) Value(key string) (value string, set bool) {
	if name, ok := strings.CutPrefix(key, labelPrefix); ok {
		value, set = f.Labels[name]
		return value, set
	}
	switch key {
	case label.Rack:
		value = label.RackOf(f.Spec[label.Rack], f.Labels)
	case "machine_id":
		value = f.MachineID
	case "image":
		value = f.Image
	default:
		value = f.Spec[key]
	}
	return value, value != ""
}

// values returns what a budget by a key counts the machine in: an empty value where the machine has none, and both
// racks where field and label name two.
func (f Fields) values(key string) []string {
	if key == label.Rack {
		return label.RacksOf(f.Spec[label.Rack], f.Labels)
	}
	value, _ := f.Value(key)
	return []string{value}
}

// In reports whether a selection holds the machine. Terms about the state of a machine, which no client writes, count
// as true.
func (f Fields) In(selection []filter.Term) bool {
	for _, t := range selection {
		if value, set := f.Value(t.Key); isField(t.Key) && !t.Holds(value, set) {
			return false
		}
	}
	return true
}

// OfFields reports whether a selection reads fields alone, and not what happens to a machine.
func OfFields(selection []filter.Term) bool {
	return !slices.ContainsFunc(selection, func(t filter.Term) bool { return !isField(t.Key) })
}

// stateKeys are the keys of filters that are no fields of a machine.
var stateKeys = map[string]bool{
	"phase": true, "effective_state": true, "state": true, "node_state": true, "attention_reason": true,
}

func isField(key string) bool { return !stateKeys[key] && !strings.HasPrefix(key, "condition") }

// ParseSelection parses a stored selection. An empty one has no terms and holds every machine.
func ParseSelection(text string) ([]filter.Term, error) {
	terms, err := filter.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("parse selection %q: %w", text, err)
	}
	for i, t := range terms {
		if rest, ok := strings.CutPrefix(t.Key, "label."); ok {
			terms[i].Key = labelPrefix + rest
		}
	}
	return terms, nil
}
