package query

import (
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/filter"
)

// Selection returns a filter of machines as roles and tokens keep it. It may only name what a machine is and where, not
// what happens to it. Errors name the field.
func Selection(field, text string) (string, error) {
	terms, err := Machines.Parse(text)
	if err != nil {
		return "", err
	}
	// An operator writes an image, so that a right must not depend on it.
	keys := slices.DeleteFunc(slices.Clone(Machines.Text), func(key string) bool { return key == "image" })
	for _, t := range terms {
		if !slices.Contains(keys, t.Key) && !strings.HasPrefix(t.Key, "labels.") {
			return "", validate.Fault(field, "%s says what happens to a machine; select by %s", t.Key,
				strings.Join(keys, ", "))
		}
	}
	return filter.Format(terms), nil
}

// NamesPlace reports whether a selection holds one machine or one site, and nothing else.
func NamesPlace(selection string) bool {
	terms, err := filter.Parse(selection)
	if err != nil || len(terms) != 1 {
		return false
	}
	_, exact := terms[0].Exact()
	return exact && (terms[0].Key == "machine_id" || terms[0].Key == "site")
}
