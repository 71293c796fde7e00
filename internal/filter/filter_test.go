package filter_test

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/internal/filter"
)

// TestParse: texts, and their shortest forms.
func TestParse(t *testing.T) {
	for in, want := range map[string]string{
		"":                              "",
		"site=berlin":                   "site=berlin",
		"site = berlin , rack!=r1":      "site=berlin,rack!=r1",
		"rack in (r1,r2 , r3)":          "rack in (r1, r2, r3)",
		"rack not in (r1)":              "rack!=r1",
		"rack in(r*)":                   "rack=r*",
		`rack="r*"`:                     `rack="r*"`,
		`rack="a,b"`:                    `rack="a,b"`,
		`labels.x="say \"hi\" \\ now"`:  `labels.x="say \"hi\" \\ now"`,
		"labels.a/b=*":                  "labels.a/b=*",
		"rack=r1|r2":                    "rack=r1|r2",
		"rack=a=b":                      "rack=a=b",
		"rack==b":                       "rack==b",
		"rack=(x":                       `rack="(x"`,
		`rack in ("a b", c d)`:          "rack in (a b, c d)",
		`labels.empty=""`:               `labels.empty=""`,
		"conditions.Reachable=true,a=b": "conditions.Reachable=true,a=b",
	} {
		terms, err := filter.Parse(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if got := filter.Format(terms); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}

func TestErrorsSayWhere(t *testing.T) {
	for in, want := range map[string]string{
		"site":             "position 5: expected =, !=, in or not in after site, found the end",
		"site=":            "position 6: expected a value, found the end",
		"site=a,":          "position 8: expected a key, found the end",
		"=a":               `position 1: expected a key, found "=a"`,
		"site=a,,rack=b":   `position 8: expected a key, found ",rack=b"`,
		"rack in r1":       `position 9: expected ( and values, found "r1"`,
		"rack in (r1":      "position 12: expected a comma or ), found the end",
		"rack in (r1) x":   `position 14: expected a comma or the end, found "x"`,
		"rack in ()":       `position 10: expected a value, found ")"`,
		`rack="a`:          "position 6: the quote does not end",
		`rack="a"b`:        `position 9: expected a comma or the end, found "b"`,
		`rack="a\b"`:       `position 8: expected \" or \\, the two that a backslash stands before`,
		"rack within (r1)": `position 6: expected =, !=, in or not in after rack, found "within (r1)"`,
		"rack=a\nb":        "position 7: a control character",
	} {
		_, err := filter.Parse(in)
		var f *filter.Error
		if !errors.As(err, &f) || err.Error() != want {
			t.Errorf("%q: %v, want %s", in, err, want)
		}
	}
}

// TestFormatIsRead: whatever terms there are, their text is read as the same terms.
func TestFormatIsRead(t *testing.T) {
	value := rapid.Custom(func(t *rapid.T) filter.Value {
		if rapid.Bool().Draw(t, "prefix") {
			return filter.Value{Text: rapid.StringMatching(`[a-z0-9.=|!-]{0,6}`).Draw(t, "text"), Prefix: true}
		}
		return filter.Value{Text: rapid.StringMatching(`[a-z "\\,()*=!|-]{0,8}`).Draw(t, "text")}
	})
	term := rapid.Custom(func(t *rapid.T) filter.Term {
		return filter.Term{
			Key: rapid.StringMatching(`[a-z]{1,3}(\.[a-z/]{1,4})?`).Draw(t, "key"), Not: rapid.Bool().Draw(t, "not"),
			Values: rapid.SliceOfN(value, 1, 3).Draw(t, "values"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		terms := rapid.SliceOfN(term, 1, 4).Draw(t, "terms")
		s := filter.Format(terms)
		back, err := filter.Parse(s)
		if err != nil {
			t.Fatalf("%q: %v", s, err)
		}
		if again := filter.Format(back); again != s || len(back) != len(terms) {
			t.Fatalf("%q became %q", s, again)
		}
		for i := range terms {
			for j, v := range terms[i].Values {
				if b := back[i].Values[j]; b.Text != v.Text || b.Prefix != v.Prefix {
					t.Fatalf("%q: %+v became %+v", s, v, b)
				}
			}
		}
	})
}

// TestParseNeverPanics on any text, and accepts none that it does not print.
func TestParseNeverPanics(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringMatching(`(a|b\.c| in | not |=|!=|\(|\)|,|"|\\|\*| )*`)).Draw(t, "s")
		terms, err := filter.Parse(s)
		if err == nil && strings.TrimSpace(s) != "" && len(terms) == 0 {
			t.Fatalf("%q has no terms", s)
		}
	})
}

func TestHolds(t *testing.T) {
	for in, want := range map[string][3]bool{ // of r42, of none, of r7
		"rack=r42":             {true, false, false},
		"rack!=r42":            {false, true, true},
		"rack in (r42, r7)":    {true, false, true},
		"rack not in (r42,r7)": {false, true, false},
		"rack=r4*":             {true, false, false},
		"rack=*":               {true, false, true},
		"rack!=*":              {false, true, false},
	} {
		terms, err := filter.Parse(in)
		if err != nil {
			t.Fatal(err)
		}
		got := [3]bool{terms[0].Holds("r42", true), terms[0].Holds("", false), terms[0].Holds("r7", true)}
		if got != want {
			t.Errorf("%s: %v, want %v", in, got, want)
		}
	}
}
