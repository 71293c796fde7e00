package validate_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/controller/validate"
	"github.com/ingot-metal/ingot/internal/failure"
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

// TestFilterKeepsEveryTerm: what is accepted says exactly what was written, so no term was ignored.
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

// TestFilterNeverGuesses: any text is either refused as INVALID_FILTER or means what it says.
func TestFilterNeverGuesses(t *testing.T) {
	text := rapid.OneOf(rapid.String(),
		rapid.StringMatching(`((phase|site|rack|labels\.a|labels\.|x)(=|==|)(READY|IDLE|a|)(,|))*`))
	rapid.Check(t, func(t *rapid.T) {
		s := text.Draw(t, "filter")
		got, err := validate.Filter(s, keys)
		if err != nil {
			refused(t, s, err)
			return
		}
		want := strings.Split(s, ",")
		for i, part := range want {
			if part == "phase=IDLE" {
				want[i] = "phase=READY"
			}
		}
		if back := join(got); s != "" && back != strings.Join(want, ",") {
			t.Fatalf("%q became %q", s, back)
		}
	})
}

func TestFilterRefuses(t *testing.T) {
	for _, s := range []string{
		"phase", "phase=", "=READY", "phase=ready", "colour=red", "site=a,", ",site=a", "site=a,,rack=b", "site=a,site=a",
		"labels.=x",
		"labels=x", "site=a\x00", "site=a\nb", " site=a", "labels.a=b c", strings.Repeat("x", 5000),
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
