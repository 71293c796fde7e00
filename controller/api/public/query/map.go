package query

import (
	"slices"
	"strings"

	machinestore "github.com/ingot-metal/ingot/controller/store/machine"
	"github.com/ingot-metal/ingot/internal/filter"
)

// Map is what the store needs to map machines.
type Map struct {
	// Count asks for the values of the groups' keys, which come first, and of the value that each machine has.
	Count
	// Groups is how many keys the groups have.
	Groups int
	// Value is the place of the value among the keys; -1 where there is none.
	Value int
}

// MapQuery turns a filter, the keys of groups and the key of a value into one question to the store. Of a moment's
// machines it asks by patterns alone.
func MapQuery(terms []filter.Term, groupBy []string, valueOf string, past bool) (Map, error) {
	m := Map{Groups: len(groupBy), Value: -1}
	var err error
	if m.Count, err = CountQuery(terms, groupBy); err != nil {
		return m, err
	}
	if err := m.addValue(valueOf); err != nil {
		return m, err
	}
	m.asks("attention_reason")
	if past {
		m.Counter.Filter = machinestore.MachineFilter{}
		for _, t := range terms {
			if IsText(t.Key) {
				m.Counter.Filter.Patterns = append(m.Counter.Filter.Patterns,
					machinestore.Pattern{Key: specField(t.Key), Not: t.Not, Regexp: t.Regexp()})
			}
		}
	}
	return m, nil
}

// addValue asks for one more key.
func (m *Map) addValue(name string) error {
	if name == "" {
		return nil
	}
	key, ok := Machines.Key(name)
	if !ok {
		return badKey("value_of", "%q is none of %s", name, strings.Join(Machines.Names(), ", "))
	}
	if m.Value = slices.Index(m.Keys, key); m.Value >= 0 {
		return nil
	}
	m.Value = len(m.Keys)
	m.Keys = append(m.Keys, key)
	if IsText(key) {
		m.Counter.Values = append(m.Counter.Values, specField(key))
	} else {
		m.asks(key)
	}
	return nil
}
