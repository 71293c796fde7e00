package validate_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
	"github.com/ingot-metal/ingot/internal/filter"
)

var keys = validate.Keys{
	"phase":   validate.Among(map[string]string{"READY": "READY", "IDLE": "READY"}),
	"site":    validate.Any,
	"rack":    validate.Any,
	"labels.": validate.Label,
}

func refused(t interface{ Fatalf(string, ...any) }, s string, err error) {
	f := failure.From(err)
	if f.Kind != failure.KindInvalid || f.Reason != "INVALID_FILTER" || len(f.Fields) != 1 ||
		f.Fields[0].Path != "filter" {
		t.Fatalf("%q gives %v", s, err)
	}
}

// TestFilterKeepsEveryTerm: an accepted filter has exactly the written terms: none was ignored.
func TestFilterKeepsEveryTerm(t *testing.T) {
	value := rapid.StringMatching(`[a-zA-Z0-9._/=-]{1,20}`)
	term := rapid.Custom(func(t *rapid.T) string {
		switch rapid.IntRange(0, 3).Draw(t, "key") {
		case 0:
			return "phase=READY"
		case 1:
			return "site=" + value.Draw(t, "site")
		case 2:
			return "rack=" + value.Draw(t, "rack")
		}
		return "labels." + rapid.StringMatching(`[a-z]{1,3}(/[a-z]{1,3})?`).Draw(t, "label") + "=" +
			rapid.StringMatching(`[a-z0-9]{1,5}`).Draw(t, "value")
	})
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(term, 1, 6).Draw(t, "terms")
		s := strings.Join(parts, ",")
		got, err := validate.Filter(s, keys)
		if twice(parts) {
			refused(t, s, err)
			return
		}
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if back := join(got); back != s {
			t.Fatalf("%q became %q", s, back)
		}
	})
}

func twice(parts []string) bool {
	var seen []string
	for _, p := range parts {
		k, _, _ := strings.Cut(p, "=")
		if slices.Contains(seen, k) {
			return true
		}
		seen = append(seen, k)
	}
	return false
}

func join(terms []validate.Term) string {
	var parts []string
	for _, t := range terms {
		parts = append(parts, t.Key+"="+t.Value)
	}
	return strings.Join(parts, ",")
}

// TestFilterNeverGuesses: any text is either refused as INVALID_FILTER or is taken literally.
func TestFilterNeverGuesses(t *testing.T) {
	text := rapid.OneOf(rapid.String(),
		rapid.StringMatching(`((phase|site|rack|labels\.a|labels\.|x)(=|==|)(READY|IDLE|a|"a"|a\*|)(,|, |))*`))
	rapid.Check(t, func(t *rapid.T) {
		s := text.Draw(t, "filter")
		got, err := validate.Filter(s, keys)
		if err != nil {
			refused(t, s, err)
			return
		}
		var want []string
		for _, part := range strings.Split(s, ",") {
			part = strings.Trim(part, " ")
			if key, quoted, ok := strings.Cut(part, `="`); ok && !strings.Contains(key, "=") {
				part = key + "=" + strings.TrimSuffix(quoted, `"`)
			}
			if part == "phase=IDLE" {
				part = "phase=READY"
			}
			want = append(want, part)
		}
		if back := join(got); s != "" && back != strings.Join(want, ",") {
			t.Fatalf("%q became %q", s, back)
		}
	})
}

func TestFilterRefuses(t *testing.T) {
	for _, s := range []string{
		"phase", "phase=", "=READY", "phase=asleep", "colour=red", "site=a,", ",site=a", "site=a,,rack=b", "site=a,site=a",
		"labels.=x",
		"labels=x", "site=a\x00", "site=a\nb", "site!=a", "site=a*", "site in (a, b)", "phase=READY*", `site=""`,
		"labels.a=b c", strings.Repeat("x", 5000),
		strings.Repeat("site=a,", 40),
	} {
		_, err := validate.Filter(s, keys)
		if err == nil {
			t.Errorf("%q is accepted", s)
			continue
		}
		refused(t, s, err)
	}
}

func TestQuery(t *testing.T) {
	q := validate.Query{Keys: keys, Text: []string{"site", "rack", "labels."},
		Aliases: map[string]string{"label.": "labels.", "state": "phase"}}
	for in, want := range map[string]string{
		"site in (a, b),site!=c":      "site in (a, b),site!=c",
		"label.x=a,labels.x!=b":       "labels.x=a,labels.x!=b",
		"state in (READY, IDLE)":      "phase=READY",
		"rack=r4*, label.env=web-*":   "rack=r4*,labels.env=web-*",
		`labels.x=""`:                 `labels.x=""`,
		"site!=*":                     "site!=*",
		"rack not in (r1*, \"r2 b\")": "rack not in (r1*, r2 b)",
	} {
		terms, err := q.Parse(in)
		if got := filter.Format(terms); err != nil || got != want {
			t.Errorf("%q became %q: %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"colour=red":           `position 1: the key "colour" is none of labels.…, phase, rack, site`,
		"site=a,phase!=ASLEEP": `position 15: "ASLEEP" is no value of phase`,
		"phase=REA*":           "position 7: phase takes no *",
		`rack!=""`:             "position 7: expected a value of rack; rack!=* matches what has none",
		"rack=a, rack=b":       `position 9: the key "rack" is there twice; several values are rack in (a, b)`,
		"labels.-=a*":          `position 1: "labels.-" is no key`,
	} {
		_, err := q.Parse(in)
		if refused(t, in, err); failure.From(err).Fields[0].Description != want {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
}

// TestFilterReadsEnumsInAnyCase: a closed set of values is read as JSON reads enums; free text keeps its case.
func TestFilterReadsEnumsInAnyCase(t *testing.T) {
	for _, value := range []string{"READY", "ready", "Ready", "idle"} {
		got, err := validate.Filter("phase="+value+",site=Berlin", keys)
		if err != nil || join(got) != "phase=READY,site=Berlin" {
			t.Errorf("phase=%s becomes %q, %v", value, join(got), err)
		}
	}
	if _, err := validate.Filter("phase="+strings.ToLower("NEVER"), keys); err == nil {
		t.Error("a value that is none is accepted")
	}
}
