package validate

import (
	"slices"
	"strings"
	"unicode"

	"github.com/ingot-metal/ingot/internal/failure"
)

const (
	maxFilter = 4096
	maxTerms  = 32
)

// Term is one key=value of a filter, its value normalized.
type Term struct{ Key, Value string }

// Check normalizes a value. ok is false where it means nothing for the key.
type Check func(value string) (normal string, ok bool)

// Keys are the keys that a filter may hold. One that ends with a dot stands for all that begin with it; its check gets
// the rest of the key, "=" and the value, and gives the value.
type Keys map[string]Check

// Filter parses "key=value,key=value". A key that is unknown or there twice, a value that is empty or cannot match
// anything: all are INVALID_FILTER, since a term that is ignored would match too much.
func Filter(s string, keys Keys) ([]Term, error) {
	if s == "" {
		return nil, nil
	}
	if len(s) > maxFilter || strings.Count(s, ",") >= maxTerms {
		return nil, badFilter("at most %d bytes and %d terms", maxFilter, maxTerms)
	}
	var out []Term
	for part := range strings.SplitSeq(s, ",") {
		t, err := term(part, keys)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o Term) bool { return o.Key == t.Key }) {
			return nil, badFilter("the key %q is there twice", t.Key)
		}
		out = append(out, t)
	}
	return out, nil
}

func term(part string, keys Keys) (Term, error) {
	key, value, ok := strings.Cut(part, "=")
	if !ok || key == "" || value == "" {
		return Term{}, badFilter("%q is not key=value", shown(part))
	}
	if strings.IndexFunc(part, unicode.IsControl) >= 0 {
		return Term{}, badFilter("%q holds a control character", shown(part))
	}
	check, arg := keys[key], value
	if dot := strings.IndexByte(key, '.'); dot > 0 {
		check, arg = keys[key[:dot+1]], key[dot+1:]+"="+value
	}
	if check == nil {
		return Term{}, badFilter("the key %q is none of %s", shown(key), strings.Join(known(keys), ", "))
	}
	normal, ok := check(arg)
	if !ok {
		return Term{}, badFilter("%q is no value of %s", shown(value), shown(key))
	}
	return Term{Key: key, Value: normal}, nil
}

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

func badFilter(format string, args ...any) error {
	e := failure.Invalid("INVALID_FILTER", "filter: "+format, args...)
	return e.WithField("filter", strings.TrimPrefix(e.Message, "filter: "))
}

// Any accepts every value.
func Any(value string) (string, bool) { return value, true }

// Among accepts the names given, and gives what they stand for.
func Among(names map[string]string) Check {
	return func(value string) (string, bool) {
		normal, ok := names[value]
		return normal, ok
	}
}

// Label checks "key=value" behind "labels.".
func Label(keyAndValue string) (string, bool) {
	key, value, _ := strings.Cut(keyAndValue, "=")
	return value, label(key, value) == ""
}
