package names_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ingot-metal/ingot/cli/names"
)

func TestExpand(t *testing.T) {
	for in, want := range map[string]string{
		"m-1":             "m-1",
		"r42-[08-11]":     "r42-08 r42-09 r42-10 r42-11",
		"m-[1,3,7-9]":     "m-1 m-3 m-7 m-8 m-9",
		"r[1-2]-m[01-02]": "r1-m01 r1-m02 r2-m01 r2-m02",
		"[9-11]x":         "9x 10x 11x",
	} {
		got, err := names.Expand(in)
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v", in, got, err)
		}
	}
	for in, want := range map[string]string{
		"m-[1-":           "position 3: a [ without its ]",
		"m-1]":            "position 4: a ] without its [",
		"m-[]":            `position 4: "" is no number`,
		"m-[1,x]":         `position 6: "x" is no number`,
		"m-[9-1]":         `position 4: "9-1" ends before it begins`,
		"m-[1-99999]":     "position 4: more than 10000 names",
		"[1-999][1-9999]": "more than 10000 names",
	} {
		if _, err := names.Expand(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", in, err, want)
		}
	}
}

func TestCompare(t *testing.T) {
	sorted := []string{"", "m", "m-1", "m-02", "m-2", "m-10", "m-10a", "m-10b", "m-11", "n-1"}
	shuffled := slices.Clone(sorted)
	slices.Reverse(shuffled)
	if slices.SortFunc(shuffled, names.Compare); !slices.Equal(shuffled, sorted) {
		t.Errorf("%q", shuffled)
	}
	name := rapid.StringMatching(`[a-c0-2-]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := name.Draw(t, "a"), name.Draw(t, "b"), name.Draw(t, "c")
		ab, ba := names.Compare(a, b), names.Compare(b, a)
		if ab != -ba || (ab == 0) != (a == b) {
			t.Fatalf("%q and %q: %d, %d", a, b, ab, ba)
		}
		if ab <= 0 && names.Compare(b, c) <= 0 && names.Compare(a, c) > 0 {
			t.Fatalf("%q, %q, %q are in no order", a, b, c)
		}
	})
}
