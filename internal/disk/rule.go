package disk

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Rule selects a disk: every term must hold. The zero Rule holds for every disk.
type Rule struct{ terms []term }

type term struct {
	key, op, value string
	bytes          int64 // of value, for size
}

// RuleError is why a rule could not be read.
type RuleError struct{ Rule, Why string }

// Error returns the rule and its error.
func (e *RuleError) Error() string { return fmt.Sprintf("bad disk rule %q: %s", e.Rule, e.Why) }

// ParseRule reads terms joined by commas:
//
//	serial=S1      the serial number, exactly
//	wwn=naa.5000   the World Wide Name; 0x before it, and the kind (naa., eui., …) may be left out
//	path=/dev/…    any name of the disk under /dev
//	model=X        the model, where * stands for anything
//	size>=100GiB   also <=, > and <, and = for exactly; KiB, MiB, GiB, TiB, or KB, MB, GB, TB, or plain bytes
//
// Spaces around terms and operators are nothing. A value cannot hold a comma. "" is the zero Rule.
func ParseRule(s string) (Rule, error) {
	var r Rule
	if strings.TrimSpace(s) == "" {
		return r, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		t, err := parseTerm(strings.TrimSpace(part))
		if err != nil {
			return Rule{}, &RuleError{s, err.Error()}
		}
		r.terms = append(r.terms, t)
	}
	return r, nil
}

// ParseRules reads a list of rules; it returns all errors at once.
func ParseRules(list []string) ([]Rule, error) {
	var rules []Rule
	var errs []error
	for _, s := range list {
		r, err := ParseRule(s)
		if err == nil && r.Empty() {
			err = &RuleError{s, "an empty one among the protected"}
		}
		rules, errs = append(rules, r), append(errs, err)
	}
	return rules, errors.Join(errs...)
}

func parseTerm(s string) (term, error) {
	at := strings.IndexAny(s, "<>=")
	if at <= 0 {
		return term{}, fmt.Errorf("%q is not key=value", s)
	}
	t := term{key: strings.TrimSpace(s[:at]), op: s[at : at+1], value: s[at+1:]}
	if t.op != "=" && strings.HasPrefix(t.value, "=") {
		t.op, t.value = t.op+"=", t.value[1:]
	}
	if t.value = strings.TrimSpace(t.value); t.value == "" {
		return term{}, fmt.Errorf("%q has no value", s)
	}
	return t.check()
}

func (t term) check() (_ term, err error) {
	switch t.key {
	case "size":
		t.bytes, err = ParseSize(t.value)
		return t, err
	case "serial", "wwn", "model", "path":
	default:
		return t, fmt.Errorf("no such key %q; there are serial, wwn, path, model and size", t.key)
	}
	if t.op != "=" {
		return t, fmt.Errorf("%s can only be compared with =", t.key)
	}
	if t.key == "path" && !strings.HasPrefix(t.value, "/dev/") {
		return t, fmt.Errorf("path %q is not below /dev", t.value)
	}
	if t.key == "model" {
		_, err = filepath.Match(globOf(t.value), "")
	}
	return t, err
}

// Names reports whether the rule has a term that is a name of one disk: another disk does not come to fit it.
func (r Rule) Names() bool {
	return slices.ContainsFunc(r.terms, func(t term) bool {
		return t.key == "serial" || t.key == "wwn" || t.key == "path" && strings.HasPrefix(t.value, "/dev/disk/by-id/")
	})
}

// Empty reports whether the rule has no terms.
func (r Rule) Empty() bool { return len(r.terms) == 0 }

// String returns the rule in the form that ParseRule reads.
func (r Rule) String() string {
	var parts []string
	for _, t := range r.terms {
		parts = append(parts, t.key+t.op+t.value)
	}
	return strings.Join(parts, ",")
}

// Match reports whether every term holds for the disk.
func (r Rule) Match(d Device) bool {
	return !slices.ContainsFunc(r.terms, func(t term) bool { return !t.holds(d) })
}

func (t term) holds(d Device) bool {
	switch t.key {
	case "serial":
		return d.Serial == t.value
	case "wwn":
		return d.WWN != "" && (strings.EqualFold(d.WWN, t.value) || bareWWN(d.WWN) == bareWWN(t.value))
	case "path":
		return d.Named(filepath.Clean(t.value))
	case "model":
		// The pattern was tried when it was parsed.
		ok, _ := filepath.Match(globOf(t.value), strings.ReplaceAll(d.Model, "/", "|"))
		return ok
	}
	return t.sizeHolds(d.Size)
}

func (t term) sizeHolds(size int64) bool {
	switch t.op {
	case ">=":
		return size >= t.bytes
	case "<=":
		return size <= t.bytes
	case ">":
		return size > t.bytes
	case "<":
		return size < t.bytes
	}
	return size == t.bytes
}

// bareWWN leaves the digits: tools print the same name as naa.5000…, 0x5000… and 5000….
func bareWWN(s string) string {
	s = strings.ToLower(s)
	if kind, rest, ok := strings.Cut(s, "."); ok && (kind == "naa" || kind == "eui" || kind == "nguid" || kind == "uuid") {
		s = rest
	}
	return strings.TrimPrefix(s, "0x")
}

// globOf keeps * and takes everything else literally; a slash is no separator in a model.
func globOf(s string) string {
	return strings.NewReplacer(`\`, `\\`, "?", `\?`, "[", `\[`, "/", "|").Replace(s)
}

// ParseSize reads a number of bytes with a unit, binary (KiB …) or decimal (KB …).
func ParseSize(s string) (int64, error) {
	digits := strings.TrimRight(s, "KMGTiB ")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("size %q is not a whole number with a unit such as GiB", s)
	}
	factor, ok := map[string]int64{
		"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "KB": 1e3, "MB": 1e6, "GB": 1e9,
		"TB": 1e12,
	}[strings.TrimSpace(s[len(digits):])]
	if !ok {
		return 0, fmt.Errorf("size %q has no unit that is known", s)
	}
	if n > math.MaxInt64/factor {
		return 0, fmt.Errorf("size %q is too large", s)
	}
	return n * factor, nil
}
