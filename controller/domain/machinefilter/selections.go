package machinefilter

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"

	baremetalv1 "github.com/ingot-metal/ingot/api/baremetal/v1"
	"github.com/ingot-metal/ingot/internal/filter"
)

// Selections are filters of what machines are and where. A machine is in them when one of the filters matches it. The
// zero value holds every machine.
type Selections struct {
	filters []Filter
	texts   []string
}

// SelectionsOf returns the selections of filters, each of which has been checked. Their order does not count.
func SelectionsOf(all [][]filter.Term) Selections {
	var s Selections
	for _, terms := range all {
		s.filters = append(s.filters, Of(terms))
		s.texts = append(s.texts, filter.Format(terms))
	}
	slices.Sort(s.texts)
	s.texts = slices.Compact(s.texts)
	return s
}

// Narrow reports whether there may be machines outside.
func (s Selections) Narrow() bool { return len(s.filters) > 0 }

// Hold reports whether the machine is inside. A deleted one is not.
func (s Selections) Hold(m *baremetalv1.Machine) bool {
	if !s.Narrow() {
		return true
	}
	return m.GetDeletedAt() == nil && slices.ContainsFunc(s.filters, func(f Filter) bool { return f.Matches(m) })
}

// Digest identifies a selection, in 16 hexadecimal digits. It is empty where every machine is inside.
func (s Selections) Digest() string {
	if !s.Narrow() {
		return ""
	}
	sum := sha256.Sum256([]byte(strings.Join(s.texts, "\n")))
	return hex.EncodeToString(sum[:8])
}

// sqlTerm is a term as the database's function in_selections reads it.
type sqlTerm struct {
	Key     string `json:"key"`
	Negated bool   `json:"negated"`
	Regexp  string `json:"regexp"`
}

// SQL returns the selections as the database's function in_selections reads them; nil where every machine is inside.
func (s Selections) SQL() []byte {
	if !s.Narrow() {
		return nil
	}
	out := make([][]sqlTerm, 0, len(s.filters))
	for _, f := range s.filters {
		terms := []sqlTerm{}
		for _, t := range f.terms {
			key := t.Key
			if key == "cluster" {
				key = "target_cluster_ref" // the field of the spec
			}
			terms = append(terms, sqlTerm{Key: key, Negated: t.Not, Regexp: t.Regexp()})
		}
		out = append(out, terms)
	}
	// Strings and booleans always serialize.
	b, _ := json.Marshal(out)
	return b
}
