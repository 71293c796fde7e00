package validate

import (
	"errors"
	"slices"
	"strings"

	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/filter"
)

const (
	maxFilter = 4096
	maxTerms  = 32
)

// Term is one key=value of a filter, its value normalized.
type Term struct{ Key, Value string }

// Check normalizes a value. ok is false where it means nothing for the key.
type Check func(value string) (normal string, ok bool)

// Keys are the keys that a filter may hold. One that ends with a dot stands for all that begin with it. Its check gets
// the rest of the key, "=" and the value, and returns the value.
type Keys map[string]Check

// Filter parses a filter of key=value terms alone. A key that is unknown or there twice, a value that is empty or
// cannot match anything: all are INVALID_FILTER, since a term that is ignored would match too much.
func Filter(s string, keys Keys) ([]Term, error) {
	terms, err := Query{Keys: keys}.Parse(s)
	if err != nil {
		return nil, err
	}
	out := make([]Term, 0, len(terms))
	for _, t := range terms {
		value, ok := t.Exact()
		if !ok {
			return nil, badFilter(t.Pos, "this list takes %s=VALUE alone", t.Key)
		}
		out = append(out, Term{Key: t.Key, Value: value})
	}
	return out, nil
}

// Query is the whole language of package filter over a list's keys.
type Query struct {
	Keys Keys
	// Aliases are other names of keys; one that ends with a dot stands for all that begin with it.
	Aliases map[string]string
	// Text are the keys of free text, whose values may end in *. They are written as in Keys.
	Text []string
}

// Parse reads a filter, and returns it with the keys' own names and normal values.
func (q Query) Parse(s string) ([]filter.Term, error) {
	if len(s) > maxFilter {
		return nil, badFilter(maxFilter+1, "at most %d bytes; select many machines by a selection", maxFilter)
	}
	terms, err := filter.Parse(s)
	var bad *filter.Error
	if errors.As(err, &bad) {
		return nil, badFilter(bad.Pos, "%s", bad.Problem)
	}
	if len(terms) > maxTerms {
		return nil, badFilter(terms[maxTerms].Pos, "at most %d terms", maxTerms)
	}
	single := map[string]bool{}
	for i := range terms {
		if err := q.term(&terms[i]); err != nil {
			return nil, err
		}
		if _, exact := terms[i].Exact(); exact {
			if single[terms[i].Key] {
				return nil, badFilter(terms[i].Pos, "the key %q is there twice; several values are %s in (a, b)",
					shown(terms[i].Key), shown(terms[i].Key))
			}
			single[terms[i].Key] = true
		}
	}
	return terms, nil
}

// term normalizes a term in place.
func (q Query) term(t *filter.Term) error {
	t.Key = q.alias(t.Key)
	family, rest, dotted := t.Key, "", false
	if dot := strings.IndexByte(t.Key, '.'); dot > 0 {
		family, rest, dotted = t.Key[:dot+1], t.Key[dot+1:]+"=", true
	}
	check := q.Keys[family]
	if check == nil {
		return badFilter(t.Pos, "the key %q is none of %s", shown(t.Key), strings.Join(known(q.Keys), ", "))
	}
	for i, v := range t.Values {
		switch {
		case v.Prefix && !slices.Contains(q.Text, family):
			return badFilter(v.Pos, "%s takes no *", shown(t.Key))
		case v.Prefix:
			if _, ok := check(rest); dotted && !ok {
				return badFilter(t.Pos, "%q is no key", shown(t.Key))
			}
			continue
		case v.Text == "" && !dotted:
			return badFilter(v.Pos, "expected a value of %s; %s!=* matches what has none", shown(t.Key), shown(t.Key))
		}
		normal, ok := check(rest + v.Text)
		if !ok {
			return badFilter(v.Pos, "%q is no value of %s", shown(v.Text), shown(t.Key))
		}
		t.Values[i].Text = normal
	}
	t.Values = distinct(t.Values)
	return nil
}

// distinct leaves out values that are there twice: two names may stand for one.
func distinct(values []filter.Value) []filter.Value {
	var out []filter.Value
	for _, v := range values {
		if !slices.ContainsFunc(out, func(o filter.Value) bool { return o.Text == v.Text && o.Prefix == v.Prefix }) {
			out = append(out, v)
		}
	}
	return out
}

func (q Query) alias(key string) string {
	if other, ok := q.Aliases[key]; ok {
		return other
	}
	if dot := strings.IndexByte(key, '.'); dot > 0 {
		if other, ok := q.Aliases[key[:dot+1]]; ok {
			return other + key[dot+1:]
		}
	}
	return key
}

// Key returns a key's own name. ok is false for an unknown name.
func (q Query) Key(name string) (key string, ok bool) {
	key = q.alias(name)
	dot := strings.IndexByte(key, '.')
	if dot <= 0 {
		return key, q.Keys[key] != nil
	}
	check := q.Keys[key[:dot+1]]
	if check == nil {
		return key, false
	}
	_, ok = check(key[dot+1:] + "=true") // a value of every family
	return key, ok
}

// Names are the names of the keys.
func (q Query) Names() []string { return known(q.Keys) }

func known(keys Keys) []string {
	var out []string
	for k := range keys {
		if strings.HasSuffix(k, ".") {
			k += "…"
		}
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

func badFilter(pos int, format string, args ...any) error {
	e := failure.Invalid("INVALID_FILTER", "filter: position %d: "+format, append([]any{pos}, args...)...)
	return e.WithField("filter", strings.TrimPrefix(e.Message, "filter: "))
}

// Any accepts every value.
func Any(value string) (string, bool) { return value, true }

// Among returns a check that accepts the given names in any case and returns the values that they stand for. Every key
// with a closed set of values uses it, so that filters read enums as JSON bodies do.
func Among(names map[string]string) Check {
	folded := make(map[string]string, len(names))
	for name, normal := range names {
		folded[strings.ToLower(name)] = normal
	}
	return func(value string) (string, bool) {
		normal, ok := folded[strings.ToLower(value)]
		return normal, ok
	}
}

// Label checks "key=value" behind "labels.".
func Label(keyAndValue string) (string, bool) {
	key, value, _ := strings.Cut(keyAndValue, "=")
	return value, label(key, value) == ""
}
